"""The shared episode behind AReaL's RolloutWorkflow; runs in the rollout workers."""

import asyncio
import itertools
from collections import Counter
from functools import lru_cache
from typing import Any

import torch
from areal.api import ModelRequest, RolloutWorkflow
from areal.api.cli_args import GenerationHyperparameters

from adapters.areal.worker.proof import prompt_logprobs
from adapters.areal.worker.rpc import process_recorder
from adapters.areal.worker.shared import ID_KEY, TOKENS_KEY, pack_id, spec_of_environment
from adapters.child.codec import ChatCodec
from workloads.deep_research.boundary import EpisodeResult, Generated, Sampling
from workloads.deep_research.work import Work, run_folder

PAUSED_S = 0.5  # between two looks whether a sync is over, as in AReaL's own requests


class _Process:
    """What all workflows of one rollout worker share: AReaL makes a workflow anew for each group."""

    def __init__(self, model: str) -> None:
        from transformers import AutoTokenizer

        self.spec = spec_of_environment()
        self.codec = ChatCodec(AutoTokenizer.from_pretrained(model))
        self.work = Work(self.spec, codec=self.codec, recorder=process_recorder("rollout"), folder=run_folder())
        self.attempts: Counter[tuple[int, int]] = Counter()


@lru_cache(maxsize=1)
def _process(model: str) -> _Process:
    return _Process(model)


class BenchWorkflow(RolloutWorkflow):
    """One group: AReaL calls `arun_episode` once per sample, and joins what comes back."""

    def __init__(self, model: str) -> None:
        """`model` is the path of the tokenizer."""
        self.shared = _process(model)
        self._samples = itertools.count()

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any]:
        """Runs the plan of (prompt, next sample); never None and never an error: AReaL would drop it and draw anew."""
        shared = self.shared
        prompt, sample = int(data["prompt"]), next(self._samples)
        attempt = shared.attempts[prompt, sample]
        shared.attempts[prompt, sample] += 1

        async def generate(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
            return await _turn(engine, shared.spec.context_tokens, trajectory_id, ids, sampling)

        async def score(trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
            return await _score(engine, shared.spec.engine, trajectory_id, ids, reply)

        result = await shared.work.trajectory(
            prompt=prompt,
            sample=sample,
            attempt=attempt,
            generate=generate,
            score=score,
            version_scheduled=int(engine.get_version()),
        )
        return as_tensors(result, pack_id(prompt, sample, attempt), shared.codec.pad_id)


async def _turn(engine: Any, context: int, trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
    reply = await engine.agenerate(
        ModelRequest(
            rid=trajectory_id,  # all turns of a trajectory go to one server
            input_ids=list(ids),
            gconfig=GenerationHyperparameters(
                n_samples=1,
                max_new_tokens=sampling.max_tokens,
                max_tokens=context,
                ignore_eos=sampling.ignore_eos,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                **({"stop_token_ids": list(sampling.stop_ids)} if sampling.stop_ids else {}),
            ),
        )
    )
    mine = [int(version) for version in reply.output_versions]
    return Generated(
        ids=list(reply.output_tokens),
        logprobs=[float(value) for value in reply.output_logprobs],
        version_start=mine[0] if mine else None,
        version_end=mine[-1] if mine else None,
        engine=engine.rid_to_address.get(trajectory_id),
        stop_reason=reply.stop_reason,
        versions=mine,  # a sync may change it in the middle of a turn
    )


async def _score(engine: Any, kind: str, trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
    """The engine's logprobs of a given reply: prompt logprobs of a one-token request, all under one version.

    As with a turn, a request waits while AReaL's executor is paused, and one that a sync aborted is sent again.
    """
    address = engine.rid_to_address.get(trajectory_id)
    if address is None:
        address = engine.rid_to_address[trajectory_id] = engine.choose_server()
        engine.rid_queue.append(trajectory_id)
    while True:
        while engine.workflow_executor.is_paused():
            await asyncio.sleep(PAUSED_S)
        version = int(engine.get_version())
        values = await asyncio.to_thread(prompt_logprobs, kind, address, [*ids, *reply])
        if values is not None and version == int(engine.get_version()):
            break
    return Generated(
        ids=reply,
        logprobs=values[len(ids) :],
        version_start=version,
        version_end=version,
        engine=address,
        versions=[version] * len(reply),
    )


def as_tensors(result: EpisodeResult, packed_id: int, pad_id: int) -> dict[str, Any]:
    """A trajectory as AReaL wants it, batch dimension 1; one that failed trains on nothing but keeps its place.

    Versions are -1 on what is not trained, as on what no policy wrote.
    """
    prompt = result.prompt_ids or [pad_id]
    ids = [*prompt, *(result.response_ids or [pad_id])]
    count = len(ids) - len(prompt)
    kept = bool(result.response_ids) and result.status == "ok"
    mask = [*([0] * len(prompt)), *(result.loss_mask if kept else [0] * count)]
    logprobs = [*([0.0] * len(prompt)), *(result.logprobs or [0.0] * count)]
    trained = zip(mask[len(prompt) :], result.versions or [None] * count, strict=True)
    by_token = [
        *([-1] * len(prompt)),
        *(version if written and version is not None else -1 for written, version in trained),
    ]
    return {
        "input_ids": torch.tensor([ids], dtype=torch.int32),
        "attention_mask": torch.ones((1, len(ids)), dtype=torch.bool),
        "loss_mask": torch.tensor([mask], dtype=torch.int32),
        "logprobs": torch.tensor([logprobs], dtype=torch.float32),
        "versions": torch.tensor([by_token], dtype=torch.int32),
        "rewards": torch.tensor([result.reward if result.reward is not None else 0.0], dtype=torch.float32),
        ID_KEY: torch.tensor([packed_id], dtype=torch.int64),
        TOKENS_KEY: torch.tensor([len(ids)], dtype=torch.int64),
    }
