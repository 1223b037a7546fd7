"""The parts of a step: against a second, plain labelling of every millisecond, and on histories told by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from comparing_folders import collected, play_run

from results.comparing.blame import blame
from results.comparing.measures import EXPOSED, PARTS
from results.comparing.measuring import measure_run
from results.comparing.parts import step_parts
from results.metrics import compute
from results.store import RunTables
from results.tracks import tracks
from results.window import Window, steady_window

MS = 1_000_000
_WAITS = ("generation", "wait_rollout")


@pytest.fixture(scope="module", params=["colocated", "disaggregated", "async"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunTables:
    return collected(play_run(tmp_path_factory.mktemp("runs") / str(request.param), str(request.param)))


def window_of(run: RunTables) -> Window:
    found = steady_window(run, tracks(run)).window
    assert found is not None
    return found


def plain_labels(run: RunTables, step: int, begin: int, end: int) -> dict[str, float]:
    """Seconds of a step by part, instant by instant in plain Python: one look every 50 ms."""
    spans = run.frame("spans")
    own = spans[spans["trajectory_id"].isna() & ~spans["container"].astype(bool) & spans["phase"].notna()]
    own = own[own["pool"].isin(["train", "both"])]
    leaves = [(int(s), int(e), str(p)) for s, e, p in zip(own["start_ns"], own["end_ns"], own["phase"], strict=True)]
    lives = run.frame("trajectories")
    mine = lives[(lives["step_consumed"] == step).fillna(False)]
    last = mine.loc[mine["end_ns"].astype("int64").idxmax()]
    turns, tools = run.frame("turns"), run.frame("tool_calls")
    turns = turns[turns["trajectory_id"] == last["trajectory_id"]]
    tools = tools[tools["trajectory_id"] == last["trajectory_id"]]

    def inside(frame, begin: str, at: int) -> bool:  # type: ignore[no-untyped-def]
        return any(s <= at < e for s, e in zip(frame[begin], frame["end_ns"], strict=True))

    told: dict[str, float] = {}
    look = 50 * MS
    for at in range(begin + look // 2, end, look):
        open_ = [leaf for leaf in leaves if leaf[0] <= at < leaf[1]]
        phase = max(open_)[2] if open_ else "other"
        name = f"phase_{phase}_s"
        if phase in _WAITS:
            if not last["start_ns"] <= at < last["end_ns"]:
                name = "exposed_hand_over_s"
            elif inside(tools, "start_ns", at):
                name = "exposed_tool_s"
            elif inside(turns, "start_ns", at):
                name = "exposed_generating_s"
            elif any(s <= at < e for s, e in zip(turns["submitted_ns"], turns["start_ns"], strict=True)):
                name = "exposed_queued_s"
            else:
                name = "exposed_agent_s"
        told[name] = told.get(name, 0.0) + look / 1e9
    return told


def test_parts_are_those_of_a_plain_labelling(run: RunTables) -> None:
    window = window_of(run)
    parts = step_parts(run, tracks(run), window)
    place = len(parts.steps) // 2
    begin, end = window.boundaries_ns[place], window.boundaries_ns[place + 1]
    told = plain_labels(run, parts.steps[place], begin, end)
    got = {
        name: ns[place] / 1e9
        for name, ns in parts.ns.items()
        if name not in ("phase_generation_s", "phase_wait_rollout_s")
    }
    for name in {*told, *got}:
        # A look is off by one look at each of a part's edges, and a step has a dozen of a part.
        assert got.get(name, 0.0) == pytest.approx(told.get(name, 0.0), abs=0.4), name
    assert got["exposed_tool_s"] > 1 or run.spec.placement == "async"


def test_parts_fill_every_step_to_the_nanosecond(run: RunTables) -> None:
    parts = step_parts(run, tracks(run), window_of(run))
    names = [part.name for part in PARTS if part.name in parts.ns]
    total = np.sum([parts.ns[name] for name in names], axis=0)
    assert (total == parts.wall).all()
    waits = [parts.ns[name] for name in ("phase_generation_s", "phase_wait_rollout_s") if name in parts.ns]
    exposed = np.sum([parts.ns[name] for name in EXPOSED], axis=0)
    assert (exposed == np.sum(waits, axis=0)).all()


def test_measures_are_the_runs_own_figures(run: RunTables) -> None:
    found = compute(run)
    measured = measure_run(run, found)
    assert measured.value("step_time_s") == found.figures["step_time_s"].value
    whole = sum(measured.value(part.name) or 0.0 for part in PARTS)
    assert whole == pytest.approx(measured.value("step_time_s"), rel=1e-9)
    train = next(row for row in found.phases if row.phase == "train")
    assert measured.value("phase_train_s") == pytest.approx(train.mean_s, rel=1e-9)
    assert measured.steps == found.window.steps if found.window else False
    assert not measured.problems
    power = measured.values["power_utilisation_ratio"]
    assert power.value is None
    assert power.why


def test_steps_of_equal_plans_have_equal_names(tmp_path: Path) -> None:
    one = measure_run(collected(play_run(tmp_path / "a", "colocated")))
    two = measure_run(collected(play_run(tmp_path / "b", "disaggregated")))
    other = measure_run(collected(play_run(tmp_path / "c", "colocated", seed=2)))
    assert None not in one.series.plans
    assert len(set(one.series.plans)) == len(one.series.plans)
    assert one.series.plans == two.series.plans  # another placement, the same work
    assert not set(one.series.plans) & set(other.series.plans)


def test_a_slower_tool_is_the_tools_and_not_generation(tmp_path: Path) -> None:
    """Every tool call 2 s longer: what the step waits for grows in `exposed_tool_s` alone."""
    base = measure_run(collected(play_run(tmp_path / "a", "colocated")))
    slow = measure_run(collected(play_run(tmp_path / "b", "colocated", slower_tools_s=2.0)))
    grown = {part.name: (slow.value(part.name) or 0) - (base.value(part.name) or 0) for part in PARTS}
    step = (slow.value("step_time_s") or 0) - (base.value("step_time_s") or 0)
    assert step > 2
    assert grown["exposed_tool_s"] > 0.7 * step
    assert slow.value("tool_latency_s") == pytest.approx((base.value("tool_latency_s") or 0) + 2, abs=0.01)


def without(run: RunTables, *names: str) -> RunTables:
    """The run with no row in those tables, as a thinner record leaves it."""
    return replace(run, tables={**run.tables, **{name: run.tables[name].slice(0, 0) for name in names}})


def test_what_was_not_recorded_is_unknown_and_not_nothing(run: RunTables) -> None:
    bare = measure_run(without(run, "spans", "turns", "tool_calls"))
    assert bare.value("step_time_s") is not None
    for name in (*(part.name for part in PARTS), "phase_generation_s", "rollout_generating_s"):
        assert bare.value(name) is None, name
        assert bare.why(name), name
    assert set(bare.series.seconds) == {"step_time_s"}
    assert isinstance(blame([bare], [replace(bare, run_id="other")]), str)


def test_a_wait_of_unknown_reason_stays_whole(run: RunTables) -> None:
    thin, whole = measure_run(without(run, "turns", "tool_calls")), measure_run(run)
    assert all(thin.value(name) is None for name in EXPOSED)
    found = blame([thin], [replace(whole, run_id="other")])
    assert not isinstance(found, str)
    wait = "phase_generation_s" if run.spec.placement == "colocated" else "phase_wait_rollout_s"
    assert wait in {one.name for one in found.effects}
    assert not {one.name for one in found.effects} & set(EXPOSED)
    assert found.total.seconds == pytest.approx(0, abs=1e-9)
    assert found.remainder.seconds == pytest.approx(0, abs=1e-9)
