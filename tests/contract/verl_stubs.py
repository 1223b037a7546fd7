"""Stand-ins for the modules of verl that are patched, and what a recording trainer holds beside them."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from contract_specs import make_spec

from adapters.child.steps import StepLog
from adapters.child.track import Track
from adapters.verl.phases import phases_for
from adapters.verl.worker.admission import Admission
from adapters.verl.worker.trainer import Bench
from harness.protocol.events import read_events
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Placement

TIMERS = ("step", "gen", "old_log_prob", "adv", "update_actor", "update_weights")


def found(recorder: Recorder, kind: type[Any]) -> list[Any]:
    return [event for event in read_events(recorder.path) if isinstance(event, kind)]


def bench_of(recorder: Recorder, placement: Placement) -> Bench:
    spec = replace(make_spec("verl", placement), steps=1, warmup_steps=0)
    pool = "both" if placement is Placement.COLOCATED else "train"
    track = Track(recorder, pool, phases_for(placement), lambda: bench.step)
    bench = Bench(spec=spec, recorder=recorder, track=track, log=StepLog(recorder), admission=Admission(recorder, spec))
    return bench


@contextmanager
def marked_timer(name: str, timing: dict[str, float], color: str | None = None) -> Iterator[None]:
    yield
    timing[name] = 1.0


class StubBuffer:
    """As verl's replay buffer, in small: a batch is what was submitted."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.evict: list[str] = []

    def _clear_groups(self, partition_id: str, uids: list[str]) -> None:
        self.submitted = [uid for uid in self.submitted if uid not in uids]

    def sample(self, global_steps: int) -> tuple[Any, dict[str, float]]:
        if self.evict:
            self._clear_groups("train", self.evict)
        keys = [f"{uid}_{session}_0" for uid in self.submitted for session in range(2)]
        version = global_steps - 1
        tags = [{"seq_len": 10, "min_global_steps": version, "max_global_steps": version} for _ in keys]
        return types.SimpleNamespace(keys=[*keys, "padding"], tags=[*tags, {"is_padding": True, "seq_len": 1}]), {}


def stub_verl() -> list[Any]:
    """Stand-ins for trainer_base, trainer_sync and trainer_separate_async."""
    base, sync, separate = (types.ModuleType(name) for name in ("trainer_base", "trainer_sync", "separate_async"))
    modules: list[Any] = [base, sync, separate]
    for module in modules:
        module.marked_timer = marked_timer
    base_: Any = base
    base_.tq = types.SimpleNamespace(kv_clear=lambda keys: None)
    base_.calculate_debug_metrics = lambda data: {"compared": 1.0}

    class Tracking:
        def log(self, data: dict[str, Any], step: int) -> None:
            self.logged = (data, step)

    class Trainer:
        def __init__(self, config: Any) -> None:
            self.replay_buffer = StubBuffer()
            self.global_steps = 0

        def _setup(self) -> None: ...

        def on_init_end(self) -> None: ...

        def on_step_begin(self) -> None: ...

        def prepare_step(self) -> dict[str, float]:
            return {}

        def _submit_batch_to_rollout(self, batch: Any) -> int:
            self.replay_buffer.submitted += list(batch["uid"])
            return len(batch)

        def _balance_batch(self, batch: Any) -> Any:
            return batch

        def _compute_metrics(self) -> None: ...

        def fit(self, agent_loop_manager: Any) -> None:
            """One step as verl makes it, of the manager's batch."""
            batch, data = agent_loop_manager.batch, agent_loop_manager.data
            timing: dict[str, float] = {}
            self.on_init_end()
            self.global_steps = 1
            with base_.marked_timer("step", timing):
                self.on_step_begin()
                self.prepare_step()
                self._submit_batch_to_rollout(batch)
                with base_.marked_timer("gen", timing):
                    sampled, _ = self.replay_buffer.sample(global_steps=1)
                self._balance_batch(sampled)
                with base_.marked_timer("old_log_prob", timing):
                    base_.calculate_debug_metrics(data)
                for name in TIMERS[3:]:
                    with base_.marked_timer(name, timing):
                        pass
            self._compute_metrics()
            base_.tq.kv_clear(keys=sampled.keys)
            tracking = base_.Tracking()
            tracking.log(data={"actor/grad_norm": 0.5, "critic/score/mean": 0.25}, step=1)
            self.seen = timing, tracking.logged

    base_.Tracking = Tracking
    base_.TRAINER_REGISTRY = {"sync": Trainer, "separate_async": type("SeparateAsync", (Trainer,), {})}
    return modules


class RayError(Exception):
    """Of the stand-in for Ray."""


class StubRay:
    """As much of Ray as ends actors: names of those killed, in order, and whether each was waited for."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.waited: list[str] = []
        self.exceptions = types.SimpleNamespace(RayError=RayError)

    def actor(self, name: str) -> Any:
        """A handle."""
        return types.SimpleNamespace(name=name, __ray_ready__=types.SimpleNamespace(remote=lambda: name))

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.name)

    def get(self, name: str, timeout: float) -> None:
        self.waited.append(name)
        raise RayError(f"{name} died" if name in self.killed else f"{name} did not answer in {timeout} s")


class Batch(dict[str, list[Any]]):
    """Rows by column; its length is the number of rows."""

    def __len__(self) -> int:
        return len(self["uid"])


def batch_of(rows: int) -> Batch:
    return Batch(uid=[f"u-{i}" for i in range(rows)], index=list(range(rows)), attempt=[0] * rows)


class Mask:
    """As much of a tensor as the loss tokens need."""

    def __init__(self, ones: int) -> None:
        self.ones = ones

    def __gt__(self, other: int) -> "Mask":
        return self

    def sum(self) -> "Mask":
        return self

    def item(self) -> int:
        return self.ones
