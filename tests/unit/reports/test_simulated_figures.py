"""Figures of sweeps: nothing that was simulated is missing in them, and what can't be drawn is said."""

import re
from pathlib import Path

import pytest

from harness.cli import call
from reports.simulated_figures import across_of, lines_of
from results.planner.sweep import cells, run

BASE = {
    "durations": {"law": "log_normal", "median_s": 20, "sigma": 1},
    "pools": {"train": 15.0},
    "policy": {"in_flight": "keep"},
    "horizon_s": 1800.0,
}
BOTH = ["synchronous", "async"]


def swept(axes: dict, seeds: int = 1) -> list[dict]:
    return run(cells(BASE, axes, seeds, assumed=("in_flight",)), jobs=1)


def test_a_sweep_of_staleness_has_its_synchronous_line_and_its_unbounded_point():
    axes = {"max_staleness": [None, 0, 1, 2, 4], "mode": BOTH}
    rows = swept(axes, seeds=2)
    across = across_of(rows, list(axes))
    assert across == "max_staleness"

    lines = lines_of(rows, list(axes), across)

    assert list(lines) == ["synchronous", "async"]
    assert len(lines["synchronous"].flat) == 2
    assert [x for x, _ in lines["async"].at] == [0, 1, 2, 4]
    assert len(lines["async"].unset) == 2
    drawn = [row for line in lines.values() for row in (*line.flat, *line.unset, *(r for _, g in line.at for r in g))]
    assert len(drawn) == len(rows)


def test_labels_say_what_tells_lines_apart_and_no_more():
    axes = {"sigma": [0.5, 1], "workers": [16, 32], "max_staleness": [None, 1], "mode": BOTH}

    assert list(lines_of(swept(axes), list(axes), "sigma")) == [
        "synchronous, workers 16",
        "async, workers 16",
        "async, workers 16, max_staleness 1",
        "synchronous, workers 32",
        "async, workers 32",
        "async, workers 32, max_staleness 1",
    ]


@pytest.mark.parametrize(
    ("axes", "across"),
    [
        ({"mode": BOTH}, None),
        ({"bound": ["admission", "discard"]}, None),
        ({"workers": [64]}, None),
        ({"max_staleness": [None, 4]}, "max_staleness"),  # unset is a value
        ({"colocated": [True, False], "workers": [1, 2]}, "workers"),
    ],
)
def test_the_first_axis_of_numbers_is_across(axes, across):
    rows = [dict(zip(axes, values, strict=True)) for values in zip(*(list(v) * 2 for v in axes.values()), strict=False)]

    assert across_of(rows, list(axes)) == across


def written(tmp_path: Path, *words: str) -> tuple[str, list[str]]:
    out = tmp_path / "out"
    assert call(["simulate", "--hours", "0.2", "-o", str(out), *words]) == 0
    return (out / "report.md").read_text(), sorted(path.name for path in out.rglob("*.svg"))


def texts(picture: Path) -> str:
    """All words of an SVG."""
    return " ".join(re.findall(r"<!-- (.*?) -->", picture.read_text()))


def test_updates_utilisation_and_staleness_are_drawn(tmp_path):
    report, pictures = written(tmp_path, "--sweep", "max_staleness=none,0,1,2,4")

    assert pictures == ["staleness.svg", "updates_per_hour.svg", "worker_busy.svg"]
    assert all(f"](figures/{name})" in report for name in pictures)
    words = texts(tmp_path / "out" / "figures" / "updates_per_hour.svg")
    assert "synchronous" in words
    assert "none" in words
    assert "max_staleness None" not in words
    assert "always 0" in texts(tmp_path / "out" / "figures" / "staleness.svg")


def test_twenty_lines_have_a_legend_and_forty_say_what_is_not_named(tmp_path):
    written(tmp_path, "--sweep", "sigma=0,1", "--sweep", "workers=1:10:10", "--mode", "synchronous,async")
    words = texts(tmp_path / "out" / "figures" / "updates_per_hour.svg")
    assert all(f"{mode}, workers {n}" in words.replace("async, unbounded", "async") for mode in BOTH for n in (1, 10))

    written(tmp_path, "--sweep", "sigma=0,1", "--sweep", "workers=1:20:20", "--mode", "synchronous,async")
    assert "16 more lines" in texts(tmp_path / "out" / "figures" / "updates_per_hour.svg")


def test_without_an_axis_of_numbers_it_is_said(tmp_path, capsys):
    report, pictures = written(tmp_path, "--sweep", "order=first_finished,first_started")

    assert pictures == []
    assert "No figure: no axis of numbers was varied" in report
    assert "no figure: no axis of numbers" in capsys.readouterr().err
