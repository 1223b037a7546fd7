"""The proof phase of weight sync: the logprobs of one fixed probe, from trainer and engine, for the first versions.

It runs around the syncs of the warm-up, outside the steady window: the trainer is asked before a sync (its weights are
on the GPU then, the engine's may sleep), the engine after it.
"""

import random
import time
from typing import Any

from harness.protocol.recorder import Recorder

PROBE_PROMPT_TOKENS = 8
PROBE_TOKENS = 48
PROBE_ROWS = 4


def probe_rows(vocabulary: int, seed: int) -> list[list[int]]:
    """Fixed pseudo-random token ids, one list a row."""
    source = random.Random(f"probe-{seed}")
    length = PROBE_PROMPT_TOKENS + PROBE_TOKENS
    return [[source.randrange(vocabulary) for _ in range(length)] for _ in range(PROBE_ROWS)]


class SyncProof:
    """Asks trainer and engine for the probe's logprobs and records them."""

    def __init__(self, recorder: Recorder, rows: list[list[int]], versions: int) -> None:
        """Versions 0 to `versions` are probed; those after it are left alone."""
        self.recorder = recorder
        self.rows = rows
        self.last_version = versions

    def wants(self, version: int) -> bool:
        """Whether that version belongs to the proof phase."""
        return 0 <= version <= self.last_version

    def ask_trainer(self, dispatch: Any, version: int, rows_multiple: int) -> None:
        """Records the policy's logprobs of the probe, by the same forward that recomputes logprobs for training."""
        import torch
        from skyrl.backends.skyrl_train.distributed.dispatch import loss_fn_outputs_to_tensor
        from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch

        rows = list(self.rows)
        while len(rows) % rows_multiple:
            rows.append(rows[0])  # each data-parallel rank takes an equal share
        sequences = torch.tensor(rows, dtype=torch.long)
        ones = torch.ones_like(sequences)
        batch = TrainingInputBatch(
            {
                "sequences": sequences,
                "attention_mask": ones,
                "response_mask": ones[:, PROBE_PROMPT_TOKENS:],
            }
        )
        batch.metadata = {"response_length": PROBE_TOKENS}
        begin = time.monotonic_ns()
        output = dispatch.forward("policy", batch)
        logprobs = loss_fn_outputs_to_tensor(output.loss_fn_outputs, key="logprobs")
        self._record("trainer", version, logprobs[: len(self.rows)].flatten().tolist(), begin)

    async def ask_engine(self, client: Any, version: int) -> None:
        """Records the engine's logprobs of the same tokens, as prompt logprobs of a one-token request."""
        begin = time.monotonic_ns()
        values: list[float] = []
        for row in self.rows:
            answer = await client.sample(
                {
                    "json": {
                        "prompt": {"chunks": [{"type": "encoded_text", "tokens": row}]},
                        "num_samples": 1,
                        "sampling_params": {"max_tokens": 1, "temperature": 1.0},
                        "include_prompt_logprobs": True,
                    }
                }
            )
            values.extend(float(value) for value in answer["prompt_logprobs"][PROBE_PROMPT_TOKENS:])
        self._record("engine", version, values, begin)

    def _record(self, source: str, version: int, values: list[float], begin_ns: int) -> None:
        cost_s = (time.monotonic_ns() - begin_ns) / 1e9
        self.recorder.metric(
            "probe_logprobs",
            values=tuple(values),
            unit="nat",
            labels={"source": source, "version": version, "cost_s": cost_s},
        )
