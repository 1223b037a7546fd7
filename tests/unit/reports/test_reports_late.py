"""Top stragglers: against a calculation by hand over what was played."""

import statistics
from pathlib import Path

import played_folders as folders
import played_runs as played
import pytest

from harness.protocol.events import Event, Span, Step, Trajectory
from harness.protocol.spec import Gpus
from reports.case import Case
from reports.late import late_table
from reports.markdown import Footnotes
from results.late import late

S = played.S


def played_case(folder: Path, placement: str) -> tuple[Case, list[Event]]:
    """A played run of 4 x 2 trajectories a step, and its events."""
    gpus = Gpus(train=2, rollout=2) if placement == "colocated" else Gpus(train=1, rollout=2)
    spec = played.make_spec(placement, batch_size=4, group_size=2, steps=8, gpus=gpus)
    events = played.play(spec)
    return Case.load(folders.write_run(folder / "run", spec, events)), events


@pytest.mark.parametrize("placement", ["colocated", "async"])
def test_the_latest_are_those_of_the_definition(tmp_path: Path, placement: str) -> None:
    case, events = played_case(tmp_path, placement)
    lives = {event.trajectory_id: event for event in events if isinstance(event, Trajectory)}
    expected: dict[str, float] = {}
    for step in (event for event in events if isinstance(event, Step) and event.step in case.steps):
        begin = {name: lives[name].start_ns if placement == "async" else 0 for name in step.trajectory_ids}
        ends = {name: lives[name].end_ns - begin[name] for name in step.trajectory_ids}
        median = statistics.median_low(ends.values())
        expected |= {name: (end - median) / S for name, end in ends.items()}
    found = late(case.run, case.steps, 5)
    best = sorted(expected.items(), key=lambda each: (-each[1], each[0]))[:5]
    assert [each.trajectory_id for each in found] == [name for name, _ in best]
    assert [each.late_s for each in found] == pytest.approx([value for _, value in best])
    for each in found:
        mine = [event for event in events if isinstance(event, Span) and event.trajectory_id == each.trajectory_id]
        turns = sum(event.end_ns - event.start_ns for event in mine if event.phase == "generation") / S
        assert each.generating_s == pytest.approx(turns)
        assert each.tool_s == pytest.approx(lives[each.trajectory_id].tool_ns / S)
        assert each.duration_s == pytest.approx(each.generating_s + each.tool_s + each.other_s)
        assert each.engines


def test_the_table_names_them_and_where_their_time_went(tmp_path: Path) -> None:
    case, _ = played_case(tmp_path, "colocated")
    found = late(case.run, case.steps, 3)
    lines = late_table(case.run, found, Footnotes())
    assert lines[0].startswith("| Top stragglers | step | ended after its batch's median |")
    assert [line.split("|")[1].strip() for line in lines[2:]] == [f"`{each.trajectory_id}`" for each in found]


def test_small_batches_and_no_steps_have_none(tmp_path: Path) -> None:
    spec = played.make_spec("colocated", batch_size=1, group_size=3, steps=4, gpus=Gpus(train=2, rollout=2))
    case = Case.load(folders.write_run(tmp_path / "run", spec))
    assert late(case.run, [3, 4]) == ()
    assert late(case.run, []) == ()
    assert late_table(case.run, (), Footnotes()) == []
