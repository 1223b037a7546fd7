"""What every async report says of selection, and what a report on GPUs says of joules and their intervals."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from played_folders import write_run
from played_gpus import write_gpu_run
from played_runs import make_spec

from harness.protocol.spec import Device, Gpus, Placement
from reports.markdown import Footnotes
from reports.power import _attributed
from reports.report import write_report
from results.class_energy import TAIL_WASTE, Attributed, ClassEnergy
from results.energy import _none
from results.metrics import compute
from results.running import DROPPED_OTHER, DROPPED_STALE, TRAINED
from results.store import load_run


@pytest.mark.parametrize("placement", [placement.value for placement in Placement])
def test_the_selection_test_is_in_every_async_report(tmp_path: Path, placement: str) -> None:
    run = write_run(tmp_path / "run", make_spec(placement))
    text = write_report([run], tmp_path / "out").read_text()
    assert ("## Selection" in text) == (placement == "async")
    assert set(re.findall(r"^\[\^(\d+)\]: ", text, re.M)) == set(re.findall(r"\[\^(\d+)\](?!: )", text))
    if placement == "async":
        section = text[text.index("## Selection") : text.index("## Weight sync")]
        found = compute(load_run(run)).selection
        assert found is not None
        ratio = found.ratios["tool_seconds"]
        assert ratio is not None
        assert f"{ratio.value:.3f} ({ratio.ci_low:.3f} to {ratio.ci_high:.3f})" in section
        assert f"{found.trained} of {found.admitted} in {found.groups} groups" in section
        assert "2,000 bootstrap draws of groups" in section


def test_a_comparison_has_a_row_for_each_async_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, make_spec(name)) for name in ("colocated", "async")]
    text = write_report(runs, tmp_path / "out").read_text()
    section = text[text.index("## Selection") :].split("## ")[1]
    rows = [
        line for line in section.splitlines() if line.startswith("| ") and "Run |" not in line and ":--" not in line
    ]
    assert len(rows) == 1
    assert rows[0].startswith("| async")


def test_a_short_async_run_says_why_it_has_no_selection_test(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", make_spec("async", steps=6))
    text = write_report([run], tmp_path / "out").read_text()
    section = text[text.index("## Selection") : text.index("## Weight sync")]
    assert "–[^" in section


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gpus")
    spec = make_spec("disaggregated", device=Device.CUDA, gpus=Gpus(train=4, rollout=4))
    write_gpu_run(folder / "run", spec)
    return write_report([folder / "run"], folder / "out").read_text()


def test_joules_per_class_stand_beside_their_power_and_what_they_were_for(on_gpus: str) -> None:
    telemetry = on_gpus[on_gpus.index("## Telemetry") : on_gpus.index("## Recording")]
    (train,) = [line for line in telemetry.splitlines() if line.startswith("| train | train |")]
    assert train.endswith("% |")
    for words in (
        "| rollout | trained on, within the bound |",
        "| rollout | discarded: stale | 0 kJ |",
        "| rollout | in the tail: by the trajectories that end it |",
        "| rollout | in the tail: waste |",
        "| energy per trained token |",
        "| energy per step |",
    ):
        assert words in telemetry
    assert "Attributed: " in telemetry


def test_intervals_of_power_name_their_method_and_source(on_gpus: str) -> None:
    for words in ("von Neumann and others 1941", "Wolter 2007", "Geyer 1992", "(from: counter)", "(range of "):
        assert words in on_gpus


def test_what_is_not_known_is_a_dash_with_its_reason_and_never_nothing() -> None:
    notes = Footnotes()
    why = "no valid check of counter against integral"
    parts = [Attributed(pool="rollout", name=name, joules=None, note=why) for name in (TRAINED, DROPPED_STALE)]
    parts += [Attributed(pool="rollout", name=TAIL_WASTE, joules=5e3, note=None)]
    parts += [Attributed(pool="rollout", name=DROPPED_OTHER, joules=0.0, note=None)]
    whole = ClassEnergy(pool="rollout", name="generating", joules=None, uncertainty_joules=None, note=why)
    lines = _attributed(replace(_none("no GPU", 0), classes=(whole,), attributed=tuple(parts)), notes)
    assert notes.reasons == [why]
    assert "| rollout | discarded: stale | –[^1] | –[^1] |" in lines
    assert "| rollout | in the tail: waste | 5 kJ |   |" in lines
    assert not any("discarded: other" in line for line in lines)
