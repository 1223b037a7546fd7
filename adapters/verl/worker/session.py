"""One verl run, from a spec file to a clean `Bye`."""

import importlib.metadata
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from adapters.child.cluster import on_cluster
from adapters.verl.adapter import ADAPTER
from harness.protocol.phases import Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Device, Placement, RunSpec

PACKAGES = ("verl", "vllm", "sglang", "transformers", "torch", "ray", "tensordict", "TransferQueue")


def main(spec_path: str) -> int:
    """Runs the spec; 0 after a run that trained all its steps, else 1."""
    spec = RunSpec.load_file(Path(spec_path))
    recorder = Recorder.from_environment("controller", versions=_versions(spec))
    path = Path(spec_path).absolute()
    try:
        with on_cluster(spec, path.parent, ADAPTER.launch(spec, path.parent).env):
            _run(spec, path, recorder)
    except Exception as error:
        traceback.print_exc()
        recorder.failure("worker", error)
        recorder.shut()
        return 1
    recorder.bye()
    sys.stdout.flush()
    return 0


def _versions(spec: RunSpec) -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    engine = "transformers" if spec.device is Device.CPU else spec.engine
    found["engine"] = f"{engine} {found.get(engine)}"
    return found


def _run(spec: RunSpec, spec_path: Path, recorder: Recorder) -> None:
    from adapters.verl.worker.process import SPEC_VARIABLE

    os.environ[SPEC_VARIABLE] = str(spec_path)  # Ray's processes inherit it
    if temp := os.environ.get("BENCH_TMP"):
        os.environ.setdefault("RAY_TMPDIR", temp)
    on_cpu = spec.device is Device.CPU
    if on_cpu:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray refuses logical GPUs beside an empty list
    startup = recorder.open(None, "startup")

    from adapters.child.models import resolve_model

    model = resolve_model(spec.model, "float32" if on_cpu else "bfloat16")

    import ray
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo

    from adapters.verl.worker.validate import validate

    config = validate(spec, spec_path.parent, model)
    bench = _install(spec, recorder)
    runner = _here(TaskRunnerV1, lambda: recorder.close(startup, container=True))
    try:
        run_ppo(config, task_runner_class=runner)
        unknown: set[str] = bench.track.unknown
        if unknown:
            recorder.failure("worker", f"native timers without a phase: {', '.join(sorted(unknown))}")
    finally:
        ray.shutdown()


def _install(spec: RunSpec, recorder: Recorder) -> Any:
    from adapters.child.steps import StepLog
    from adapters.child.track import Track
    from adapters.verl.phases import phases_for
    from adapters.verl.worker.admission import Admission
    from adapters.verl.worker.trainer import Bench, install

    pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.TRAIN
    track = Track(recorder, pool.value, phases_for(spec.placement), lambda: bench.step)
    bench = Bench(
        spec=spec,
        recorder=recorder,
        track=track,
        log=StepLog(recorder),
        admission=Admission(recorder, spec),
    )
    install(bench)
    return bench


def _here(actor: Any, on_start: Any) -> Any:
    """verl's task runner in this process, shaped like the actor class that `run_ppo` asks for.

    One process less, and its errors, recorder and exit code are the worker's own.
    """
    import ray

    from adapters.child.track import require

    runner: Any = require(require(actor, "__ray_metadata__"), "modified_class")

    class Run:
        @staticmethod
        def remote(config: Any) -> Any:
            on_start()
            runner().run(config)
            return ray.put(None)

    class Runner:
        run = Run

    class RunnerClass:
        @staticmethod
        def remote() -> Any:
            return Runner

    return RunnerClass
