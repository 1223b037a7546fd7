"""The proof phase of weight sync: the logprobs of one fixed probe, from trainer and engine, for the first versions.

It runs around the syncs of the warm-up, outside the steady window: the trainer is asked before a sync (its weights are
on the GPU then, the engine's may sleep), the engine after it. How they are asked is each framework's own.
"""

import random
import time
from collections.abc import Sequence

from harness.protocol.events import Scalar
from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec

PROMPT_TOKENS = 8
SCORED_TOKENS = 48
ROWS = 4
LAST_VERSION = 2


class SyncProof:
    """What is probed, which versions, and how the answers are recorded."""

    def __init__(self, recorder: Recorder, spec: RunSpec, vocabulary: int) -> None:
        """Rows are fixed pseudo-random ids below `vocabulary`, the same for every framework and placement."""
        source = random.Random(f"probe-{spec.seed}")
        length = PROMPT_TOKENS + SCORED_TOKENS
        self.recorder = recorder
        self.rows = [[source.randrange(vocabulary) for _ in range(length)] for _ in range(ROWS)]
        # Version n is synced at the end of step n: only the warm-up's lie outside the window.
        self.last_version = min(LAST_VERSION, spec.warmup_steps)

    def wants(self, version: int) -> bool:
        """Whether that version belongs to the proof phase."""
        return 0 <= version <= self.last_version

    def record(
        self, source: str, version: int, values: Sequence[float], begin_ns: int, *, engine: str | None = None
    ) -> None:
        """Records the probe's logprobs (natural, of tokens PROMPT_TOKENS.. of each row, rows in order).

        Args:
            source: `trainer` or `engine`.
            engine: address of the engine that answered; each engine is asked for itself.
            begin_ns: when the asking began, monotonic; what it cost is recorded beside.
        """
        labels: dict[str, Scalar] = {
            "source": source,
            "version": version,
            "row_tokens": SCORED_TOKENS,
            "cost_s": (time.monotonic_ns() - begin_ns) / 1e9,
        }
        if engine is not None:
            labels["engine"] = engine
        self.recorder.metric("probe_logprobs", values=tuple(values), unit="nat", labels=labels)
