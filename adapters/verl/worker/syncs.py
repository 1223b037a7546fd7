"""Weight syncs as the rollout side sees them, and the proof phase around the first ones."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from adapters.child.proof import SyncProof
from adapters.child.track import Track, require
from harness.protocol.phases import Phase, Pool
from harness.protocol.recorder import Recorder


def tap_pauses(manager: Any, recorder: Recorder, engines: Sequence[str]) -> None:
    """One `weight_sync` span per engine and sync, from abort asked to resume answered, of a manager with own engines.

    Raises:
        TapError: the checkpoint manager lost a method.
    """
    abort: Any = require(manager, "abort_replicas")
    resume: Any = require(manager, "resume_generation_replicas")
    update: Any = require(manager, "update_weights")
    asked_ns = paused_ns = 0
    version = 0

    async def abort_replicas(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked_ns, paused_ns
        asked_ns = time.monotonic_ns()
        result = await abort(*args, **kwargs)
        paused_ns = time.monotonic_ns()
        return result

    async def resume_generation_replicas(*args: Any, **kwargs: Any) -> Any:
        resume_ns = time.monotonic_ns()
        result = await resume(*args, **kwargs)
        end_ns = time.monotonic_ns()
        for engine in engines:
            recorder.span(
                Phase.WEIGHT_SYNC.value,
                "abort_to_resume",
                asked_ns,
                end_ns,
                pool=Pool.ROLLOUT.value,
                unit=engine,
                attributes={
                    "version": version,
                    "engine": engine,
                    "pause_ns": paused_ns - asked_ns,
                    "transfer_ns": resume_ns - paused_ns,
                    "resume_ns": end_ns - resume_ns,
                },
            )
        return result

    def update_weights(global_steps: int, *args: Any, **kwargs: Any) -> Any:
        nonlocal version
        version = int(global_steps)
        return update(global_steps, *args, **kwargs)

    manager.abort_replicas = abort_replicas
    manager.resume_generation_replicas = resume_generation_replicas
    manager.update_weights = update_weights


def tap_proof(
    manager: Any,
    track: Track,
    proof: SyncProof,
    ask_trainer: Callable[[int], None],
    ask_engines: Callable[[int], None],
) -> None:
    """Puts the proof phase around a manager's syncs, and the version on the trainer's span.

    Raises:
        TapError: the checkpoint manager has no `update_weights`.
    """
    update: Any = require(manager, "update_weights")

    def update_weights(global_steps: int, *args: Any, **kwargs: Any) -> Any:
        version = int(global_steps)
        if proof.wants(version):
            ask_trainer(version)
        begin = time.monotonic_ns()
        result = update(global_steps, *args, **kwargs)
        transfer_ns = time.monotonic_ns() - begin
        if proof.wants(version):
            ask_engines(version)
        track.note("update_weights", version=version, transfer_ns=transfer_ns)
        return result

    manager.update_weights = update_weights
