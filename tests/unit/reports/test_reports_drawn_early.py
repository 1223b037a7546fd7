"""What is drawn of a run's tables and time account, before the figures that take longest are there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import played_folders as folders
import played_runs as played
import pytest

from harness.protocol.spec import Gpus
from reports import figures
from reports.case import Case
from reports.drawing import Drawing
from reports.report import write_report
from reports.run_page import single
from results import metrics
from results.account import Account
from results.energy import Energy
from results.watch import Watch
from results.window import Window

SPEC = played.make_spec("async", batch_size=4, group_size=2, steps=8, gpus=Gpus(train=1, rollout=2))


class Listening(Watch):
    def __init__(self, told: list[object]) -> None:
        self._told = told

    def window(self, window: Window | None) -> None:
        self._told.append(window)

    def account(self, account: Account | None) -> None:
        self._told.append(account)


def test_it_is_told_before_the_energy_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    computed = metrics.energy

    def energy(*given: Any, **named: Any) -> Energy:
        told.append("energy")
        return computed(*given, **named)

    monkeypatch.setattr(metrics, "energy", energy)
    case = Case.load(folders.write_run(tmp_path / "run", SPEC), lambda run: Listening(told))
    assert case.figures.account is not None
    assert told == [case.figures.window, case.figures.account, "energy"]


def test_a_run_without_a_window_is_told_too(tmp_path: Path) -> None:
    told: list[object] = []
    spec = played.make_spec("async", batch_size=4, group_size=2, steps=1, gpus=Gpus(train=1, rollout=2))
    case = Case.load(folders.write_run(tmp_path / "run", spec), lambda run: Listening(told))
    assert case.figures.window is None
    assert told == [None, None]


def test_the_page_is_the_same_as_from_what_is_drawn_after(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", SPEC)
    early = write_report([run], tmp_path / "early").read_text(encoding="utf-8")
    late = single(Case.load(run), tmp_path / "late" / "figures")
    assert early.splitlines() == "\n".join(late).splitlines()
    assert early.count("](figures/") >= 4
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / each / "figures").iterdir()} for each in ("early", "late")
    )
    assert ours == theirs


def test_the_spans_of_both_pictures_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.load(folders.write_run(tmp_path / "run", SPEC))
    reads: list[str] = []
    read = figures.spans_shown
    monkeypatch.setattr(figures, "spans_shown", lambda run: (reads.append(run.run_id), read(run))[1])
    Drawing.of(case, tmp_path / "figures")
    assert reads == [case.run.run_id]


def test_the_processes_that_draw_start_before_what_computes_is_imported() -> None:
    heavy = "('numpy', 'pandas', 'pyarrow', 'matplotlib')"
    code = f"import sys, reports.report; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
