"""Engines that wait instead of computing: their speed depends on tokens and load, their weights on the last sync."""

import asyncio
import random
import zlib
from dataclasses import dataclass, field

from adapters.simulated.weights import VOCABULARY, engine_logprobs
from workloads.deep_research.boundary import Generated, Sampling

# A turn's duration: a fixed part, then tokens at a rate that falls as more sequences run together.
TURN_S = 0.002
TOKEN_S = 0.000_25
TOKEN_S_PER_RUNNING = 0.000_02
NOISE_SIGMA = 0.2
# A turn is cut into this many pieces; a paused engine stops between two of them, its sequences kept.
PIECES = 4


@dataclass(kw_only=True)
class Engine:
    """One replica. `version` is what it says it serves, `theta` the weights it really has."""

    address: str
    seed: int
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
            await asyncio.sleep(TURN_S + self.slow_s)
            for piece in range(PIECES):
                await self._resumed.wait()
                tokens = ids[piece * count // PIECES : (piece + 1) * count // PIECES]
                if not tokens:
                    continue
                version_end = self.version
                version_start = version_end if version_start is None else version_start
                position = len(prompt_ids) + len(logprobs)
                logprobs += engine_logprobs(self.theta, tokens, position, dice)
                await asyncio.sleep(len(tokens) * factor * (TOKEN_S + TOKEN_S_PER_RUNNING * self.running))
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
        engine = self.engines[zlib.crc32(trajectory_id.encode()) % len(self.engines)]
        return await engine.generate(trajectory_id, prompt_ids, sampling)

    @property
    def version(self) -> int:
        """The version served: that of the engine furthest behind."""
        return min(engine.version for engine in self.engines)


class Codec:
    """A tokenizer without text: ids that depend on it, in exactly the length asked for."""

    pad_id = 0

    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        """`tokens` ids that are the question's own."""
        return _ids(question, tokens)

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        """`tokens` ids that are the text's own."""
        return _ids(text, tokens)


def _ids(text: str, tokens: int) -> list[int]:
    return random.Random(text).choices(range(VOCABULARY), k=tokens)
