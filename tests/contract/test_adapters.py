"""What every adapter's parent half keeps to, whatever its framework."""

from dataclasses import replace
from pathlib import Path

import pytest
from contract_specs import make_spec

from adapters.base import FAIRNESS, Adapter, adapter_names, load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Placement

CELLS = [
    pytest.param(name, placement, device, id=f"{name}-{placement}-{device}")
    for name in adapter_names()
    for placement in Placement
    for device in Device
]


def test_both_adapters_are_found() -> None:
    assert {"simulated", "skyrl"} <= set(adapter_names())
    for name in adapter_names():
        adapter = load_adapter(name)
        assert isinstance(adapter, Adapter)
        assert adapter.name == name


def test_an_unknown_adapter_is_a_spec_error_that_names_the_known() -> None:
    with pytest.raises(SpecError, match=r"framework = 'nemo'.*simulated.*skyrl"):
        load_adapter("nemo")


@pytest.mark.parametrize(("name", "placement", "device"), CELLS)
def test_a_placement_is_honoured_or_refused_with_a_reason(name: str, placement: Placement, device: Device) -> None:
    adapter = load_adapter(name)
    reason = adapter.supports(make_spec(name, placement, device))
    assert reason is None or len(reason) > 20
    assert adapter.verified_on[placement.value, device.value]


@pytest.mark.parametrize(("name", "placement", "device"), CELLS)
def test_launch_is_pure(
    name: str, placement: Placement, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, spec = load_adapter(name), make_spec(name, placement, device)
    run_dir = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    first = adapter.launch(spec, run_dir)
    assert adapter.launch(spec, run_dir) == first
    assert list(tmp_path.iterdir()) == []
    assert first.arguments[0] == "-m"
    assert first.arguments[-1] == str(run_dir / "spec.json")


@pytest.mark.parametrize("name", adapter_names())
def test_every_native_timer_has_a_phase_or_is_deliberately_none(name: str) -> None:
    phases = load_adapter(name).phases
    assert phases
    assert all(phase is None or isinstance(phase, Phase) for phase in phases.values())
    assert {Phase.TRAIN, Phase.LOGPROB, Phase.WEIGHT_SYNC} <= set(phases.values())


@pytest.mark.parametrize("name", [name for name in adapter_names() if name != "simulated"])
def test_a_users_override_comes_last_and_verbatim(name: str, tmp_path: Path) -> None:
    spec = replace(make_spec(name, Placement.ASYNC), overrides={"trainer.seed": "7"})
    notes = load_adapter(name).launch(spec, tmp_path).notes
    assert [note for note in notes if note.startswith("trainer.seed=")][-1] == "trainer.seed=7"


@pytest.mark.parametrize(("name", "placement", "device"), CELLS)
def test_every_row_of_the_fairness_table_is_filled(
    name: str, placement: Placement, device: Device, tmp_path: Path
) -> None:
    told = load_adapter(name).launch(make_spec(name, placement, device), tmp_path).fairness
    assert list(told) == list(FAIRNESS)
    assert all(told.values())
