"""What of a tool's long answer a model is shown: the passages that bear on its question, in their order."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from workloads.deep_research.tools import Observation

_PASSAGE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\w+")
_LINKS = "\n\nLinks:\n"
GAP = " … "


def excerpt(answer: Observation, question: str, characters: int) -> str:
    """The answer's text if it is at most `characters` long, else its head and what fits of its best passages.

    Passages are sentences or lines. One counts by the question's words in it, rare ones more: the sum of
    ln(1 + passages / passages with the word), over the words that it shares with the question. Links are listed when
    their text stands in what is shown. Without any shared word it is the beginning.
    """
    text = answer.text
    if len(text) <= characters:
        return text
    body, _, _ = text.partition(_LINKS)
    passages = [passage for passage in _PASSAGE.split(body) if passage.strip()]
    chosen = _choose(passages, question, characters)
    if chosen is None:
        return text[:characters]
    shown = "\n".join(passages[:2]) + "\n" + GAP.join(passages[place] for place in chosen)
    left = characters - len(shown)
    lines = []
    for title, url in answer.links:
        line = f"\n- {title}: {url}"
        if title and title in shown and len(line) <= left - len(_LINKS):
            lines.append(line)
            left -= len(line)
    return shown + (_LINKS.rstrip("\n") + "".join(lines) if lines else "")


def _choose(passages: Sequence[str], question: str, characters: int) -> list[int] | None:
    """The places of the passages that are shown after the first two (title and address); None: none bears on it."""
    wanted = set(_words(question))
    found = [wanted.intersection(_words(passage)) for passage in passages]
    counts = Counter(word for words in found for word in words)
    scores = [sum(math.log(1 + len(passages) / counts[word]) for word in sorted(words)) for words in found]
    # Half the room at most is for links.
    left = characters // 2 - sum(len(passage) + 1 for passage in passages[:2])
    chosen: list[int] = []
    for place in sorted(range(2, len(passages)), key=lambda place: (-scores[place], place)):
        if scores[place] <= 0:
            break
        cost = len(passages[place]) + len(GAP)
        if cost <= left:
            chosen.append(place)
            left -= cost
    return sorted(chosen) or None


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if len(word) > 2]
