"""What every adapter's parent half keeps to, whatever its framework.

All installed adapters are tested, those of other distributions too; BENCH_ADAPTERS=NAME,... tests these alone.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from contract_specs import make_spec

from adapters.base import FAIRNESS, GROUP, Adapter, adapter_names, load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Placement, RunSpec

VARIABLE = "BENCH_ADAPTERS"
NAMES = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()] or adapter_names()
# A name that is not installed ends the collection here, with the names that are.
SPECS = [
    make_spec(name, placement, device)
    for name in NAMES
    if load_adapter(name)
    for placement in Placement
    for device in Device
]


def _id(spec: RunSpec) -> str:
    return f"{spec.framework}-{spec.placement}-{spec.device}"


def _can(spec: RunSpec) -> bool:
    """Whether the adapter runs it, if need be with --unverified."""
    supports = load_adapter(spec.framework).supports
    return supports(spec) is None or supports(replace(spec, unverified=True)) is None


CELLS = pytest.mark.parametrize("spec", SPECS, ids=_id)
POSSIBLE = pytest.mark.parametrize("spec", [spec for spec in SPECS if _can(spec)], ids=_id)
EACH = pytest.mark.parametrize("name", NAMES)

# What the harness would hold after loading the adapter: nothing but the standard library, the project and itself.
LOAD = """
import json, sys
from adapters.base import load_adapter
before = set(sys.modules)
load_adapter(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_projects_own_adapters_are_found() -> None:
    assert {"simulated", "skyrl", "areal", "verl"} <= set(adapter_names())


def test_an_unknown_adapter_is_a_spec_error_that_names_the_known() -> None:
    with pytest.raises(SpecError, match=r"framework = 'nemo'.*simulated.*skyrl"):
        load_adapter("nemo")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_module", "can't be loaded: ModuleNotFoundError.*no_such_module"),
        ("OTHER = 1", "can't be loaded: AttributeError"),
        ("class ADAPTER: pass", "is a class, not an instance"),
        ("ADAPTER = object()", "has no name, framework_version, phases"),
    ],
)
def test_an_adapter_that_cannot_be_used_is_named_with_its_distribution(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"bad_adapter_{abs(hash(text))}"  # each case its own: modules stay imported
    info = tmp_path / "bench_bad-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-bad\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[bench.adapters]\nbad = {module}:ADAPTER\n")
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match=rf"framework = 'bad'.*{module}:ADAPTER, from bench-bad 1\.2.*{why}"):
        load_adapter("bad")


@EACH
def test_it_has_all_that_an_adapter_has(name: str) -> None:
    adapter = load_adapter(name)
    assert isinstance(adapter, Adapter)
    assert adapter.name == name
    assert adapter.framework_version


@EACH
@pytest.mark.parametrize("device", list(Device))
def test_it_names_its_engines_and_has_what_each_needs(name: str, device: Device) -> None:
    adapter = load_adapter(name)
    engines = adapter.engines(device)
    assert len(set(engines)) == len(engines) > 0
    built = {adapter.environment(device, engine) is not None for engine in engines}
    assert len(built) == 1  # in environments of its own, or in bench's own Python


@EACH
def test_it_can_run_something(name: str) -> None:
    assert any(_can(spec) for spec in SPECS if spec.framework == name)


@EACH
def test_the_parent_half_imports_the_standard_library_only(name: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LOAD, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    own = next(entry.module for entry in entry_points(group=GROUP) if entry.name == name).partition(".")[0]
    allowed = sys.stdlib_module_names | {"adapters", "harness", "workloads", own}
    modules = json.loads(done.stdout)
    assert [module for module in modules if module.partition(".")[0] not in allowed] == []
    assert [module for module in modules if module.startswith(("adapters.child", "harness.cli", "harness.run"))] == []


@CELLS
def test_a_placement_is_honoured_or_refused_with_a_reason(spec: RunSpec) -> None:
    adapter = load_adapter(spec.framework)
    reason = adapter.supports(spec)
    assert reason is None or len(reason) > 20
    assert adapter.verified_on[spec.placement.value, spec.device.value]


@POSSIBLE
def test_an_engine_that_it_does_not_name_is_refused(spec: RunSpec) -> None:
    reason = load_adapter(spec.framework).supports(replace(spec, engine="foo"))
    assert reason is not None
    assert reason.startswith("engine = foo: ")


@POSSIBLE
def test_launch_is_pure(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, run_dir = load_adapter(spec.framework), tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    first = adapter.launch(spec, run_dir)
    assert adapter.launch(spec, run_dir) == first
    assert list(tmp_path.iterdir()) == []


@POSSIBLE
def test_the_child_is_a_module_that_gets_the_spec(spec: RunSpec, tmp_path: Path) -> None:
    arguments = load_adapter(spec.framework).launch(spec, tmp_path).arguments
    assert arguments[0] == "-m"
    assert find_spec(arguments[1]) is not None
    assert arguments[-1] == str(tmp_path / "spec.json")


@EACH
def test_every_native_timer_has_a_phase_or_is_deliberately_none(name: str) -> None:
    phases = load_adapter(name).phases
    assert phases
    assert all(phase is None or isinstance(phase, Phase) for phase in phases.values())
    assert {Phase.TRAIN, Phase.LOGPROB, Phase.WEIGHT_SYNC} <= set(phases.values())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "simulated"])
def test_a_users_override_comes_last_and_verbatim_or_is_refused_by_name(name: str, tmp_path: Path) -> None:
    adapter = load_adapter(name)
    plain = next(spec for spec in SPECS if spec.framework == name and adapter.supports(spec) is None)
    spec = replace(plain, overrides={"trainer.seed": "7"})
    reason = adapter.supports(spec)
    if reason is not None:
        assert "trainer.seed" in reason
        return
    notes = adapter.launch(spec, tmp_path).notes
    assert [note for note in notes if note.startswith("trainer.seed=")][-1] == "trainer.seed=7"


@POSSIBLE
def test_every_row_of_the_fairness_table_is_filled(spec: RunSpec, tmp_path: Path) -> None:
    told = load_adapter(spec.framework).launch(spec, tmp_path).fairness
    assert list(told) == list(FAIRNESS)
    assert all(told.values())


@POSSIBLE
def test_an_environment_has_pins_and_says_what_it_costs(spec: RunSpec) -> None:
    environment = load_adapter(spec.framework).environment(spec.device, spec.engine)
    if environment is not None:
        assert (environment.framework, environment.device) == (spec.framework, spec.device)
        assert environment.requirements.is_file()
        assert environment.size_gb > 0
        assert environment.minutes > 0
        assert environment.status
        assert environment.imports
