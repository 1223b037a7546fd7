"""How verl's trainer and engines are asked for the logprobs of the weight-sync probe."""

import time
from collections.abc import Mapping
from typing import Any

from adapters.child.proof import PROMPT_TOKENS, SyncProof
from adapters.child.track import require


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


def ask_engines(proof: SyncProof, servers: Mapping[str, Any], version: int) -> None:
    """Records each engine's logprobs of the same tokens, as prompt logprobs of one-token requests.

    Args:
        servers: address -> the server's actor, of every replica; each is asked for itself, past verl's load balancer.
            vllm's and sglang's servers take the same request, and answer in vllm's shape.
    """
    import ray

    begin = time.monotonic_ns()
    asked = {
        address: [
            server.generate.remote(
                request_id=f"probe-{version}-{number}",
                prompt_ids=row,
                sampling_params={"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0},
            )
            for number, row in enumerate(proof.rows)
        ]
        for address, server in servers.items()
    }
    for address, pending in asked.items():
        # verl's list begins with the second token.
        values = [
            float(value[0])
            for answer, row in zip(ray.get(pending), proof.rows, strict=True)
            for value in answer.extra_fields["prompt_logprobs"][PROMPT_TOKENS - 1 : len(row) - 1]
        ]
        proof.record("engine", version, values, begin, engine=address)


def servers_of(manager: Any) -> dict[str, Any]:
    """Address -> server actor, of every replica of verl's server manager.

    Raises:
        TapError: the manager lost one of the two lists.
        ValueError: they are not of one length.
    """
    addresses: Any = require(manager, "server_addresses")
    handles: Any = require(manager, "server_handles")
    return dict(zip(addresses, handles, strict=True))
