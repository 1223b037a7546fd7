"""Reports of one thing say so: no `1 steps`, `1 trajectories` or the like in any section that counts."""

import re
from dataclasses import replace
from pathlib import Path

import played_folders as folders
import played_runs as played
import pytest

from reports import style
from reports.report import write_report

_ONE = re.compile(r"(?<![\d.,:])1 (?:steps|trajectories|runs|calls|turns|units|deviations|replies|pages|requests)\b")


def test_a_run_of_one_step_and_trajectory_is_said_in_the_singular(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "save", lambda _, stem: [stem.with_suffix(".png"), stem.with_suffix(".svg")])
    spec = played.make_spec("colocated", batch_size=1, group_size=1, steps=2, warmup_steps=1)
    run = folders.write_run(tmp_path / "run", spec)
    text = write_report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert "n = 1 step" in text
    assert _ONE.findall(text) == []
    other = folders.write_run(tmp_path / "other", replace(spec, sample_hz=spec.sample_hz))
    both = write_report([run, other], tmp_path / "both").read_text(encoding="utf-8")
    assert _ONE.findall(both) == []
