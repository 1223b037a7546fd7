"""How busy the cores were by class, and what that tells of two sides at once."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from harness.cli import call
from reports.case import Case
from results.planner.calibration.constants import Constant, read, write
from results.planner.calibration.from_run import calibrate_run
from results.planner.calibration.laws import PLANNED, SEEN
from results.planner.calibration.shared_cores import GENERATING, TRAINING, WAITING, _shares, contention, cores_in_use
from results.planner.candidates import Candidate, centre, needed, predict
from results.planner.priors import SHARED, priors_of
from results.schema import TABLES, empty

BOTH = Candidate(placement="async", train_gpus=1, rollout_gpus=1, max_staleness=1)


def made(folder, placement):
    words = ["--framework", "simulated", "--placement", placement, "--steps", "24"]
    assert call(["run", *words, "--runs-dir", str(folder)]) == 0
    (run,) = folder.iterdir()
    return Case.load(run)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs"), "colocated")


@pytest.fixture(scope="module")
def overlapped(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs"), "async")


def sampled(case, use, spread=0.0, hz=2.0):
    """The run with readings of a host whose cores are in use so much in each class."""
    window = case.figures.window
    times = np.arange(window.start_ns, window.end_ns, int(1e9 / hz), dtype=np.int64)
    shares = _shares(case.run, times)
    rest = {name: share for name, share in shares.items() if name not in use}
    busy = sum(use[name] * shares[name] for name in use) + sum(0.3 * share for share in rest.values())
    busy = np.clip(busy + np.random.default_rng(1).normal(0, spread, busy.size), 0, 1)
    count = times.size
    columns = {"host": ["here"] * count, "mono_ns": times.tolist(), "cpu_ratio": [None, *busy.tolist()]}
    none = [None] * count
    table = pa.table({one.name: pa.array(columns.get(one.name, none), one.type) for one in TABLES["samples"]})
    return replace(
        case.run, tables={**case.run.tables, "samples": table}, meta={**case.run.meta, "machine": {"cores": 2}}
    )


def test_use_by_class_is_found_though_readings_are_longer_than_classes(case):
    use = {GENERATING: 0.7, TRAINING: 0.95, WAITING: 0.2}
    found = cores_in_use(sampled(case, use, spread=0.03), case.figures.window)
    for name, value in use.items():
        assert found[name].low <= value <= found[name].high or found[name].value == pytest.approx(value, abs=0.05)
    assert found[GENERATING].value == pytest.approx(0.7, abs=0.05)


def test_no_readings_tell_nothing(case):
    run = replace(case.run, tables={**case.run.tables, "samples": empty("samples")})
    assert cores_in_use(run, case.figures.window) == {}
    assert contention({}, 2) is None


def of(value, spread=0.0):
    return Constant(value=value, low=value - spread, high=value + spread, unit="1", source="measured", n=60)


@pytest.mark.parametrize(
    ("use", "cores", "low", "high"),
    [
        ((1.0, 1.0, 0.0), 2, 1.0, 1.0),  # both need every core: each takes twice as long
        ((1.0, 1.0, 0.6), 2, 0.0, 1.0),  # most of it may be waiting with busy threads: nothing is known
        ((0.9, 0.8, 0.1), 2, 0.5, 1.0),
        ((0.02, 0.02, 0.0), 16, 0.0, 0.0),  # never a whole core's work between them
        ((0.3, 0.3, 0.0), 2, 0.0, 0.2),
    ],
)
def test_contention_lies_between_even_sharing_and_taking_turns(use, cores, low, high):
    named = dict(zip((GENERATING, TRAINING, WAITING), map(of, use), strict=True))
    found = contention(named, cores)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert found.value == pytest.approx((low + high) / 2)


def test_waiting_that_never_occurred_leaves_open_what_is_needed():
    assert contention({GENERATING: of(1.0), TRAINING: of(1.0)}, 2).low == 0.0


def test_a_run_s_readings_take_the_place_of_the_judgement(case, tmp_path):
    plain = calibrate_run(case.run, case.figures)
    assert plain.contention is None  # virtual time has no readings
    assert priors_of(plain)[SHARED.name] == SHARED
    known = calibrate_run(sampled(case, {GENERATING: 1.0, TRAINING: 1.0, WAITING: 0.6}), case.figures)
    assert known.contention is not None
    assert priors_of(known)[SHARED.name].constant == known.contention
    write(known, tmp_path / "c.json")
    assert read(tmp_path / "c.json") == known


def test_an_async_run_s_constants_hold_contention_already(overlapped):
    """Simulated beside each other they would be slowed a second time."""
    known = calibrate_run(overlapped.run, overlapped.figures)
    assert known.contention is None
    assert SHARED.name not in needed(known, BOTH)
    ends = [predict(known, BOTH, {**centre(known), SHARED.name: place}, updates=20, seed=1) for place in (0.0, 1.0)]
    assert ends[0].window_s == ends[1].window_s
    assert any("what either side would take alone" in said for said in known.unseen)


def test_turns_that_a_sync_interrupted_tell_nothing_of_generation(overlapped):
    """Their seconds hold the pause, which a plan simulates: with syncs of an hour the fit must stay what it is."""
    window, run = overlapped.figures.window, overlapped.run
    turns = run.tables["turns"]
    begins = np.sort(np.array(run.tables["weight_syncs"].column("start_ns").to_pylist()))
    start, end = (np.array(turns.column(name).to_pylist()) for name in ("start_ns", "end_ns"))
    hit = np.searchsorted(begins, end) > np.searchsorted(begins, start, side="right")
    assert 0 < hit.sum() < hit.size / 2
    early = np.where(hit, start - 2_000_000_000, start)
    longer = turns.set_column(turns.schema.get_field_index("start_ns"), turns.schema.field("start_ns"), pa.array(early))
    spoilt = replace(run, tables={**run.tables, "turns": longer})
    one, other = (calibrate_run(each, overlapped.figures).constants["token_s"].value for each in (run, spoilt))
    assert other == pytest.approx(one, rel=0.05)
    assert window is not None


def test_planned_work_is_the_preset_s_and_live_work_is_what_was_seen(case):
    """A run of a few steps is a small sample of its preset: the next run has other trajectories of the same law."""
    planned = calibrate_run(case.run, case.figures)
    assert planned.laws == PLANNED
    assert len(planned.turns) > 2000
    assert sum(planned.turns) / len(planned.turns) == pytest.approx(5.5, rel=0.02)  # 1 to 8 calls, and the answer
    run = case.run
    calls = run.tables["tool_calls"]
    none = pa.nulls(calls.num_rows, pa.int64())
    unplanned = calls.set_column(calls.schema.get_field_index("planned_ns"), calls.schema.field("planned_ns"), none)
    seen = calibrate_run(replace(run, tables={**run.tables, "tool_calls": unplanned}), case.figures)
    lives = run.frame("trajectories")
    used = lives[lives["step_consumed"].notna()]
    assert seen.laws == SEEN
    assert sorted(seen.turns) == sorted(int(turns) for turns in used["turns"])


def test_calls_that_were_cut_short_are_no_tool_s_seconds(case):
    run = case.run
    calls = run.tables["tool_calls"]
    place = calls.schema.get_field_index("status")
    gone = pa.array(["cancelled" if k % 2 else one for k, one in enumerate(calls.column("status").to_pylist())])
    end = np.array(calls.column("end_ns").to_pylist())
    end[1::2] = np.array(calls.column("start_ns").to_pylist())[1::2] + 1
    cut = calls.set_column(place, calls.schema.field("status"), gone)
    cut = cut.set_column(cut.schema.get_field_index("end_ns"), cut.schema.field("end_ns"), pa.array(end))
    none = pa.nulls(cut.num_rows, pa.int64())
    cut = cut.set_column(cut.schema.get_field_index("planned_ns"), cut.schema.field("planned_ns"), none)
    found = calibrate_run(replace(run, tables={**run.tables, "tool_calls": cut}), case.figures)
    assert min(found.tool_s) > 1e-6
