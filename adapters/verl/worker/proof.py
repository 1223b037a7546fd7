"""How verl's trainer and engines are asked for the logprobs of the weight-sync probe."""

import time
from typing import Any

from adapters.child.proof import PROMPT_TOKENS, SyncProof


def ask_trainer(proof: SyncProof, workers: Any, version: int, rows_multiple: int, pad_id: int) -> None:
    """Records the policy's logprobs, by the same call that recomputes logprobs for training."""
    import torch
    from verl.utils import tensordict_utils as tu

    begin = time.monotonic_ns()
    rows = [torch.tensor(row, dtype=torch.int64) for row in proof.rows]
    while len(rows) % rows_multiple:
        rows.append(rows[0])  # each data-parallel rank takes an equal share
    count, length = len(rows), len(rows[0])

    def nested(parts: list[Any]) -> Any:
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)

    scored = length - PROMPT_TOKENS
    batch = tu.get_tensordict(
        {
            "input_ids": nested(rows),
            "position_ids": nested([torch.arange(length)] * count),
            "prompts": nested([row[:PROMPT_TOKENS] for row in rows]),
            "responses": nested([row[PROMPT_TOKENS:] for row in rows]),
            "response_mask": nested([torch.ones(scored, dtype=torch.int64)] * count),
            "loss_mask": nested([torch.ones(scored, dtype=torch.int64)] * count),
        },
        {"calculate_entropy": False, "compute_loss": False, "temperature": 1.0, "pad_token_id": pad_id},
    )
    output: Any = workers.compute_log_prob(batch)
    output = output.get() if hasattr(output, "get") and not hasattr(output, "batch_size") else output
    # The model's output at a position scores the next token.
    logprobs = output["log_probs"].unbind()
    values = [float(value) for row in logprobs[: len(proof.rows)] for value in row[PROMPT_TOKENS - 1 : length - 1]]
    proof.record("trainer", version, values, begin)


def ask_engine(proof: SyncProof, server: Any, version: int) -> None:
    """Records the engine's logprobs of the same tokens, as prompt logprobs of one-token requests."""
    import ray

    begin = time.monotonic_ns()
    answers = ray.get(
        [
            server.generate.remote(
                request_id=f"probe-{version}-{number}",
                prompt_ids=row,
                sampling_params={"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0},
            )
            for number, row in enumerate(proof.rows)
        ]
    )
    # verl's list begins with the second token.
    values = [
        float(value[0])
        for answer, row in zip(answers, proof.rows, strict=True)
        for value in answer.extra_fields["prompt_logprobs"][PROMPT_TOKENS - 1 : len(row) - 1]
    ]
    proof.record("engine", version, values, begin)
