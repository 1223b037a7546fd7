"""The child: plays a spec's placement, in virtual time where it can: `-m adapters.simulated.worker RUN/spec.json`."""

import asyncio
import platform
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from adapters.simulated.faults import Faults, leave_orphan
from adapters.simulated.rollout import ContinuousRollout, Rollout, make_fleet
from adapters.simulated.trainer import Trainer
from adapters.simulated.virtual import choose, runner
from harness.protocol.clock import now_ns
from harness.protocol.errors import SpecError
from harness.protocol.phases import Phase, Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Placement, RunSpec

VERSION = "2"


async def play(spec: RunSpec, recorder: Recorder, faults: Faults) -> None:
    """The whole run: version 0 to the engines, then `spec.steps` updates."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    fleet = make_fleet(spec, faults)
    rollout = Rollout(spec=spec, recorder=recorder, faults=faults, fleet=fleet)
    trainer = Trainer(spec=spec, recorder=recorder, faults=faults, fleet=fleet)
    if faults.fork_orphan:
        print(f"simulated: left process {leave_orphan()} behind", flush=True)
    await trainer.begin()
    if spec.placement is Placement.COLOCATED:
        await _colocated(spec, recorder, rollout, trainer)
    elif spec.placement is Placement.DISAGGREGATED:
        await _disaggregated(spec, recorder, rollout, trainer)
    else:
        await _async(spec, recorder, rollout, trainer)


async def _colocated(spec: RunSpec, recorder: Recorder, rollout: Rollout, trainer: Trainer) -> None:
    """The same GPUs take turns: all trajectories of a batch, then the update."""
    for step in range(1, spec.steps + 1):
        start_ns = now_ns()
        with recorder.timed(None, "step", pool=Pool.BOTH, step=step, container=True):
            with recorder.timed(Phase.GENERATION, "generate", pool=Pool.BOTH, step=step):
                groups = await rollout.batch(step)
            await trainer.update(step, groups, start_ns)


async def _disaggregated(spec: RunSpec, recorder: Recorder, rollout: Rollout, trainer: Trainer) -> None:
    """Separate pools that wait for each other: admission is closed while the trainer works."""
    for step in range(1, spec.steps + 1):
        start_ns = now_ns()
        with recorder.timed(None, "step", pool=Pool.TRAIN, step=step, container=True):
            with recorder.timed(Phase.WAIT_ROLLOUT, "wait_for_batch", pool=Pool.TRAIN, step=step):
                recorder.gate(True, f"version {step - 1}", in_flight=0, cap=spec.trajectories_per_step)
                groups = await rollout.batch(step)
                recorder.gate(False, f"training step {step}", in_flight=0, cap=spec.trajectories_per_step)
            await trainer.update(step, groups, start_ns)


async def _async(spec: RunSpec, recorder: Recorder, rollout: Rollout, trainer: Trainer) -> None:
    """Separate pools that don't wait: the trainer takes the groups that finished first."""
    continuous = ContinuousRollout(rollout=rollout)
    try:
        for step in range(1, spec.steps + 1):
            start_ns = now_ns()
            with recorder.timed(None, "step", pool=Pool.TRAIN, step=step, container=True):
                with recorder.timed(Phase.WAIT_ROLLOUT, "wait_for_groups", pool=Pool.TRAIN, step=step):
                    continuous.admit(trainer.version)
                    groups = await continuous.take(spec.batch_size)
                await trainer.update(step, groups, start_ns)
    finally:
        await continuous.stop("end of the run")


def main(argv: list[str]) -> int:
    """Runs the spec at `argv[0]`; returns the exit code."""
    try:
        spec = RunSpec.load_file(Path(argv[0]))
        faults = Faults.of(spec)
        choice = choose(spec)
        recorder = Recorder.from_environment(
            "controller", versions={"simulated": VERSION, "clock": choice.name, "python": platform.python_version()}
        )
    except (SpecError, ValueError, IndexError, KeyError) as error:
        print(f"simulated: cannot start: {error!r}", file=sys.stderr)
        return SpecError.exit_code
    code = 0
    try:
        with runner(choice) as running:
            running.run(play(spec, recorder, faults))
    except (KeyboardInterrupt, asyncio.CancelledError) as stop:
        code = 128 + (signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
        _record_failure(recorder, f"ended by signal {code - 128}")
    except Exception as error:
        traceback.print_exc()
        code = 1
        _record_failure(recorder, error)
    if code == 0 and not faults.no_bye:
        recorder.bye()
    else:
        recorder.shut()
    return code


def _record_failure(recorder: Recorder, error: BaseException | str) -> None:
    with suppress(OSError):  # a disk that is full is what the error may be about: stderr has it
        recorder.failure("worker", error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
