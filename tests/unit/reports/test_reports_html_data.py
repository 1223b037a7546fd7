"""The data of an HTML page of played runs, against what was played."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest
from played_pages import FINE, array, data_of, small

from harness.protocol.events import Open, Span, Step, Trajectory
from harness.protocol.spec import Device
from reports.case import Case
from reports.exporting.perfetto import export_perfetto
from reports.html import timeline
from reports.html.axis import Fineness, axis_of
from results.late import late
from results.store import load_run


def test_the_data_are_what_was_played(tmp_path: Path) -> None:
    spec = small("async")
    events = played.play(spec)
    case, data = data_of(folders.write_run(tmp_path / "run", spec, events))
    line = data["timeline"]
    begun = {event.trajectory_id: event for event in events if isinstance(event, Trajectory | Open)}
    assert sorted(line["lives"]["id"]) == sorted(name for name in begun if name)
    assert line["lives"]["whole"]
    turns = [
        event for event in events if isinstance(event, Span) and event.phase == "generation" and event.trajectory_id
    ]
    offsets = array(line["lives"]["turns"]["offset"])
    assert int(offsets[-1]) == len(turns)
    place = line["lives"]["id"].index(turns[0].trajectory_id)
    first = int(offsets[place])
    assert line["tick"] == 1e-6
    starts = [event.start_ns for event in events if isinstance(event, Span)] + [e.start_ns for e in begun.values()]
    wanted = (turns[0].start_ns - min(starts)) / 1e9
    assert int(array(line["lives"]["turns"]["start"])[first]) * line["tick"] == pytest.approx(wanted, abs=1e-5)
    assert [step for step, _, _ in line["steps"]] == [event.step for event in events if isinstance(event, Step)]
    window = case.figures.window
    assert window is not None
    assert line["window"][1] - line["window"][0] == pytest.approx(window.seconds, abs=1e-5)
    engines = [track["name"] for track in line["tracks"] if track["group"].startswith("Engines")]
    assert engines == ["10.0.0.1:8000", "10.0.0.1:8001"]


def test_units_are_the_accounts_own_seconds(tmp_path: Path) -> None:
    case, data = data_of(folders.write_run(tmp_path / "run", small()))
    account = case.figures.account
    assert account is not None
    units = [track for track in data["timeline"]["tracks"] if track["group"].startswith("Units")]
    assert [track["name"] for track in units] == [unit.unit for unit in account.units]
    for track, unit in zip(units, account.units, strict=True):
        lengths = (array(track["end"]).astype(float) - array(track["start"])) * data["timeline"]["tick"]
        sums = np.bincount(array(track["code"]), weights=lengths)
        found = dict(zip(track["names"], sums.tolist(), strict=True))
        assert found == pytest.approx(dict(unit.seconds), abs=1e-3)


def test_what_is_too_long_is_binned_and_says_so(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", small("async"))
    coarse = Fineness(bins=64, stretches=4, items=200, letters=0, bars=1)
    case, data = data_of(run, coarse)
    lives = data["timeline"]["lives"]
    assert not lives["whole"]
    named = {each.trajectory_id for each in late(case.run, case.steps)}
    assert named <= set(lives["id"])  # wherever they are
    lanes = array(lives["lane"])
    drawn = [name for name, lane in zip(lives["id"], lanes.tolist(), strict=True) if lane != 65_535]
    items = len(drawn)
    for kind in ("turns", "tools"):
        offsets = array(lives[kind]["offset"]).astype(int)
        items += sum(int(offsets[n + 1] - offsets[n]) for n, lane in enumerate(lanes.tolist()) if lane != 65_535)
    assert 0 < items <= coarse.items
    assert f"{len(drawn):,} of " in lives["how"]
    units = [track for track in data["timeline"]["tracks"] if track["group"].startswith("Units")]
    assert {track["kind"] for track in units} == {"shares"}
    account = case.figures.account
    assert account is not None
    for track, unit in zip(units, account.units, strict=True):
        shares = array(track["shares"]).reshape(len(track["names"]), track["bins"]) / 65_535
        seconds = shares.sum(axis=1) * data["timeline"]["length"] / track["bins"]
        assert dict(zip(track["names"], seconds.tolist(), strict=True)) == pytest.approx(
            dict(unit.seconds), rel=0.01, abs=0.01
        )
        assert "in bins of" in track["how"]
    assert all(text is None for text in lives["tools"]["argument"])
    assert len(data["batches"]["steps"]) == 1
    assert "left out of this page" in data["batches"]["how"]


def test_where_one_instant_is_too_much_none_is_drawn_and_it_is_said(tmp_path: Path) -> None:
    case, data = data_of(folders.write_run(tmp_path / "run", small("async")), replace(FINE, items=5))
    lives = data["timeline"]["lives"]
    assert lives["how"].startswith("none of ")
    assert lives["lanes"] == 0
    assert set(array(lives["lane"]).tolist()) == {65_535}
    assert {each.trajectory_id for each in late(case.run, case.steps)} <= set(lives["id"])


def test_more_tracks_than_are_drawn_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_TRACKS", 1)
    case, data = data_of(folders.write_run(tmp_path / "run", small("async")))
    account = case.figures.account
    assert account is not None
    tracks = {track["group"]: track for track in data["timeline"]["tracks"]}
    assert tracks["Units: time account"]["how"].endswith(f"; the first 1 of {len(account.units)}")
    assert tracks["Engines: turns open"]["how"].endswith("; the first 1 of 2")


def test_lanes_hold_one_trajectory_at_a_time(tmp_path: Path) -> None:
    _, data = data_of(folders.write_run(tmp_path / "run", small("async")))
    lives = data["timeline"]["lives"]
    start, end, lane = array(lives["start"]), array(lives["end"]), array(lives["lane"])
    for one in range(lives["lanes"]):
        mine = np.flatnonzero(lane == one)
        assert (start[mine][1:] >= end[mine][:-1]).all()
    assert sorted(set(lane.tolist())) == list(range(lives["lanes"]))


def test_power_keeps_least_mean_and_most(tmp_path: Path) -> None:
    spec = small("colocated", device=Device.CUDA)
    case, data = data_of(gpus.write_gpu_run(tmp_path / "run", spec))
    tracks = [track for track in data["timeline"]["tracks"] if track["group"] == "GPUs: power"]
    assert len(tracks) == spec.total_gpus
    readings = case.run.frame("samples").query("gpu == 'GPU-0000'")["power_instant_watts"]
    low, mean, high = (array(tracks[0][name]) for name in ("low", "mean", "high"))
    assert np.nanmin(low) == pytest.approx(readings.min())
    assert np.nanmax(high) == pytest.approx(readings.max())
    assert (low[~np.isnan(mean)] <= mean[~np.isnan(mean)]).all()
    assert tracks[0]["limit"] == gpus.LIMIT_W
    assert f"{readings.size:,} readings" in tracks[0]["how"]


def test_trajectories_in_flight_keep_least_mean_and_most(tmp_path: Path) -> None:
    case, data = data_of(folders.write_run(tmp_path / "run", small("async")), replace(FINE, bins=16))
    (track,) = (track for track in data["timeline"]["tracks"] if track["kind"] == "stack")
    low, mean, high = (array(track[name]) for name in ("low", "mean", "high"))
    assert low.size == mean.size == high.size == track["bins"] == 16
    assert (low <= mean + 1e-4).all()
    assert (mean <= high + 1e-4).all()
    assert (low < high).any()
    layers = sum(array(layer["mean"]).astype(np.float64) for layer in track["layers"])
    assert (layers >= mean - 1e-3).all()
    lives = case.run.frame("trajectories")
    axis = axis_of(case.run)
    assert axis is not None
    ends = lives["end_ns"].fillna(axis.end_ns)  # some were still in flight when the run ended
    lived = sum(end - start for start, end in zip(lives["start_ns"], ends, strict=True)) / 1e9
    assert float(mean.sum()) * data["timeline"]["length"] / 16 == pytest.approx(lived, rel=1e-3)
    assert "least" in track["how"]


def test_the_samples_of_a_run_are_read_by_their_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day of ten samples a second and GPU is more than memory should hold at once."""
    run = gpus.write_gpu_run(tmp_path / "run", small("async", device=Device.CUDA))
    data_of(run)  # collects it, and computes its figures
    stored = load_run(run)
    read = type(stored.tables).__getitem__

    def counted(tables: Any, name: str) -> Any:
        assert name != "samples", "the whole table is read"
        return read(tables, name)

    case = Case.load(run)
    monkeypatch.setattr(type(stored.tables), "__getitem__", counted)
    axis = axis_of(stored)
    assert axis is not None
    assert len(timeline._readings(stored, axis, FINE)) == stored.spec.total_gpus
    export_perfetto(stored, tmp_path / "trace")
    assert case.run.run_id == stored.run_id
