"""How SkyRL's trainer and engines are asked for the logprobs of the weight-sync probe."""

import time
from typing import Any

from adapters.child.proof import PROMPT_TOKENS, SCORED_TOKENS, SyncProof


def ask_trainer(proof: SyncProof, dispatch: Any, version: int, rows_multiple: int) -> None:
    """Records the policy's logprobs, by the same forward that recomputes logprobs for training."""
    import torch
    from skyrl.backends.skyrl_train.distributed.dispatch import loss_fn_outputs_to_tensor
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch

    begin = time.monotonic_ns()
    rows = list(proof.rows)
    while len(rows) % rows_multiple:
        rows.append(rows[0])  # each data-parallel rank takes an equal share
    sequences = torch.tensor(rows, dtype=torch.long)
    ones = torch.ones_like(sequences)
    batch = TrainingInputBatch(
        {"sequences": sequences, "attention_mask": ones, "response_mask": ones[:, PROMPT_TOKENS:]}
    )
    batch.metadata = {"response_length": SCORED_TOKENS}
    output = dispatch.forward("policy", batch)
    logprobs = loss_fn_outputs_to_tensor(output.loss_fn_outputs, key="logprobs")
    proof.record("trainer", version, logprobs[: len(proof.rows)].flatten().tolist(), begin)


async def ask_engine(proof: SyncProof, client: Any, version: int) -> None:
    """Records the engine's logprobs of the same tokens, as prompt logprobs of one-token requests."""
    begin = time.monotonic_ns()
    values: list[float] = []
    for row in proof.rows:
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
        values.extend(float(value) for value in answer["prompt_logprobs"][PROMPT_TOKENS:])
    proof.record("engine", version, values, begin)
