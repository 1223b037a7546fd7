"""Engines that wait instead of computing: their speed depends on tokens and load, their weights on the last sync."""

import asyncio
import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapters.simulated.pace import SMALL, Pace
from adapters.simulated.weights import VOCABULARY, engine_logprobs
from workloads.deep_research.boundary import Generated, Sampling

# A turn's duration: a fixed part, then tokens at a rate that falls as more sequences run together (see `pace`).
NOISE_SIGMA = 0.2
# A turn is cut into this many pieces; a paused engine stops between two of them, its sequences kept.
PIECES = 4


@dataclass(kw_only=True)
class Engine:
    """One replica. `version` is what it says it serves, `theta` the weights it really has."""

    address: str
    seed: int
    pace: Pace = SMALL
    slow_s: float = 0.0
    version: int = 0
    theta: float = 0.0
    running: int = 0
    _resumed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._resumed.set()

    async def generate(self, trajectory_id: str, prompt_ids: list[int], sampling: Sampling) -> Generated:
        """`max_tokens` tokens after `prompt_ids`; a pause holds it, and what follows is of the new version."""
        dice = random.Random(f"{self.seed}:{trajectory_id}:{len(prompt_ids)}")
        count = sampling.max_tokens
        ids = dice.choices(range(VOCABULARY), k=count)
        factor = dice.lognormvariate(0.0, NOISE_SIGMA)
        logprobs: list[float] = []
        version_start: int | None = None
        version_end = self.version
        self.running += 1
        try:
            await asyncio.sleep(self.pace.turn_s + self.slow_s)
            for piece in range(PIECES):
                await self._resumed.wait()
                tokens = ids[piece * count // PIECES : (piece + 1) * count // PIECES]
                if not tokens:
                    continue
                version_end = self.version
                version_start = version_end if version_start is None else version_start
                position = len(prompt_ids) + len(logprobs)
                logprobs += engine_logprobs(self.theta, tokens, position, dice)
                token_s = self.pace.token_s + self.pace.token_per_running_s * self.running
                await asyncio.sleep(len(tokens) * factor * token_s)
        finally:
            self.running -= 1
        return Generated(
            ids=ids,
            logprobs=logprobs,
            version_start=version_start,
            version_end=version_end,
            engine=self.address,
            stop_reason="length",
        )

    async def score(self, trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
        """The logprobs of a given reply after `ids`, under the weights at one moment; takes a prefill's time."""
        self.running += 1
        try:
            await asyncio.sleep(self.pace.turn_s + self.slow_s)
            await self._resumed.wait()
            version = self.version
            dice = random.Random(f"{self.seed}:{trajectory_id}:{len(ids)}")
            return Generated(
                ids=reply,
                logprobs=engine_logprobs(self.theta, reply, len(ids), dice),
                version_start=version,
                version_end=version,
                engine=self.address,
            )
        finally:
            self.running -= 1

    def probe(self, tokens: list[int]) -> list[float]:
        """Log-probabilities of a fixed text under the weights this engine has."""
        return engine_logprobs(self.theta, tokens, 0, random.Random(f"{self.seed}:{self.address}:{self.version}"))

    def pause(self) -> None:
        """Stops between two pieces of every turn."""
        self._resumed.clear()

    def resume(self, version: int, theta: float | None) -> None:
        """Goes on as `version`, with new weights unless `theta` is None."""
        self.version = version
        if theta is not None:
            self.theta = theta
        self._resumed.set()


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The engines of a run. A trajectory stays with one, as session routing keeps its cache warm."""

    engines: tuple[Engine, ...]

    async def generate(self, trajectory_id: str, prompt_ids: list[int], sampling: Sampling) -> Generated:
        """The reply of the trajectory's engine."""
        return await self._engine_of(trajectory_id).generate(trajectory_id, prompt_ids, sampling)

    async def score(self, trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
        """The logprobs of a given reply, by the trajectory's engine."""
        return await self._engine_of(trajectory_id).score(trajectory_id, ids, reply)

    def _engine_of(self, trajectory_id: str) -> Engine:
        return self.engines[zlib.crc32(trajectory_id.encode()) % len(self.engines)]

    @property
    def version(self) -> int:
        """The version served: that of the engine furthest behind."""
        return min(engine.version for engine in self.engines)


_CHUNK_BYTES = 3  # of UTF-8 in one id: about what trained tokenizers make of English
_CHUNK_BASE = VOCABULARY  # ids below are the fixed load's and the marks'
_MARKS = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
          "<think>", "</think>")  # fmt: skip
_MARK = re.compile("|".join(re.escape(mark) for mark in _MARKS))
_MARK_IDS = {mark: 1 + number for number, mark in enumerate(_MARKS)}


class Codec:
    """A tokenizer without a vocabulary.

    In a fixed load ids depend on the text, in exactly the length asked for. In a live load an id is three bytes of the
    text, or one of the chat's marks, so that it can be read back.
    """

    pad_id = 0
    end_id = _MARK_IDS["<|im_end|>"]
    thought_opening: tuple[int, ...] = ()

    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        """`tokens` ids that are the question's own."""
        return _ids(question, tokens)

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        """`tokens` ids that are the text's own."""
        return _ids(text, tokens)

    def chat_ids(self, system: str, user: str) -> list[int]:
        """A conversation's beginning, up to where the assistant begins."""
        return self.encode(
            f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        )

    def answer_ids(self, contents: Sequence[Sequence[int]], *, closed: bool) -> list[int]:
        """Tool answers and the head of the next turn; `closed`: the reply ended with `end_id`."""
        ids = self.encode("\n<|im_start|>user" if closed else "<|im_end|>\n<|im_start|>user")
        for content in contents:
            ids += [*self.encode("\n<tool_response>\n"), *content, *self.encode("\n</tool_response>")]
        return ids + self.encode("<|im_end|>\n<|im_start|>assistant\n")

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; those of a fixed load have none."""
        parts: list[bytes] = []
        for token in ids:
            if token >= _CHUNK_BASE:
                size, value = divmod(token - _CHUNK_BASE, 1 << 8 * _CHUNK_BYTES)
                parts.append(value.to_bytes(size, "big"))
            elif 1 <= token <= len(_MARKS):
                parts.append(_MARKS[token - 1].encode())
        return b"".join(parts).decode("utf-8", "replace")

    def encode(self, text: str) -> list[int]:
        """The ids of a text; the chat's marks in it become their own."""
        ids: list[int] = []
        place = 0
        for mark in _MARK.finditer(text):
            ids += _chunks(text[place : mark.start()])
            ids.append(_MARK_IDS[mark.group()])
            place = mark.end()
        return ids + _chunks(text[place:])


def _chunks(text: str) -> list[int]:
    data = text.encode("utf-8", "replace")
    pieces = (data[place : place + _CHUNK_BYTES] for place in range(0, len(data), _CHUNK_BYTES))
    return [_CHUNK_BASE + (len(piece) << 8 * _CHUNK_BYTES) + int.from_bytes(piece, "big") for piece in pieces]


def _ids(text: str, tokens: int) -> list[int]:
    return random.Random(text).choices(range(VOCABULARY), k=tokens)
