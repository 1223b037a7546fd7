"""SkyRL's own code, in SkyRL's own environment: configuration, timers, and the control of the weight-sync proof."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from adapters.skyrl.adapter import ADAPTER
from adapters.skyrl.phases import PHASES
from harness.envs import ensure
from harness.protocol.spec import Device, Placement, RunSpec
from harness.specs import resolve
from results.store import load_run
from results.sync_proof import prove_sync

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of SkyRL's CPU environment, built if it is not there."""
    return ensure(ADAPTER.environment(Device.CPU, "vllm"))


def study_spec(placement: Placement) -> RunSpec:
    """Qwen3-14B on 8 GPUs, as the study had it: colocated on all, else half and half."""
    flags = {
        "framework": "skyrl",
        "placement": placement.value,
        "device": "cuda",
        "model": "random:qwen3-14b",
        "gpus": "8" if placement is Placement.COLOCATED else "4+4",
    }
    return resolve(flags).spec


def test_skyrl_accepts_the_studys_configuration_on_eight_gpus(python: Path, tmp_path: Path) -> None:
    paths = []
    for placement in Placement:
        folder = tmp_path / placement.value
        folder.mkdir()
        (folder / "spec.json").write_text(study_spec(placement).to_json())
        paths.append(str(folder / "spec.json"))
    done = subprocess.run(
        [str(python), "-m", "adapters.skyrl.worker.validate", *paths],
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
    assert (found["colocated"]["train_gpus"], found["colocated"]["engines"]) == (8, 8)
    assert (found["async"]["train_gpus"], found["async"]["engines"]) == (4, 4)
    assert [found[name]["fully_async"] for name in ("colocated", "disaggregated", "async")] == [False, False, True]
    assert len({row["policy_loss_type"] for row in found.values()}) == 1


def test_every_native_timer_of_the_installed_version_is_mapped(python: Path) -> None:
    show = "import importlib.util; print(importlib.util.find_spec('skyrl').submodule_search_locations[0])"
    root = Path(subprocess.run([str(python), "-c", show], capture_output=True, text=True, check=True).stdout.strip())
    native: set[str] = set()
    for name in ("trainer.py", "fully_async_trainer.py"):
        text = (root / "train" / name).read_text(encoding="utf-8")
        native |= set(re.findall(r"""(?:Timer|timed_phase)\(\s*["']([^"']+)["']""", text))
    assert len(native) > 12
    assert native - set(PHASES) == set()


def test_without_its_syncs_the_proof_fails(tmp_path: Path) -> None:
    """The control: syncs are stubbed out in a real run, and the proof must not pass."""
    from adapters.base import load_adapter
    from harness.run import run

    spec = resolve({"framework": "skyrl", "placement": "disaggregated", "steps": 4, "faults": ("no-sync",)}).spec
    result = run(spec, load_adapter("skyrl"), tmp_path)
    assert result.exit_code == 0, (result.run_dir / "logs" / "worker.log").read_text()[-3000:]
    proof = prove_sync(load_run(result.run_dir))
    assert proof.fresh.passed is False
    assert proof.follows.passed is False
    assert not proof.proven
