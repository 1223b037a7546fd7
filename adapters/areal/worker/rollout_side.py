"""What the controller knows of the rollout side: admission, rejected groups, and the pauses of weight syncs."""

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from adapters.child.track import require
from harness.protocol.phases import Phase, Pool
from harness.protocol.recorder import Recorder


class Admission:
    """Records a gate event whenever AReaL's own rule opens or closes; the rule is watched, not changed.

    Open: the staleness manager has capacity and submission is not paused. Counts are trajectories; the rule counts
    groups.
    """

    def __init__(self, recorder: Recorder, rollout: Any, group_size: int) -> None:
        """`rollout` is AReaL's RolloutController, initialised.

        Raises:
            TapError: a method of the controller, its manager or its dispatcher is gone.
        """
        self.recorder = recorder
        self.manager = rollout.staleness_manager
        self.dispatcher = rollout.dispatcher
        self.group_size = group_size
        self.cap = int(self.manager.max_concurrent_rollouts) * group_size
        self._lock = threading.Lock()
        self._ended = False
        require(self.manager, "get_capacity")
        require(self.dispatcher, "is_paused")
        self._open = not self.dispatcher.is_paused()
        for name in ("on_rollout_submitted", "on_rollout_accepted", "on_rollout_rejected"):
            self._watch(self.manager, name)
        for name in ("pause", "resume", "set_version"):
            self._watch(rollout, name)
        recorder.gate(self._open, "start", in_flight=0, cap=self.cap)

    @property
    def in_flight(self) -> int:
        """Trajectories in groups that are admitted and not back."""
        return int(self.manager.get_stats().running) * self.group_size

    def _watch(self, owner: Any, name: str) -> None:
        real: Any = require(owner, name)

        @functools.wraps(real)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            self.look(name)
            return result

        setattr(owner, name, watched)

    def end(self) -> None:
        """The last step has ended: what AReaL still admits before it is taken down belongs to no step."""
        with self._lock:
            self._ended = True
            self.recorder.gate(False, "the last step has ended", in_flight=self.in_flight, cap=self.cap)

    def look(self, why: str) -> None:
        """Asks the rule, and records a change."""
        with self._lock:
            if self._ended:
                return
            now_open = self.manager.get_capacity() > 0 and not self.dispatcher.is_paused()
            if now_open != self._open:
                self._open = now_open
                self.recorder.gate(now_open, why, in_flight=self.in_flight, cap=self.cap)


def watch_rejections(rollout: Any, on_rejected: Callable[[int], None]) -> None:
    """Tells the prompt of each group that AReaL's controller drops (no answer in time, or an error on its way).

    Raises:
        TapError: the dispatcher's task factory is gone.
    """
    dispatcher = rollout.dispatcher
    real: Any = require(dispatcher, "task_factory")

    def task_factory(pending: Any) -> Any:
        submit = real(pending)

        async def submit_then_wait() -> Any:
            result = await submit()
            if result is None:
                on_rejected(int(pending.data["prompt"]))
            return result

        return submit_then_wait

    dispatcher.task_factory = task_factory


def watch_pauses(recorder: Recorder, rollout: Any, engines: list[str]) -> None:
    """One `weight_sync` span per engine and sync, from pause asked to continue answered.

    Raises:
        TapError: the controller lost a method.
    """
    pause: Any = require(rollout, "pause_generation")
    resume: Any = require(rollout, "continue_generation")
    asked_ns = paused_ns = 0

    async def pause_generation(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked_ns, paused_ns
        begin = time.monotonic_ns()
        result = await pause(*args, **kwargs)
        asked_ns, paused_ns = begin, time.monotonic_ns()
        return result

    async def continue_generation(*args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic_ns()
        version = int(rollout.get_version()) + 1  # AReaL counts it up once the engines have it
        result = await resume(*args, **kwargs)
        end = time.monotonic_ns()
        for engine in engines:
            recorder.span(
                Phase.WEIGHT_SYNC.value,
                "pause_to_continue",
                asked_ns,
                end,
                pool=Pool.ROLLOUT.value,
                unit=engine,
                attributes={
                    "version": version,
                    "engine": engine,
                    "pause_ns": paused_ns - asked_ns,
                    "transfer_ns": begin - paused_ns,
                    "resume_ns": end - begin,
                },
            )
        return result

    rollout.pause_generation = pause_generation
    rollout.continue_generation = continue_generation
