"""The shared episode behind SkyRL's GeneratorInterface."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from skyrl.train.generators.base import GeneratorInterface

from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec
from workloads.deep_research.boundary import EpisodeResult, Generated, Sampling
from workloads.deep_research.work import Work, run_folder


class BenchGenerator(GeneratorInterface):
    """Runs the plan of each (prompt, sample) as one trajectory; SkyRL decides when, on which engine, at what load."""

    def __init__(self, spec: RunSpec, client: Any, codec: Any, recorder: Recorder) -> None:
        """`client` is SkyRL's inference client, `codec` renders prompts and observations to ids."""
        self.spec = spec
        self.client = client
        self.codec = codec
        self.recorder = recorder
        self.results: dict[str, EpisodeResult] = {}  # until a step has trained on them
        self.work = Work(spec, codec=codec, recorder=recorder, folder=run_folder())
        self.model: str | None = None
        self._attempts: Counter[tuple[int, int]] = Counter()
        self._engine = client.server_urls[0] if len(client.server_urls) == 1 else None
        self.on_batch: Callable[[bool], None] = lambda is_open: None

    async def generate(self, input_batch: Any, disable_tqdm: bool = True) -> Any:
        """One GeneratorOutput row per trajectory, in the order of the input."""
        self.on_batch(True)
        try:
            results = await asyncio.gather(
                *(
                    self._trajectory(int(tid.instance_id), tid.repetition_id, input_batch["sampling_params"])
                    for tid in input_batch["trajectory_ids"]
                )
            )
        finally:
            self.on_batch(False)
        rows = [_row(result, self.codec.pad_id) for result in results]
        return {
            "prompt_token_ids": [row[0] for row in rows],
            "response_ids": [row[1] for row in rows],
            "loss_masks": [row[2] for row in rows],
            "rollout_logprobs": [row[3] for row in rows],
            "rewards": [result.reward if result.reward is not None else 0.0 for result in results],
            "stop_reasons": ["stop" if result.status == "ok" else "error" for result in results],
            "rollout_metrics": {},
            "trajectory_ids": list(input_batch["trajectory_ids"]),
            "trajectory_generation_times": None,
            "trajectory_time_splits": None,
            "rollout_expert_indices": None,
            "rollout_sample_support": None,
            "bench_ids": [result.trajectory_id for result in results],
        }

    async def _trajectory(self, prompt: int, sample: int, sampling_params: dict[str, Any]) -> EpisodeResult:
        attempt = self._attempts[prompt, sample]
        self._attempts[prompt, sample] += 1

        async def generate(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
            return await self._turn(trajectory_id, ids, sampling, sampling_params)

        result = await self.work.trajectory(
            prompt=prompt,
            sample=sample,
            attempt=attempt,
            generate=generate,
            score=self._score,
            version_scheduled=self.version,
        )
        self.results[result.trajectory_id] = result
        return result

    @property
    def version(self) -> int:
        """The policy version that the engines answer with: SkyRL counts the initial sync, we count from 0."""
        return max(0, int(self.client.weight_version) - 1)

    async def _turn(
        self, trajectory_id: str, ids: list[int], sampling: Sampling, sampling_params: dict[str, Any]
    ) -> Generated:
        version = self.version
        output = await self.client.generate(
            {
                "prompt_token_ids": [ids],
                "session_ids": [trajectory_id],
                "sampling_params": {
                    **sampling_params,
                    "max_tokens": sampling.max_tokens,
                    "min_tokens": sampling.min_tokens,
                    "ignore_eos": sampling.ignore_eos,
                    "temperature": sampling.temperature,
                    "top_p": sampling.top_p,
                    "top_k": sampling.top_k,
                    **({"stop_token_ids": list(sampling.stop_ids)} if sampling.stop_ids else {}),
                },
            },
            model=self.model,
        )
        logprobs = output["response_logprobs"]
        return Generated(
            ids=list(output["response_ids"][0]),
            logprobs=[float(value) for value in (logprobs[0] if logprobs and logprobs[0] else [])],
            version_start=version,
            version_end=self.version,
            engine=self._engine,
            stop_reason=output["stop_reasons"][0],
        )

    async def _score(self, trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
        """The engine's logprobs of a given reply: prompt logprobs of a one-token request, all under one version."""
        request = {
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [*ids, *reply]}]},
            "num_samples": 1,
            "sampling_params": {"max_tokens": 1, "temperature": 1.0},
            "include_prompt_logprobs": True,
            "session_id": trajectory_id,
        }
        while True:
            version = self.version
            answer = await self.client.sample({"json": request})
            if version == self.version:
                break
        return Generated(
            ids=reply,
            logprobs=[float(value) for value in answer["prompt_logprobs"][len(ids) :]],
            version_start=version,
            version_end=version,
            engine=self._engine,
        )


def _row(result: EpisodeResult, pad_id: int) -> tuple[list[int], list[int], list[int], list[float]]:
    """Ids, mask and logprobs as SkyRL wants them; a trajectory that failed trains on nothing but keeps its place."""
    if not result.response_ids:
        return result.prompt_ids or [pad_id], [pad_id], [0], [0.0]
    mask = result.loss_mask if result.status == "ok" else [0] * len(result.response_ids)
    return result.prompt_ids, result.response_ids, mask, result.logprobs
