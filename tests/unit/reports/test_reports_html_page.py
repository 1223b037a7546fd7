"""The HTML page of played runs: that it is one file, its escaping, and the runs that lack something."""

import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest
from played_pages import Seen, data_of, html_of, small

from harness.protocol.events import Event, Failure, Span, Trajectory
from harness.protocol.spec import Device, RunSpec
from reports import style
from reports.html import page as pages
from reports.html.page import render, write_html
from reports.report import write_report

S = played.S
EVIL = "</script><script>alert('run')</script><img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures of report.md are drawn but not rendered."""

    def touch(_: object, stem: Path) -> list[Path]:
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        for file in files:
            file.write_bytes(b"picture")
        return files

    monkeypatch.setattr(style, "save", touch)


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
