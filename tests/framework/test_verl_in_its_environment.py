"""verl's own code, in verl's own environment: configuration, timers, and the control of the weight-sync proof."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from adapters.base import load_adapter
from adapters.verl.adapter import ADAPTER, CPU_ENV
from adapters.verl.phases import PHASES
from harness.envs import ensure
from harness.protocol.spec import Device, Placement, RunSpec
from harness.run import run
from harness.specs import resolve
from results.store import load_run
from results.sync_proof import prove_sync

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of verl's CPU environment, built if it is not there."""
    return ensure(ADAPTER.environment(Device.CPU, "vllm"))


def study_spec(placement: Placement) -> RunSpec:
    """Qwen3-14B on 8 GPUs, as the study had it: colocated on all, else half and half."""
    flags = {
        "framework": "verl",
        "placement": placement.value,
        "device": "cuda",
        "model": "random:qwen3-14b",
        "gpus": "8" if placement is Placement.COLOCATED else "4+4",
    }
    return resolve(flags).spec


def test_verl_accepts_the_studys_configuration_on_eight_gpus(python: Path, tmp_path: Path) -> None:
    paths = []
    for placement in Placement:
        folder = tmp_path / placement.value
        folder.mkdir()
        (folder / "spec.json").write_text(study_spec(placement).to_json())
        paths.append(str(folder / "spec.json"))
    done = subprocess.run(
        [str(python), "-m", "adapters.verl.worker.validate", *paths],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **CPU_ENV},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("All configuration checks passed") == len(paths)
    found = {
        row["placement"]: row for line in done.stdout.splitlines() if line.startswith("{") for row in [json.loads(line)]
    }
    assert set(found) == {placement.value for placement in Placement}
    assert [found[name]["trainer_mode"] for name in ("colocated", "disaggregated", "async")] == [
        "sync",
        "separate_async",
        "separate_async",
    ]
    assert (found["colocated"]["train_gpus"], found["colocated"]["hybrid_engine"]) == (8, True)
    for name in ("disaggregated", "async"):
        row = found[name]
        assert (row["train_gpus"], row["rollout_nodes"], row["rollout_gpus"]) == (4, 1, 4)
        assert (row["hybrid_engine"], row["backend"]) == (False, "nccl")
    assert {(row["rollout_is"], row["tensor_parallel_size"]) for row in found.values()} == {("token", 1)}


def test_every_native_timer_of_the_installed_version_is_mapped(python: Path) -> None:
    show = "import importlib.util; print(importlib.util.find_spec('verl').submodule_search_locations[0])"
    root = Path(subprocess.run([str(python), "-c", show], capture_output=True, text=True, check=True).stdout.strip())
    native: set[str] = set()
    for source in sorted((root / "trainer" / "ppo" / "v1").glob("*.py")):
        native |= set(re.findall(r"""marked_timer\(\s*["']([^"']+)["']""", source.read_text(encoding="utf-8")))
    assert len(native) > 12
    assert native - set(PHASES) == set()


def test_without_its_syncs_the_proof_fails(tmp_path: Path) -> None:
    """The control: syncs are stubbed out in a real run, and the proof must not pass."""
    spec = resolve({"framework": "verl", "placement": "disaggregated", "steps": 4, "faults": ("no-sync",)}).spec
    result = run(spec, load_adapter("verl"), tmp_path)
    assert result.exit_code == 0, (result.run_dir / "logs" / "worker.log").read_text()[-3000:]
    proof = prove_sync(load_run(result.run_dir))
    assert proof.fresh.passed is False
    assert proof.follows.passed is False
    assert not proof.proven
