"""Each framework's own code, in its own environment: configuration, timers, taps, and the control of the sync proof.

Every adapter that has an environment of its own must have a row in FRAMEWORKS, and passes the same checks.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from adapters.areal.phases import ROLES
from adapters.base import Adapter, adapter_names, load_adapter
from harness.envs import ensure
from harness.protocol.spec import Device, Placement, RunSpec
from harness.run import run
from harness.specs import resolve
from results.store import load_run
from results.sync_proof import prove_sync

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]

Rows = Mapping[str, Mapping[str, object]]  # by placement: what the framework's own configuration says


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What the checks must know of one framework."""

    validate: str  # module: reads specs, prints one JSON row each once the framework has accepted them
    configured: Callable[[str], Rows]  # engine -> what those rows must hold
    same: tuple[str, ...] = ()  # fields that no placement may change
    says: str | None = None  # what the framework prints once for each configuration that it accepts
    engines: tuple[str, ...] = ("vllm",)
    refused: frozenset[str] = frozenset()  # placements on cuda that need --unverified; validated all the same
    sources: tuple[str, ...]  # files with native timers, as patterns inside the framework's package
    timer: str  # pattern of a native timer's call; its group is the timer's name
    calls: str | None = None  # with this, each of its occurrences must have been read by `timer`
    names: Sequence[tuple[str, Sequence[str]]] = ()  # placeholders in timers' names, and what they stand for
    timers: int  # more than so many are found, or the pattern no longer fits
    tap: str  # code that taps, says "tapped", takes the patch point away and taps again
    gone: str  # the patch point's name


def _skyrl(engine: str) -> Rows:
    split = {"train_gpus": 4, "engines": 4}
    return {
        "colocated": {"train_gpus": 8, "engines": 8, "fully_async": False},
        "disaggregated": {**split, "fully_async": False},
        "async": {**split, "fully_async": True},
    }


def _areal(engine: str) -> Rows:
    every = {"worker_gpus": 1, "recompute": True, "correction": ["token", "clamp", 2.0]}
    split = {"actor": "fsdp:d4", "rollout": f"{engine}:d4", "colocated": False, "weight_update_mode": "xccl", **every}
    shared = {"actor": "fsdp:d8", "rollout": f"{engine}:d8", "colocated": True, "weight_update_mode": "disk", **every}
    return {
        "colocated": {**shared, "max_head_offpolicyness": 0},
        "disaggregated": {**split, "max_head_offpolicyness": 0},
        "async": {**split, "max_head_offpolicyness": 1},
    }


def _verl(engine: str) -> Rows:
    own = {
        "disable_radix_cache": False,
        "chunked_prefill_size": 8192,
        "context_length": 40960,
        "enable_metrics": True,
        "decode_log_interval": 1,
    }
    every = {
        "rollout_is": "token",
        "tensor_parallel_size": 1,
        "engine": engine,
        "engine_kwargs": own if engine == "sglang" else {},
        "memory": 0.8,
        "enforce_eager": False,
        "prefix_caching": True,
        "logprobs": True,
    }
    split = {"train_gpus": 4, "rollout_nodes": 1, "rollout_gpus": 4, "hybrid_engine": False, "backend": "nccl", **every}
    split["trainer_mode"] = "separate_async"
    colocated = {"train_gpus": 8, "hybrid_engine": True, "trainer_mode": "sync", **every}
    return {
        "colocated": {**colocated, "max_num_seqs": 32},
        "disaggregated": {**split, "max_num_seqs": 32},
        "async": {**split, "max_num_seqs": 48},
    }


FRAMEWORKS = {
    "skyrl": Framework(
        validate="adapters.skyrl.worker.validate",
        configured=_skyrl,
        same=("policy_loss_type",),
        sources=("train/trainer.py", "train/fully_async_trainer.py"),
        timer=r"""(?:Timer|timed_phase)\(\s*["']([^"']+)["']""",
        timers=12,
        tap="""
from skyrl.train.utils import trainer_utils
from adapters.skyrl.worker.taps import unshuffle
unshuffle()
print("tapped")
del trainer_utils.StatefulDataLoader
unshuffle()
""",
        gone="StatefulDataLoader",
    ),
    "areal": Framework(
        validate="adapters.areal.worker.config",
        configured=_areal,
        engines=("vllm", "sglang"),
        refused=frozenset({"colocated"}),
        sources=("trainer/rl_trainer.py",),
        timer=r"""record_timing\(\s*f?["']([^"']+)["']""",
        calls="record_timing(",
        names=(("{role}", ROLES),),
        timers=20,
        tap="""
from areal.utils import stats_tracker
from adapters.areal.worker.taps import tap_timers
tap_timers(None)
print("tapped")
del stats_tracker.record_timing
tap_timers(None)
""",
        gone="record_timing",
    ),
    "verl": Framework(
        validate="adapters.verl.worker.validate",
        configured=_verl,
        says="All configuration checks passed",
        engines=("vllm", "sglang"),
        sources=("trainer/ppo/v1/*.py",),
        timer=r"""marked_timer\(\s*["']([^"']+)["']""",
        timers=12,
        tap="""
from adapters.verl.worker.taps import tap_timers, trainer_modules
modules = trainer_modules()
tap_timers(None, modules)
print("tapped")
del modules[0].marked_timer
tap_timers(None, modules)
""",
        gone="marked_timer",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A framework in its CPU environment."""

    row: Framework
    adapter: Adapter
    python: Path

    def ask(self, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Runs its interpreter with what a run on cpu finds in its environment."""
        flags = {"framework": self.adapter.name, "placement": "disaggregated", "device": "cpu"}
        given = self.adapter.launch(resolve(flags).spec, folder).env
        return subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, **given},
        )


def _installable() -> list[str]:
    """The adapters whose runs need an environment of their own: all but those that the harness's own Python runs."""
    return [name for name in adapter_names() if load_adapter(name).environment(Device.CPU, "vllm") is not None]


@pytest.fixture(scope="module", params=_installable())
def installed(request: pytest.FixtureRequest) -> Installed:
    """One framework after the other; its environment is built if it is not there."""
    name: str = request.param
    assert name in FRAMEWORKS, f"the adapter {name!r} has no row in FRAMEWORKS: it passes these checks too"
    adapter = load_adapter(name)
    environment = adapter.environment(Device.CPU, "vllm")
    assert environment is not None
    return Installed(row=FRAMEWORKS[name], adapter=adapter, python=ensure(environment))


def study_spec(name: str, placement: Placement, engine: str) -> RunSpec:
    """Qwen3-14B on 8 GPUs, as the study had it: colocated on all, else half and half."""
    flags = {
        "framework": name,
        "placement": placement.value,
        "device": "cuda",
        "model": "random:qwen3-14b",
        "gpus": "8" if placement is Placement.COLOCATED else "4+4",
        "engine": engine,
        # What is refused until someone has checked it on a GPU must be a valid configuration all the same.
        "unverified": placement.value in FRAMEWORKS[name].refused,
    }
    return resolve(flags).spec


def test_it_accepts_the_studys_configuration_on_eight_gpus(installed: Installed, tmp_path: Path) -> None:
    """Every placement, with every engine that the adapter knows on GPUs: validated by the framework itself."""
    row, name = installed.row, installed.adapter.name
    paths = []
    for engine in row.engines:
        for placement in Placement:
            folder = tmp_path / engine / placement.value
            folder.mkdir(parents=True)
            (folder / "spec.json").write_text(study_spec(name, placement, engine).to_json())
            paths.append(str(folder / "spec.json"))
    done = installed.ask("-m", row.validate, *paths, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    if row.says is not None:
        assert done.stdout.count(row.says) == len(paths)
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(paths)
    for number, engine in enumerate(row.engines):
        count = len(Placement)
        found = {answer["placement"]: answer for answer in answers[number * count : (number + 1) * count]}
        wanted = row.configured(engine)
        assert set(found) == set(wanted) == {placement.value for placement in Placement}
        shown = {place: {key: found[place][key] for key in fields} for place, fields in wanted.items()}
        assert shown == wanted, engine
        for key in row.same:
            assert len({str(answer[key]) for answer in found.values()}) == 1, key


def test_what_it_refuses_on_gpus_until_someone_checks_it(installed: Installed) -> None:
    adapter, refused = installed.adapter, installed.row.refused
    for engine in installed.row.engines:
        for placement in Placement:
            reason = adapter.supports(replace(study_spec(adapter.name, placement, engine), unverified=False))
            assert (reason is not None and "unverified" in reason) == (placement.value in refused), reason


def test_every_native_timer_of_the_installed_version_is_mapped(installed: Installed, tmp_path: Path) -> None:
    row, name = installed.row, installed.adapter.name
    show = f"import importlib.util; print(importlib.util.find_spec({name!r}).submodule_search_locations[0])"
    done = installed.ask("-c", show, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    root = Path(done.stdout.strip())
    native: set[str] = set()
    for pattern in row.sources:
        sources = sorted(root.glob(pattern))
        assert sources, f"{pattern} is gone from {name}"
        for source in sources:
            text = source.read_text(encoding="utf-8")
            keys = re.findall(row.timer, text)
            # None may be computed in a way that was not read here.
            assert row.calls is None or len(keys) == text.count(row.calls)
            native |= set(keys)
    for placeholder, values in row.names:
        native = {key.replace(placeholder, value) for key in native for value in values}
    assert len(native) > row.timers
    assert native - set(installed.adapter.phases) == set()


def test_a_patch_point_that_is_gone_is_named(installed: Installed, tmp_path: Path) -> None:
    """On the framework itself: its tap works, and once the patch point is taken away it fails by name."""
    done = installed.ask("-c", installed.row.tap, folder=tmp_path)
    assert "tapped" in done.stdout.splitlines(), done.stderr[-3000:]
    assert done.returncode == 1
    assert re.search(rf"TapError: patch point \S+\.{installed.row.gone} is gone", done.stderr), done.stderr[-3000:]


def test_without_its_syncs_the_proof_fails(installed: Installed, tmp_path: Path) -> None:
    """The control: syncs are stubbed out in a real run, and the proof must not pass."""
    flags = {"framework": installed.adapter.name, "placement": "disaggregated", "device": "cpu", "steps": 4}
    spec = resolve({**flags, "faults": ("no-sync",)}).spec
    result = run(spec, installed.adapter, tmp_path)
    assert result.exit_code == 0, (result.run_dir / "logs" / "worker.log").read_text()[-3000:]
    proof = prove_sync(load_run(result.run_dir))
    assert proof.fresh.passed is False
    assert proof.follows.passed is False
    assert not proof.proven
