"""What is known of each GPU's sensors and of the joules by class is kept beside the figures, as a page shows it."""

from pathlib import Path

import pytest
from played_folders import write_run
from played_gpus import write_gpu_run
from played_runs import make_spec

from harness.cli.figures import keep_figures
from harness.protocol.spec import Device, Gpus
from reports.case import Case
from results.collect import collect
from results.store import load_run


def test_verdicts_k_and_joules_are_kept_as_they_were_computed(tmp_path: Path) -> None:
    spec = make_spec("async", device=Device.CUDA, gpus=Gpus(train=1, rollout=1), steps=8)
    run = collect(write_gpu_run(tmp_path / "run", spec))
    assert run.tables["gpu_energy"].num_rows == run.tables["class_energy"].num_rows == 0
    found = keep_figures(run).energy
    assert found is not None
    kept = load_run(run.run_dir)
    gpus = kept.tables["gpu_energy"].to_pylist()
    assert [row["gpu"] for row in gpus] == ["GPU-0000", "GPU-0001"]
    for row, each in zip(gpus, found.gpus, strict=True):
        assert (row["energy_joules"], row["k_ratio"], row["verdict"]) == (each.joules, each.k, each.verdict)
        assert (row["pool"], row["source"], tuple(row["reasons"])) == (each.pool, each.source, each.reasons)
    parts = kept.tables["class_energy"].to_pylist()
    assert {row["kind"] for row in parts} == {"class", "phase", "attributed"}
    for pool in ("train", "rollout"):
        # The classes of a pool, where none is too short, are all of its joules.
        classes = [row for row in parts if row["kind"] == "class" and row["pool"] == pool]
        whole = sum(row["energy_joules"] for row in gpus if row["pool"] == pool)
        told = sum(row["energy_joules"] or 0.0 for row in classes)
        if all(row["energy_joules"] is not None for row in classes):
            assert told == pytest.approx(whole, rel=1e-3)
        assert 0 < told <= whole * 1.001
        assert all((row["energy_joules"] is None) == (row["note"] is not None) for row in classes)
    for row in parts:
        if row["power_utilisation_ratio"] is not None:
            assert row["power_utilisation_ratio"] == pytest.approx(row["energy_joules"] / row["limit_joules"])
    assert Case.load(run.run_dir).figures.energy == found


def test_a_run_without_gpus_has_none_of_it(tmp_path: Path) -> None:
    run = collect(write_run(tmp_path / "run", make_spec("colocated")))
    keep_figures(run)
    kept = load_run(run.run_dir)
    assert kept.tables["metrics"].num_rows > 0
    assert kept.tables["gpu_energy"].num_rows == kept.tables["class_energy"].num_rows == 0
