"""AReaL's own code, in AReaL's own environment: configuration, timers, and the control of the weight-sync proof."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.areal.adapter import ADAPTER
from adapters.areal.phases import PHASES, ROLES
from harness.envs import ensure
from harness.protocol.spec import Device, Placement, RunSpec
from harness.run import run
from harness.specs import resolve
from results.store import load_run
from results.sync_proof import prove_sync

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of AReaL's CPU environment, built if it is not there."""
    return ensure(ADAPTER.environment(Device.CPU, "vllm"))


def study_spec(placement: Placement, engine: str) -> RunSpec:
    """Qwen3-14B on 8 GPUs, as the study had it: colocated on all, else half and half."""
    # AReaL refuses to run colocated on GPUs; its configuration is held valid all the same. Only the framework differs.
    flags = {
        "framework": "skyrl",
        "placement": placement.value,
        "device": "cuda",
        "model": "random:qwen3-14b",
        "gpus": "8" if placement is Placement.COLOCATED else "4+4",
    }
    return replace(resolve(flags).spec, framework="areal", engine=engine)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_areal_accepts_the_studys_configuration_on_eight_gpus(python: Path, tmp_path: Path, engine: str) -> None:
    paths = []
    for placement in Placement:
        folder = tmp_path / placement.value
        folder.mkdir()
        (folder / "spec.json").write_text(study_spec(placement, engine).to_json())
        paths.append(str(folder / "spec.json"))
    done = subprocess.run(
        [str(python), "-m", "adapters.areal.worker.config", *paths],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {
        row["placement"]: row for line in done.stdout.splitlines() if line.startswith("{") for row in [json.loads(line)]
    }
    assert set(found) == {placement.value for placement in Placement}
    assert (found["colocated"]["actor"], found["colocated"]["rollout"]) == ("fsdp:d8", f"{engine}:d8")
    assert (found["async"]["actor"], found["async"]["rollout"]) == ("fsdp:d4", f"{engine}:d4")
    assert [found[name]["colocated"] for name in ("colocated", "disaggregated", "async")] == [True, False, False]
    assert [found[name]["max_head_offpolicyness"] for name in ("colocated", "disaggregated", "async")] == [0, 0, 1]
    assert {name: row["weight_update_mode"] for name, row in found.items()} == {
        "colocated": "disk",
        "disaggregated": "xccl",
        "async": "xccl",
    }
    for row in found.values():
        assert row["worker_gpus"] == 1
        assert row["recompute"] is True
        assert row["correction"] == ["token", "clamp", 2.0]


def test_every_native_timer_of_the_installed_version_is_mapped(python: Path) -> None:
    show = "import importlib.util; print(importlib.util.find_spec('areal').submodule_search_locations[0])"
    root = Path(subprocess.run([str(python), "-c", show], capture_output=True, text=True, check=True).stdout.strip())
    text = (root / "trainer" / "rl_trainer.py").read_text(encoding="utf-8")
    keys = re.findall(r"""record_timing\(\s*f?["']([^"']+)["']""", text)
    assert len(keys) == text.count("record_timing(")  # none is computed in a way that was not read here
    native = {key.replace("{role}", role) for key in keys for role in ROLES}
    assert len(native) > 20
    assert native - set(PHASES) == set()


def test_without_its_syncs_the_proof_fails(tmp_path: Path) -> None:
    """The control: syncs are stubbed out in a real run, and the proof must not pass."""
    flags = {"framework": "skyrl", "placement": "disaggregated", "device": "cpu", "steps": 4}
    spec = replace(resolve(flags).spec, framework="areal", faults=("no-sync",))
    result = run(spec, ADAPTER, tmp_path)
    assert result.exit_code == 0, (result.run_dir / "logs" / "worker.log").read_text()[-3000:]
    proof = prove_sync(load_run(result.run_dir))
    assert proof.fresh.passed is False
    assert proof.follows.passed is False
    assert not proof.proven
