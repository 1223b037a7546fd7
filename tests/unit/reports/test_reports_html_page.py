"""The HTML page of played runs: its data against what was played, its escaping, and the runs that lack something."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest

from harness.protocol.events import Event, Failure, Open, Span, Step, Trajectory
from harness.protocol.spec import Device, Gpus, RunSpec
from reports import style
from reports.case import Case
from reports.exporting.perfetto import export_perfetto
from reports.html import page as pages
from reports.html import timeline
from reports.html.axis import Fineness, axis_of
from reports.html.data import run_data
from reports.html.page import render, write_html
from reports.report import write_report
from results.late import late
from results.store import load_run

S = played.S
EVIL = "</script><script>alert('run')</script><img src=x onerror=alert(1)>"
FINE = Fineness()
KINDS = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4"}


def small(placement: str = "colocated", **changes: Any) -> RunSpec:
    split = Gpus(train=1, rollout=2) if placement != "colocated" else Gpus(train=2, rollout=2)
    return played.make_spec(placement, **({"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split} | changes))


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures of report.md are drawn but not rendered."""

    def touch(_: object, stem: Path) -> list[Path]:
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        for file in files:
            file.write_bytes(b"picture")
        return files

    monkeypatch.setattr(style, "save", touch)


def array(packed: dict[str, str]) -> "np.ndarray[Any, np.dtype[Any]]":
    return np.frombuffer(base64.b64decode(packed["d"]), dtype=KINDS[packed["k"]])


def data_of(run: Path, fine: Fineness = FINE) -> tuple[Case, dict[str, Any]]:
    case = Case.load(run)
    return case, json.loads(json.dumps(run_data(case, "run", fine, list), allow_nan=False))


def html_of(folder: Path, *runs: Path) -> str:
    target = folder / "report.html"
    write_report(list(runs), folder / "out", html=target, draw=False)
    return target.read_text(encoding="utf-8")


class Seen(HTMLParser):
    """Elements with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        self.text += data


def evil(spec: RunSpec) -> list[Event]:
    """A played run whose queries, engines, timers and errors would run a script where they were not escaped."""
    events: list[Event] = []
    for event in played.play(spec):
        if isinstance(event, Span) and event.phase == "tool":
            attributes = {**event.attributes, "argument": EVIL, "tool": EVIL, "detail": EVIL, "status": "error"}
            events.append(replace(event, attributes=attributes))
        elif isinstance(event, Span) and event.phase == "generation" and event.trajectory_id:
            events.append(replace(event, attributes={**event.attributes, "engine": EVIL}))
        elif isinstance(event, Span) and event.phase == "train":
            events.append(replace(event, native_name=EVIL))
        elif isinstance(event, Trajectory):
            events.append(replace(event, message=EVIL, group_id=EVIL))
        else:
            events.append(event)
    failure = Failure(boundary="worker", type=EVIL, message=EVIL, mono_ns=played.BEGIN + S)
    return [*events[:-1], failure, events[-1]]


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


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_one_file_that_asks_for_nothing(tmp_path: Path, placement: str) -> None:
    text = html_of(tmp_path, gpus.write_gpu_run(tmp_path / "run", small(placement, device=Device.CUDA)))
    seen = Seen(text)
    for tag, attributes in seen.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "style" not in attributes, (tag, attributes)
        for name in ("src", "href", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", text.replace("HTTP", ""))
    policy = next(a["content"] for tag, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "unsafe" not in policy
    (script,) = [body for attributes, body in seen.scripts if attributes.get("type") is None]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    (sheet,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert f"style-src 'sha256-{base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()}'" in policy


def test_what_comes_from_a_run_is_text(tmp_path: Path) -> None:
    spec = small("async")
    machine = {"host": EVIL, "cpu": EVIL, "cores": 2, "memory_bytes": 2**30}
    run = folders.write_run(
        tmp_path / "run",
        spec,
        evil(spec),
        machine=machine,
        status="failed",
        reason=EVIL,
        note=[EVIL],
        versions={EVIL: EVIL},
    )
    text = html_of(tmp_path, run)
    seen = Seen(text)
    clean = Seen(html_of(tmp_path / "clean", folders.write_run(tmp_path / "clean" / "run", spec)))
    scripts = [attributes.get("type") for attributes, _ in seen.scripts]
    assert scripts == [attributes.get("type") for attributes, _ in clean.scripts] == ["application/json", None]
    assert not [tag for tag, attributes in seen.elements if attributes.get("src") == "x"]
    assert "<img src=x" not in text
    assert EVIL in seen.text  # and it is there to be read
    data = json.loads(seen.scripts[0][1])
    assert set(data["timeline"]["lives"]["tools"]["argument"]) == {EVIL}


def test_says_what_the_markdown_says(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", small())
    page = Seen(html_of(tmp_path, run)).text
    markdown = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    for title in re.findall(r"^## (.+)$", markdown, re.MULTILINE):
        assert title in page
    total = re.search(r"\*\*Total step\*\* \| \*\*(.+?)\*\*", markdown)
    assert total is not None
    assert total[1] in page
    assert "functional check on CPU" in page
    assert "random weights" in page
    assert "figures/" not in page


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", small())
    assert html_of(tmp_path / "a", run) == html_of(tmp_path / "b", run)


def test_the_page_alone_is_the_same_and_draws_nothing(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", small())
    alone = html_of(tmp_path / "alone", run)
    beside = tmp_path / "beside.html"
    write_report([run], tmp_path / "drawn", html=beside)
    assert beside.read_text(encoding="utf-8") == alone
    assert list((tmp_path / "drawn" / "figures").glob("*.png"))
    assert not list((tmp_path / "alone").rglob("*.png"))


def test_pictures_without_a_chart_go_into_the_page_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "reward.png").write_bytes(b"reward")
    (tmp_path.parent / "secret.png").write_bytes(b"secret")
    lines = ["# T", "", "## Reward", "", "![r](figures/reward.png)", "", "![s](../secret.png)"]
    text = render(lines, tmp_path)
    assert base64.b64encode(b"reward").decode() in text
    assert base64.b64encode(b"secret").decode() not in text


def test_a_run_that_was_killed_has_its_page(tmp_path: Path) -> None:
    spec = small("async")
    events = played.play(spec)
    cut = [event for event in events if getattr(event, "end_ns", 0) < played.BEGIN + 400 * S][:-1]
    assert 10 < len(cut) < len(events)
    run = folders.write_run(tmp_path / "run", spec, cut, status="running")
    text = html_of(tmp_path, run)
    assert "not finished" in text
    data = json.loads(Seen(text).scripts[0][1])
    assert data["timeline"]["lives"]["id"]


def test_a_run_without_a_span_has_its_page(tmp_path: Path) -> None:
    spec = small()
    events = played.play(spec)
    run = folders.write_run(tmp_path / "run", spec, [events[0], events[-1]], status="failed", reason="it broke")
    text = html_of(tmp_path, run)
    data = json.loads(Seen(text).scripts[0][1])
    assert data["timeline"] is None
    assert data["batches"]["steps"] == []
    assert "no steady window" in text


def test_a_run_without_trajectories_has_its_tracks(tmp_path: Path) -> None:
    spec = small()
    events = [e for e in played.play(spec) if isinstance(e, Span) and e.trajectory_id is None]
    whole = played.play(spec)
    _, data = data_of(folders.write_run(tmp_path / "run", spec, [whole[0], *events, whole[-1]]))
    groups = {track["group"] for track in data["timeline"]["tracks"]}
    assert "Training phases" in groups
    assert data["timeline"]["lives"]["id"] == []


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    runs = [folders.write_run(tmp_path / place / f"run-{place}", small(place)) for place in ("colocated", "async")]
    text = html_of(tmp_path, *runs)
    seen = Seen(text)
    assert [attributes.get("id") for attributes, _ in seen.scripts] == ["run-0", "run-1", None]
    assert [json.loads(body)["name"] for _, body in seen.scripts[:2]] == ["colocated", "async"]


def test_runs_beyond_the_most_have_no_timeline_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_RUNS", 1)
    first = folders.write_run(tmp_path / "one", small())
    second = tmp_path / "two"
    shutil.copytree(first, second)
    text = html_of(tmp_path, first, second)
    assert "Without a timeline in this page: 1 more run." in text
    assert len(Seen(text).scripts) == 2


def test_nothing_is_left_where_a_page_cannot_be_written(tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.mkdir()
    with pytest.raises(OSError, match="there"):
        write_html(["# T"], tmp_path, target)
    assert list(tmp_path.iterdir()) == [target]


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
