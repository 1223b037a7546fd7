"""What an answer is worth: normalised exact match, F1 of words, or a function of the user's own.

Normalisation and F1 follow the definition of Rajpurkar et al. 2016 (SQuAD, section 6.1): case, punctuation and English
articles do not count. Beyond it: Unicode is brought to compatibility form, thousands separators go ("4,200" is "4200"),
a point between digits and a minus before a number stay ("3.5" is not "35").
"""

import asyncio
import importlib
import inspect
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from harness.protocol.errors import SpecError
from workloads.deep_research.dataset import Row

Judge = Callable[[str, Row], Awaitable[float]]
"""(answer, row of the data set) -> reward."""

_THOUSANDS = re.compile(r"(?<=\d)[,'\u2019\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class ScoreError(Exception):
    """The user's function raised, or returned what is no reward."""


def normalise(text: str) -> str:
    """The text as it is compared: words in lower case, one space between them."""
    text = unicodedata.normalize("NFKC", _THOUSANDS.sub("", text)).casefold()
    kept = []
    for place, character in enumerate(text):
        before, after = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
        if character == "." and before.isdigit() and after.isdigit():
            kept.append(character)
        elif character in "-\u2212" and after.isdigit() and (not before or before.isspace()):
            kept.append("-")
        elif not unicodedata.category(character).startswith("P"):
            kept.append(character)
    return " ".join(_ARTICLES.sub(" ", "".join(kept)).split())


def exact(answer: str, answers: Sequence[str]) -> float:
    """1.0 where the answer equals any accepted one after normalisation, else 0.0."""
    given = normalise(answer)
    return float(any(given == normalise(accepted) for accepted in answers))


def f1(answer: str, answers: Sequence[str]) -> float:
    """The best F1 of the answer's words against an accepted answer's, 0..1; words count as often as they occur."""
    return max((_f1(normalise(answer).split(), normalise(accepted).split()) for accepted in answers), default=0.0)


def _f1(given: list[str], accepted: list[str]) -> float:
    if not given or not accepted:
        return float(given == accepted)
    shared = sum((Counter(given) & Counter(accepted)).values())
    return 2 * shared / (len(given) + len(accepted))


def load_judge(reward: str) -> Judge:
    """The judge that `reward` names: `exact`, `f1` or MODULE:FUNCTION.

    The function takes (answer: str, row: Row) and returns a finite number. It is looked for in the Python that runs the
    framework, and called in a thread, so that it may be slow.

    Raises:
        SpecError: there is no such module or function, or it can't be called with an answer and a row.
    """
    if reward in ("exact", "f1"):
        built_in = exact if reward == "exact" else f1

        async def by_answer(answer: str, row: Row) -> float:
            return built_in(answer, row.answers)

        return by_answer
    function = _load(reward)

    async def by_function(answer: str, row: Row) -> float:
        try:
            value = await asyncio.to_thread(function, answer, row)
            number = float(value)
        except Exception as error:
            raise ScoreError(f"{reward}: {type(error).__name__}: {error}") from error
        if not math.isfinite(number):
            raise ScoreError(f"{reward} returned {value!r}: a reward is a finite number")
        return number

    return by_function


def _load(reward: str) -> Callable[[str, Row], Any]:
    module_name, _, name = reward.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise SpecError(
            f"reward = {reward}: {module_name} can't be imported by {sys.executable}, which runs the framework"
            f" ({type(error).__name__}: {error}); install it there"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise SpecError(f"reward = {reward}: {module_name} has no function {name}")
    if inspect.iscoroutinefunction(function):
        raise SpecError(f"reward = {reward}: allowed is a plain function, called in a thread; this one is async")
    try:
        inspect.signature(function).bind("answer", Row(prompt=0, question=""))
    except (TypeError, ValueError) as error:
        raise SpecError(f"reward = {reward}: it can't be called with (answer, row): {error}") from None
    loaded: Callable[[str, Row], Any] = function
    return loaded
