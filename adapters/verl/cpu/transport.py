"""Weights between separate pools on CPU: a checkpoint engine of verl that broadcasts over gloo.

verl's own engines move GPU memory (nccl, nixl, ...) or stay inside one process (naive).
"""

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

TIMEOUT = timedelta(seconds=300)


@CheckpointEngineRegistry.register("bench_gloo")
class GlooCheckpointEngine(CheckpointEngine):
    """Actor rank 0 broadcasts to all rollout workers over a group made for each sync, as verl's NCCL engine does."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self.is_master = is_master
        self.rank = -1
        self.group: Any = None
        self.store: Any = None

    def prepare(self) -> dict[str, Any] | None:
        if not self.is_master:
            return None
        self.store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return {"host": "127.0.0.1", "port": self.store.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        size = rollout_world_size + 1
        actor = {
            "rank": [0] + [-1] * (actor_wg_world_size - 1),
            "world_size": [size] * actor_wg_world_size,
            "master": [metadata[0]] * actor_wg_world_size,
        }
        rollout = {
            "rank": list(range(1, size)),
            "world_size": [size] * rollout_world_size,
            "master": [metadata[0]] * rollout_world_size,
        }
        return actor, rollout

    def init_process_group(self, rank: int, world_size: int, master: dict[str, Any]) -> None:
        self.rank = rank
        if rank < 0:
            return
        if self.store is None:
            self.store = torch.distributed.TCPStore(master["host"], master["port"], is_master=False)
        self.group = torch.distributed.ProcessGroupGloo(self.store, rank, world_size, TIMEOUT)

    def finalize(self) -> None:
        self.group = self.store = None

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, Any]:
        named = []
        for name, tensor in weights:  # collective: every training rank walks all of it
            if self.rank == 0:
                named.append((name, tensor.detach().cpu().contiguous()))
        if self.rank != 0:
            return {}
        self.store.set("names", pickle.dumps([(name, tensor.shape, tensor.dtype) for name, tensor in named]))
        await asyncio.to_thread(lambda: [self.group.broadcast(tensor, 0).wait() for _, tensor in named])
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for name, shape, dtype in pickle.loads(await asyncio.to_thread(self.store.get, "names")):
            tensor = torch.empty(shape, dtype=dtype)
            await asyncio.to_thread(self._receive, tensor)
            yield name, tensor

    def _receive(self, tensor: torch.Tensor) -> None:
        self.group.broadcast(tensor, 0).wait()
