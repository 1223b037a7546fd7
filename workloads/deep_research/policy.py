"""A policy that is a script. It stands where the model generates, so that the live path can be proven without one.

It knows how generated questions are worded (`question_grammar`), searches for the page a question begins at, opens it,
reads the fact in the observation as its conversation has it, follows the link, and finishes with what the last page
says. Its replies are encoded by the run's codec and scored by the real engine, so frameworks train on them as on any.
The model decides nothing.

- Even samples answer what they found; odd ones find it as well and answer WRONG: each group has both rewards.
- What it can't find it answers as UNKNOWN, on even samples too: reward 0, and visible as such.
- By dice of (seed, prompt, sample): half of the trajectories think in every other reply; a quarter begin with a call
  that is malformed, and read the error; a quarter make a second search beside the first.
"""

import random
import re
from dataclasses import dataclass, field

from workloads.deep_research.boundary import Generated, LiveCodec, Sampling, Score
from workloads.deep_research.parsing import OPEN, THINK, THOUGHT, render_call
from workloads.deep_research.presets import BROWSE, FINISH, SEARCH
from workloads.deep_research.question_grammar import RELATIONS, find_fact, parse_question

WRONG = "deliberately wrong"
UNKNOWN = "unknown"
MALFORMED = OPEN + '\n{"name": "search_engine", "arguments": {"query": \n</tool_call>'

_ANSWER = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_HIT = re.compile(r"^\[\d+\] (.+)\n(https?://\S+)", re.MULTILINE)
_LINK = re.compile(r"^- (.+): (https?://\S+)$|\[([^\[\]]+)\]\((https?://[^()\s]+)\)", re.MULTILINE)


@dataclass(kw_only=True)
class ScriptedPolicy:
    """The policy of one trajectory; `generate` has the boundary's signature."""

    codec: LiveCodec
    score: Score
    question: str
    seed: int
    prompt: int
    sample: int
    _begin: int = 0  # ids of the first prompt
    _read_so_far: int = 0  # tool answers of the conversation
    _turn: int = 0
    _title: str = ""  # of the page that is looked for
    _relations: list[str] = field(default_factory=list)  # still to be followed, the first one next
    _url: str | None = None  # of the page that was asked for last
    _searches: int = 0  # for the title
    _malformed: bool = False
    _thinks: bool = False
    _doubles: bool = False

    def __post_init__(self) -> None:
        dice = random.Random(f"scripted:{self.seed}:{self.prompt}:{self.sample}")
        self._thinks = dice.random() < 0.5
        self._malformed = dice.random() < 0.25
        self._doubles = dice.random() < 0.25
        try:
            self._title, relations = parse_question(self.question)
            self._relations = list(relations)
        except ValueError:
            self._title = ""  # not a question of this form: answered as unknown

    async def generate(self, trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        """The script's next reply to the conversation so far, with the engine's own logprobs of its tokens.

        A reply longer than `max_tokens` is cut there, as an engine cuts one.
        """
        # All are counted: where the newest begins is not where the last request ended, if thoughts were stripped.
        self._begin = self._begin or len(ids)
        every = [text.strip() for text in _ANSWER.findall(self.codec.decode(ids[self._begin :]))]
        answers, self._read_so_far = every[self._read_so_far :], len(every)
        text = self._say(answers)
        reply = [*self.codec.encode(text), self.codec.end_id]
        cut = len(reply) > sampling.max_tokens
        reply = reply[: sampling.max_tokens]
        self._turn += 1
        scored = await self.score(trajectory_id, ids, reply)
        return Generated(
            ids=reply,
            logprobs=scored.logprobs,
            version_start=scored.version_start,
            version_end=scored.version_end,
            engine=scored.engine,
            stop_reason="length" if cut else "stop",
            versions=scored.versions,
        )

    def _say(self, answers: list[str]) -> str:
        opening = "" if self.codec.thought_opening else f"{THINK}\n"  # the template's, where it opens the block
        thought = f"{THOUGHT}\n\n" if self.codec.thought_opening else ""
        if self._thinks and self._turn % 2 == 0:
            thought = f"{opening}Next: {self._title or 'no idea'}.\n{THOUGHT}\n\n"
        if self._malformed and self._turn == 0 and self._title:
            return thought + MALFORMED
        return thought + self._act(answers)

    def _act(self, answers: list[str]) -> str:
        if not self._title:
            return _finish(UNKNOWN)
        if self._url is not None:
            return self._read(answers[0] if answers else "")
        if self._searches:
            found = {title: url for answer in answers for title, url in _HIT.findall(answer)}
            if self._title in found:
                return self._open(found[self._title])
        if self._searches > 1:
            return _finish(UNKNOWN)
        self._searches += 1
        relation = RELATIONS[self._relations[0]]
        query = self._title if self._searches == 1 else f"{self._title} {relation.label}"
        calls = [render_call(SEARCH, {"query": query})]
        if self._doubles:
            self._doubles = False
            calls.append(render_call(SEARCH, {"query": f"{relation.label} {self._title}"}))
        return "\n".join(calls)

    def _open(self, url: str) -> str:
        self._url, self._searches = url, 0
        # The words that the page itself uses, so that the passage with the fact is shown.
        relation = RELATIONS[self._relations[0]]
        words = " / ".join(words.replace("{}", "…") for words in relation.sentences)
        return render_call(BROWSE, {"url": url, "question": f"{relation.label}: {words}"})

    def _read(self, page: str) -> str:
        value = find_fact(page, self._relations.pop(0))
        self._url = None
        if value is None:
            return _finish(UNKNOWN)
        if not self._relations:
            return _finish(value if self.sample % 2 == 0 else WRONG)
        self._title = value
        links = {a or c: b or d for a, b, c, d in _LINK.findall(page)}
        return self._open(links[value]) if value in links else self._act([])


def _finish(answer: str) -> str:
    return render_call(FINISH, {"answer": answer})
