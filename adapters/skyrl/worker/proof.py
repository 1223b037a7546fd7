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


async def ask_engines(proof: SyncProof, client: Any, version: int) -> None:
    """Records each engine's logprobs of the same tokens, as prompt logprobs of one-token requests.

    The router would spread the rows over the engines, and one that missed its sync could hide among the others: so
    every engine is asked for itself, by SkyRL's own client pointed at it.
    """
    for url in client.server_urls:
        begin = time.monotonic_ns()
        direct = type(client)(
            proxy_url=url,
            server_urls=[url],
            data_parallel_size=1,
            model_name=client.model_name,
            tokenizer=client.tokenizer,
        )
        try:
            values = [value for row in proof.rows for value in await _prompt_logprobs(direct, row)]
        finally:
            await direct._get_generate_client().aclose()
        proof.record("engine", version, values, begin, engine=url)


async def _prompt_logprobs(client: Any, row: list[int]) -> list[float]:
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
    return [float(value) for value in answer["prompt_logprobs"][PROMPT_TOKENS:]]
