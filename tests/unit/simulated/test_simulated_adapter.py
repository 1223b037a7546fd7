"""The parent half: found by name, pure, and clear about what it refuses."""

from pathlib import Path

import pytest
from simulated_runs import make_spec

from adapters.base import Adapter, adapter_names, load_adapter
from adapters.simulated.adapter import ADAPTER
from harness.protocol.spec import Device, Gpus, Load, Placement


def test_it_is_found_by_its_name() -> None:
    assert "simulated" in adapter_names()
    assert load_adapter("simulated") is ADAPTER
    assert isinstance(ADAPTER, Adapter)
    assert ADAPTER.name == "simulated"
    assert "simulated" in ADAPTER.framework_version


@pytest.mark.parametrize("device", list(Device))
@pytest.mark.parametrize("placement", list(Placement))
def test_it_plays_every_placement_on_every_device(placement: Placement, device: Device) -> None:
    assert ADAPTER.supports(make_spec(placement.value, device=device, gpus=Gpus(train=4, rollout=4))) is None
    assert ADAPTER.environment(device, "none") is None
    assert ADAPTER.verified_on[placement.value, device.value].startswith("simulated")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"load": Load.LIVE}, "load = live"),
        ({"preset": "chess"}, "preset = chess"),
        ({"overrides": {"lr": "1"}}, "overrides = lr"),
        ({"faults": ("die=9",)}, "a step, 1 to 3"),
        ({"faults": ("overstale",)}, "allowed with async"),
    ],
)
def test_what_it_cannot_do_has_a_reason(changes: dict[str, object], part: str) -> None:
    reason = ADAPTER.supports(make_spec("colocated", **changes))
    assert reason is not None
    assert part in reason


def test_launch_is_pure(tmp_path: Path) -> None:
    run_dir = tmp_path / "not-made"
    launch = ADAPTER.launch(make_spec(), run_dir)
    assert launch == ADAPTER.launch(make_spec(), run_dir)
    assert launch.arguments == ("-m", "adapters.simulated.worker", str(run_dir / "spec.json"))
    assert not run_dir.exists()
    assert "simulated" in launch.notes[0]
