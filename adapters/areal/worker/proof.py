"""How AReaL's trainer and engines are asked for the logprobs of the weight-sync probe."""

import json
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from adapters.child.proof import PROMPT_TOKENS, SyncProof

TIMEOUT_S = 600.0


def ask_trainer(proof: SyncProof, actor: Any, version: int, rows_multiple: int) -> None:
    """Records the policy's logprobs, by the same forward that recomputes logprobs for training."""
    import torch
    from areal.infra.rpc.rtensor import RTensor

    begin = time.monotonic_ns()
    rows = list(proof.rows)
    while len(rows) % rows_multiple:
        rows.append(rows[0])  # each training worker takes an equal share
    batch = []
    for row in rows:
        ids = torch.tensor([row], dtype=torch.int32)
        batch.append({"input_ids": ids, "attention_mask": torch.ones_like(ids, dtype=torch.bool)})
    answer = RTensor.localize(actor.compute_logp(batch))
    values: list[float] = []
    for row, logprobs in zip(proof.rows, answer, strict=False):
        # At position t stands the log-probability of token t + 1; the last position has no next token.
        values.extend(logprobs[0, PROMPT_TOKENS - 1 : len(row) - 1].tolist())
    proof.record("trainer", version, values, begin)


def ask_engines(proof: SyncProof, engine: str, addresses: Sequence[str], version: int) -> None:
    """Records each engine's logprobs of the same tokens, as prompt logprobs of one-token requests.

    Args:
        engine: `vllm` or `sglang`: each has its own protocol.
        addresses: host:port of every server; each is asked for itself.

    Raises:
        OSError: an engine does not answer.
    """
    for address in addresses:
        begin = time.monotonic_ns()
        values = []
        for row in proof.rows:
            found = prompt_logprobs(engine, address, row)
            if found is None:
                raise OSError(f"{address} aborted the probe of version {version}")
            values += found[PROMPT_TOKENS:]
        proof.record("engine", version, values, begin, engine=address)


def prompt_logprobs(engine: str, address: str, row: list[int]) -> list[float] | None:
    """An engine's logprobs of given ids, 0.0 for the first; None: a sync aborted the request.

    Args:
        engine: `vllm` or `sglang`: each has its own protocol.

    Raises:
        OSError: it does not answer.
    """
    return _vllm(address, row) if engine == "vllm" else _sglang(address, row)


def _vllm(address: str, row: list[int]) -> list[float] | None:
    body = {"prompt": row, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
    choice = _post(f"http://{address}/v1/completions", body)["choices"][0]
    found = choice.get("prompt_logprobs")
    if found is None or (choice.get("finish_reason") == "abort" and len(found) != len(row)):
        return None
    # The first token has no logprob.
    return [0.0, *(float(at[str(token)]["logprob"]) for token, at in zip(row[1:], found[1:], strict=True))]


def _sglang(address: str, row: list[int]) -> list[float] | None:
    body = {
        "input_ids": row,
        "sampling_params": {"max_new_tokens": 1, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    found = _post(f"http://{address}/generate", body)["meta_info"].get("input_token_logprobs")
    if found is None or len(found) != len(row):
        return None
    return [0.0, *(float(at[0]) for at in found[1:])]


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
        return json.load(reply)
