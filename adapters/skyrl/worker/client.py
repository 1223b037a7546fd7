"""The pauses of each weight sync, recorded in the process that asks for them.

With NCCL the controller's inference client pauses the engines; with the delta backend a training actor does, through
SkyRL's blocking control-plane client.
"""

import time
from collections.abc import Sequence
from typing import Any

from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient

from adapters.child.track import require
from harness.protocol.phases import Phase, Pool
from harness.protocol.recorder import Recorder


class PauseLog:
    """Turns pause and resume into one `weight_sync` span per engine, from pause asked to resume answered."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._syncs = 0
        self._asked_ns = self._paused_ns = 0

    def paused(self, asked_ns: int) -> None:
        """All engines have answered a pause that was asked at `asked_ns`."""
        self._asked_ns, self._paused_ns = asked_ns, time.monotonic_ns()

    def resumed(self, asked_ns: int, engines: Sequence[str]) -> None:
        """All engines have answered a resume that was asked at `asked_ns`."""
        end_ns = time.monotonic_ns()
        # The initial sync makes version 0 visible, the n-th after it version n.
        version, self._syncs = self._syncs, self._syncs + 1
        for engine in engines:
            self.recorder.span(
                Phase.WEIGHT_SYNC.value,
                "pause_to_resume",
                self._asked_ns,
                end_ns,
                pool=Pool.ROLLOUT.value,
                unit=engine,
                attributes={
                    "version": version,
                    "engine": engine,
                    "pause_ns": self._paused_ns - self._asked_ns,
                    "transfer_ns": asked_ns - self._paused_ns,
                    "resume_ns": end_ns - asked_ns,
                },
            )


def tap_controller_client(recorder: Recorder) -> None:
    """Watches the inference client's pauses in this process.

    Raises:
        TapError: the client lost a method.
    """
    log = PauseLog(recorder)
    client: Any = RemoteInferenceClient
    pause: Any = require(client, "pause_generation")
    resume: Any = require(client, "resume_generation")

    async def pause_generation(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = time.monotonic_ns()
        result = await pause(self, *args, **kwargs)
        log.paused(asked)
        return result

    async def resume_generation(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = time.monotonic_ns()
        result = await resume(self, *args, **kwargs)
        log.resumed(asked, self.server_urls)
        return result

    client.pause_generation = pause_generation
    client.resume_generation = resume_generation


def tap_actor_client() -> None:
    """Watches the control-plane client's pauses in a training actor, which gets an events file of its own.

    Raises:
        TapError: the client lost a method.
    """
    from skyrl.backends.skyrl_train.weight_sync import control_plane

    client: Any = require(control_plane, "SkyrlWeightSyncClient")
    pause: Any = require(client, "pause_generation")
    resume: Any = require(client, "resume_generation")
    log = PauseLog(Recorder.from_environment("train"))

    def pause_generation(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = time.monotonic_ns()
        result = pause(self, *args, **kwargs)
        log.paused(asked)
        return result

    def resume_generation(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = time.monotonic_ns()
        result = resume(self, *args, **kwargs)
        log.resumed(asked, self._urls)
        return result

    client.pause_generation = pause_generation
    client.resume_generation = resume_generation
