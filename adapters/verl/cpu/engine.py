"""A rollout engine on transformers: verl's replica, its server actor, and the adapter that hands it new weights.

It stands in for vLLM, whose CPU build for verl's pin needs a torch that has no CPU build. Requests are interleaved
token by token on the event loop; each keeps its own KV cache, and none is shared between requests.
"""

import asyncio
import os
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from adapters.verl.worker.process import run_spec

_IDLE_S = 0.001


class Server:
    """The engine itself, a Ray actor. Its weights arrive by sync; until then it has random ones."""

    def __init__(self, config: Any, model_path: str) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        shape = AutoConfig.from_pretrained(model_path)
        self.config = config
        self.model = AutoModelForCausalLM.from_config(shape, dtype=torch.float32).eval()
        self.eos = int(shape.eos_token_id)
        self.context = int(config.max_model_len)
        self.version: int | None = None
        self.running = 0
        self.aborts = 0
        self.admitted = asyncio.Event()  # cleared between abort and resume
        self.admitted.set()

    async def ready(self) -> bool:
        return True

    @torch.no_grad()
    def _scores(self, ids: list[int]) -> list[float]:
        """Logprob of each token but the first."""
        logits = self.model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
        picked = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])
        return [float(value) for value in picked[:, 0]]

    @torch.no_grad()
    def _next(self, ids: list[int], cache: Any, temperature: float) -> tuple[int, float, Any]:
        output = self.model(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        logprobs = torch.log_softmax(output.logits[0, -1].float() / max(temperature, 1e-6), -1)
        token = int(torch.multinomial(logprobs.exp(), 1))
        return token, float(logprobs[token]), output.past_key_values

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """As vLLMHttpServer.generate: token in, token out, `aborted` with what there is when a sync interrupts it."""
        await self.admitted.wait()
        aborts, version = self.aborts, self.version
        prompt_ids = list(prompt_ids)
        fields: dict[str, Any] = {"global_steps": version}
        if sampling_params.get("prompt_logprobs") is not None:
            fields["prompt_logprobs"] = [[value] for value in [*self._scores(prompt_ids), 0.0]]
        room = self.context - len(prompt_ids)
        if room < 1:
            raise ValueError(f"{len(prompt_ids)} prompt tokens leave no room in a context of {self.context}")
        wanted = max(1, min(int(sampling_params.get("max_tokens") or room), room))
        ends = set() if sampling_params.get("ignore_eos") else {self.eos, *sampling_params.get("stop_token_ids", ())}
        temperature = float(sampling_params.get("temperature", 1.0))
        ids: list[int] = []
        logprobs: list[float] = []
        feed, cache, reason = prompt_ids, None, "completed"
        self.running += 1
        try:
            while len(ids) < wanted:
                token, logprob, cache = self._next(feed, cache, temperature)
                ids.append(token)
                logprobs.append(logprob)
                if token in ends:
                    break
                feed = [token]
                await asyncio.sleep(0)
                if self.aborts != aborts and len(ids) < wanted:
                    reason = "aborted"
                    break
        finally:
            self.running -= 1
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason=reason, num_preempted=0, extra_fields=fields)

    async def load(self, weights: list[tuple[str, torch.Tensor]], global_steps: int | None) -> None:
        """Takes new weights (none when the sync is stubbed out) and the version they are."""
        state = self.model.state_dict()
        for name, tensor in weights:
            state[name].copy_(tensor)
        if global_steps is not None:
            self.version = int(global_steps)

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        self.admitted.clear()
        self.aborts += 1
        await self._drain()

    async def resume_generation(self) -> None:
        self.admitted.set()

    async def sleep(self) -> None:
        await self._drain()

    async def _drain(self) -> None:
        while self.running:
            await asyncio.sleep(_IDLE_S)

    async def nothing(self, *_: Any, **__: Any) -> None:
        """Memory that a GPU engine would free or take."""

    wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing


def _name(rank: int) -> str:
    return f"bench_transformers_{rank}"


class Replica(RolloutReplica):
    """One server."""

    async def launch_servers(self) -> None:
        server: Any = (
            ray.remote(Server)
            .options(name=_name(self.replica_rank), num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(self.config, self.model_config.path)
        )
        await server.ready.remote()
        self.servers, self._server_handle = [server], server
        self._server_address = _name(self.replica_rank)


class ServerAdapter(BaseRollout):
    """Lives in the training process (colocated) or in a CheckpointEngineWorker (separate), and talks to the server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        parallel = self.config.tensor_model_parallel_size
        rank = int(os.environ["RANK"])
        self.replica_rank = rank // parallel if replica_rank == -1 else replica_rank
        self.is_leader_rank = rank % parallel == 0
        self.syncs = 0

    @property
    def server(self) -> Any:
        """The server's handle."""
        return ray.get_actor(_name(self.replica_rank))

    async def resume(self, tags: list[str]) -> None:
        if self.is_leader_rank:
            await self.server.wake_up.remote(tags)

    async def release(self) -> None:
        if self.is_leader_rank:
            await self.server.sleep.remote()

    @torch.no_grad()
    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        named = []
        async for name, tensor in ensure_async_iterator(weights):  # collective: every rank walks all of it
            named.append((name, tensor.detach().to("cpu", torch.float32).contiguous()))
        # The control of the weight-sync proof: all but the first sync move nothing, and the proof must fail.
        if run_spec().fault("no-sync") is not None and self.syncs:
            named = []
        self.syncs += 1
        if self.is_leader_rank:
            await self.server.load.remote(named, global_steps)
