"""What engines' readings add to the account and to the figures, in histories that are known."""

from dataclasses import dataclass

import numpy as np
import pytest
from engine_readings import reading
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_histories import History, ns

from results.account import Account, UnitAccount, make_account
from results.classes import Class
from results.counters import check_counters
from results.engine_samples import HELD_PERIODS, series_of
from results.engine_use import engines_use
from results.lifetimes import lifetimes
from results.metrics import _queued, compute
from results.replicas import replicas
from results.served import held, unserved
from results.throughput import Lives
from results.tracks import tracks
from results.window import Window

END = 30


def _window(low: float = 0, high: float = END) -> Window:
    return Window(start_ns=ns(low), end_ns=ns(high), after_step=0, last_step=1, boundaries_ns=(ns(low), ns(high)))


def _account(history: History) -> Account:
    run = history.run()
    return make_account(run, tracks(run), _window())


def _labels(unit: UnitAccount) -> list[str]:
    names, edges = list(Class), unit.timeline.edges
    cells = np.searchsorted(edges, [ns(t + 0.5) for t in range(END)], side="right") - 1
    return [names[unit.timeline.codes[cell]].value for cell in cells]


def _unit(account: Account, name: str) -> UnitAccount:
    return next(unit for unit in account.units if unit.unit == name)


@dataclass(frozen=True)
class Turn:
    """Seconds of one turn: it waits at its engine, then runs."""

    start: int
    waits: int
    runs: int
    engine: int

    @property
    def end(self) -> int:
        return min(self.start + self.waits + self.runs, END)

    def open(self, t: int) -> bool:
        return self.start <= t < self.end

    def running(self, t: int) -> bool:
        return self.start + self.waits <= t < self.end


turns = st.lists(
    st.builds(Turn, st.integers(0, END - 1), st.integers(0, 4), st.integers(1, 5), st.integers(0, 1)),
    min_size=1,
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(turns)
def test_with_a_reading_in_each_second_every_second_has_the_class_it_was_given(made: list[Turn]) -> None:
    history = History("disaggregated")
    for number, turn in enumerate(made):
        history.life(f"t{number}", turn.start, turn.end)
        history.turn(f"t{number}", turn.start, turn.end, f"e{turn.engine}")
    history.life("away", -100, -90)
    for engine in range(2):  # both are known, and were read
        history.turn("away", -100 + engine, -99 + engine, f"e{engine}")
        for t in range(END):
            mine = [turn for turn in made if turn.engine == engine]
            reading(history, t + 0.5, f"e{engine}", running_requests=sum(turn.running(t) for turn in mine))
    account = _account(history)
    assert (account.granularity, account.evidence) == ("engine", "engine")
    for engine in range(2):
        expected = []
        for t in range(END):
            mine = [turn for turn in made if turn.engine == engine and turn.open(t)]
            others = any(turn.open(t) for turn in made)
            if mine:
                expected.append("generating" if any(turn.running(t) for turn in mine) else "queued")
            else:
                expected.append("empty" if others else "other")
        unit = _unit(account, f"e{engine}")
        assert _labels(unit) == expected
        assert sum(unit.seconds.values()) == pytest.approx(END)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 9)), max_size=12),
    st.lists(st.tuples(st.floats(0.2, 3), st.floats(0, 0.09), st.integers(0, 2)), min_size=1, max_size=30),
)
def test_a_reading_of_none_speaks_of_turns_that_were_open_during_it_and_of_no_others(
    spans: list[tuple[float, float]], calls: list[tuple[float, float, int]]
) -> None:
    history, at = History(), 0.0
    for gap, margin, running in calls:
        at += gap
        reading(history, at, margin_s=margin, running_requests=running)
    series = series_of(history.run())["e0"]
    starts = np.array([ns(start) for start, _ in spans], dtype=np.int64)
    ends = np.array([ns(start + length) for start, length in spans], dtype=np.int64)
    found = sorted(zip(*(each.tolist() for each in unserved(series, (starts, ends))), strict=True))
    expected = []
    low, high = held(series.mono_ns, series.reach_ns)
    for k, running in enumerate(series.values["running_requests"].tolist()):
        begin, end = (int(series.mono_ns[k]) + sign * int(series.uncertainty_ns[k]) for sign in (-1, 1))
        for start, stop in zip(starts.tolist(), ends.tolist(), strict=True):
            if running == 0 and start <= begin and end <= stop:
                expected.append((max(start, int(low[k])), min(stop, int(high[k]))))
    assert found == sorted(expected)
    assert (low[1:] >= high[:-1]).all()  # no instant has two readings
    assert (np.abs(np.stack((low, high)) - series.mono_ns) <= series.reach_ns).all()


def test_a_reading_is_held_for_two_periods_and_beyond_it_the_clients_word_stands() -> None:
    history = History()
    history.life("a", 0, END)
    history.turn("a", 0, END, "e0")
    for t in (0.5, 1.5, 2.5, 3.5, 20.5):
        reading(history, t, running_requests=0)
    account = _account(history)
    unit = _unit(account, "e0")
    assert HELD_PERIODS == 2
    assert _labels(unit) == ["queued"] * 5 + ["generating"] * 13 + ["queued"] * 4 + ["generating"] * 8
    assert unit.engine_known == pytest.approx((5.5 + 4) / END)
    assert account.evidence == "client"  # too little of it is told


def test_a_turn_between_two_readings_of_none_was_generating() -> None:
    history = History()
    history.life("a", 0, END)
    for start in (0.6, 1.6, 2.6):
        history.turn("a", start, start + 0.8, "e0")
    for t in range(END):
        reading(history, t + 0.5, running_requests=0)
    seconds = _unit(_account(history), "e0").seconds
    assert "queued" not in seconds
    assert seconds["generating"] == pytest.approx(2.4)


def test_one_served_turn_among_waiting_ones_is_generating() -> None:
    history = History()
    for name, start in (("a", 0), ("b", 4)):
        history.life(name, start, 8)
        history.turn(name, start, 8, "e0")
    for t in range(END):
        reading(history, t + 0.5, running_requests=0 if t < 4 else 1, waiting_requests=1)
    assert _labels(_unit(_account(history), "e0"))[:9] == ["queued"] * 4 + ["generating"] * 4 + ["other"]


def test_where_turns_name_no_engine_the_engines_own_counts_make_the_units() -> None:
    history = History("async")
    for name in ("a", "b"):
        history.life(name, 0, 20)
        history.turn(name, 0, 10)
        history.tool(name, 10, 15)
    for t in range(END):
        reading(history, t + 0.5, "e0", running_requests=2 if t < 10 else 0, waiting_requests=0)
        reading(history, t + 0.5, "e1", running_requests=0, waiting_requests=1 if t < 4 else 0)
    account = _account(history)
    assert (account.granularity, account.evidence) == ("metric", "engine")
    first, second = (_unit(account, name) for name in ("e0", "e1"))
    after = ["tool_wait"] * 5 + ["agent"] * 5 + ["other"] * 10
    assert _labels(first) == ["generating"] * 10 + after
    assert _labels(second) == ["queued"] * 4 + ["empty"] * 6 + after
    assert first.mean_running == pytest.approx(2.0)
    assert [unit.gpus for unit in (first, second)] == [1.0, 1.0]


def _pool_of_two(until: float = 20) -> History:
    """Two engines that turns don't name: the first runs two turns until 10, the second none."""
    history = History("async")
    for name in ("a", "b"):
        history.life(name, 0, until)
        history.turn(name, 0, 10)
        history.tool(name, 10, 15)
    for t in range(END):
        reading(history, t + 0.5, "e0", running_requests=2 if t < 10 else 0, waiting_requests=0)
    return history


@pytest.mark.parametrize("failed", [0, END], ids=["never asked", "HTTP 500"])
def test_an_engine_that_never_answered_makes_the_pool_one_unit_and_is_not_called_idle(failed: int) -> None:
    history = _pool_of_two()
    for t in range(failed):
        history.add("engine_samples", engine="e1", mono_ns=ns(t + 0.5), reason="HTTP 500")
    account = _account(history)
    assert (account.granularity, account.evidence) == ("pool", "client")
    assert account.why_pool == "turns name no engine, and of 1 of 2 engines no reading tells of the window"
    expected = ["generating"] * 10 + ["tool_wait"] * 5 + ["agent"] * 5 + ["other"] * 10
    assert _labels(_unit(account, "rollout")) == expected
    compute(history.run())


def test_while_an_engine_does_not_answer_nobody_knows_what_it_does_unless_no_turn_is_open() -> None:
    history = _pool_of_two()
    for t in (*range(2), *range(8, END)):  # out from 1.5 to 8.5: believed for two periods to either side
        reading(history, t + 0.5, "e1", running_requests=0, waiting_requests=0)
    account = _account(history)
    assert (account.granularity, account.why_pool) == ("metric", None)
    after = ["tool_wait"] * 5 + ["agent"] * 5 + ["other"] * 10
    assert _labels(_unit(account, "e0")) == ["generating"] * 10 + after
    second = _unit(account, "e1")
    # The readings of 1.5 and 8.5 speak until 3.5 and from 6.5.
    assert second.seconds["other"] == pytest.approx(3 + 10)
    assert second.seconds["empty"] == pytest.approx(7)
    assert second.engine_known == pytest.approx(0.7)
    assert compute(history.run()).figures["queued_share"].value is None
    quiet = History("async")  # the same, and no turn is open meanwhile
    quiet.life("a", 0, 20)
    quiet.tool("a", 0, 20)
    for engine, asked in (("e0", range(END)), ("e1", (0, 1, *range(25, END)))):
        for t in asked:
            reading(quiet, t + 0.5, engine, running_requests=0, waiting_requests=0)
    for engine in ("e0", "e1"):
        assert _labels(_unit(_account(quiet), engine)) == ["tool_wait"] * 20 + ["other"] * 10


def test_a_page_without_the_running_count_tells_nothing_of_its_engine() -> None:
    history = _pool_of_two()
    for t in range(END):
        reading(history, t + 0.5, "e1", kv_cache_ratio=0.5)
    assert _account(history).why_pool == "turns name no engine, and of e1 no reading tells of the window"


@pytest.mark.parametrize("named", [True, False], ids=["turns", "readings"])
def test_an_engine_that_is_back_on_another_address_is_the_same_replica(named: bool) -> None:
    history = History("async")
    history.life("a", 0, END)
    history.life("b", 0, END)
    for name, engine, start, end in (("a", "e0", 0, 30), ("b", "e1", 0, 10), ("b", "e2", 20, 30)):
        history.turn(name, start, end, engine if named else None)
        for t in range(start, end):
            reading(history, t + 0.5, engine, running_requests=1, waiting_requests=0)
    account = _account(history)
    assert account.granularity == ("engine" if named else "metric")
    assert [(unit.unit, unit.gpus) for unit in account.units] == [("train", 2), ("e0", 1.0), ("e1, then e2", 1.0)]
    seconds = _unit(account, "e1, then e2").seconds
    assert seconds["generating"] == pytest.approx(20.0 if named else 23.0)  # a reading speaks for 2 s to either side
    assert account.pool_seconds("rollout")["generating"] == pytest.approx(25.0 if named else 26.5)


def test_a_replica_that_had_no_turn_takes_nothing_from_what_the_others_tell() -> None:
    history = History("async")
    history.life("a", 0, END)
    history.turn("a", 0, END, "e0")
    for t in range(END):
        reading(history, t + 0.5, "e0", running_requests=0 if t < 6 else 1)
    account = _account(history)
    assert [unit.engine_known for unit in account.units] == [None, 1.0, None]
    assert account.evidence == "engine"
    assert _queued(account) == (pytest.approx(0.1), "")  # 6 s of 30 s, on one engine of two


def test_servers_that_were_there_at_the_same_time_are_replicas_of_their_own() -> None:
    assert replicas({"a": (0, 10), "b": (2, 5), "c": (5, 9), "d": (12, 15)}, 2) == (("a",), ("b", "c", "d"))
    assert replicas({"a": (0, 10), "b": (2, 5), "c": (4, 9)}, 2) == (("a",), ("b",), ("c",))  # the spec is wrong
    assert replicas({"a": (0, 3), "b": (5, 9)}, 2) == (("a",), ("b",))
    assert replicas({"a": (0, 3), "b": (5, 9), "c": (10, 11)}, 1) == (("a", "b", "c"),)
    assert replicas({}, 1) == ()


def test_trajectory_seconds_tell_what_queued_by_the_engines_readings_and_still_close() -> None:
    history = History("async")
    for name in ("a", "b"):
        history.life(name, 0, 12)
        history.turn(name, 0, 10, "e0")
    history.sync(1, 4, 6, "e0")
    for t in range(END):
        reading(history, t + 0.5, running_requests=2 if 6 <= t < 10 else 0)
    run = history.run()
    arrays = tracks(run)
    found = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    # 10 s of each turn: 4 s before the sync, 2 s in it, 4 s running
    seconds = {name: found.seconds[name] for name in ("queued", "paused", "generating", "agent")}
    assert seconds == {"queued": 8.0, "paused": 4.0, "generating": 8.0, "agent": 4.0}
    assert found.queued_by_engine
    assert sum(value or 0.0 for value in found.seconds.values()) == pytest.approx(found.total_s)
    blind = History("async")
    blind.life("a", 0, 12)
    blind.turn("a", 0, 10, "e0")
    reading(blind, 1, running_requests=0)
    run = blind.run()
    arrays = tracks(run)
    found = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    assert (found.seconds["queued"], found.queued_by_engine) == (None, False)


def test_without_readings_the_account_is_as_it_was() -> None:
    history = History()
    history.life("a", 0, 10)
    history.turn("a", 0, 10, "e0")
    account = _account(history)
    assert (account.granularity, account.evidence) == ("engine", "client")
    assert _unit(account, "e0").engine_known is None


def test_an_engines_use_is_the_mean_of_its_gauges_and_the_growth_of_its_counters() -> None:
    history = History()
    for t, running in enumerate([0, 8, 8, 1, 8]):
        reading(
            history,
            t,
            running_requests=running,
            waiting_requests=t,
            kv_cache_ratio=t / 10,
            prompt_tokens=1_000 * t,
            prefix_hit_tokens=600 * t,
            generation_tokens=100 * t,
            preemptions=t // 2,
            margin_s=0.002,
        )
        if t == 2:
            history.add("engine_samples", engine="e0", mono_ns=ns(2.5), reason="timed out")
    history.add("engine_samples", engine="e0", mono_ns=ns(5), reason="gone with the run")
    history.add("probes", name="telemetry.engines.cpu", mono_ns=ns(9), value=0.25, unit="s", labels_json="{}")
    use = engines_use(history.run(), _window())
    assert use.scraper_cpu_s == 0.25
    (engine,) = use.engines
    assert (engine.readings, engine.failed) == (5, 1)
    assert engine.call_s == pytest.approx(0.004)
    assert (engine.running, engine.busy_share, engine.low_share) == (6.25, 0.8, 0.2)
    assert (engine.waiting, engine.waiting_max) == (2.0, 4.0)
    assert engine.kv_mean == pytest.approx(0.2)
    assert engine.kv_max == pytest.approx(0.4)
    assert (engine.prompt_tokens, engine.prefilled_tokens, engine.generated_tokens) == (4_000, 1_600, 400)
    assert engine.preemptions == 2
    assert use.prefix_hit_ratio == pytest.approx(0.6)
    assert use.prefill_share == pytest.approx(1_600 / 2_000)


def test_a_counter_that_began_again_loses_only_what_was_not_read() -> None:
    history = History()
    for t, value in enumerate([5, 9, 2, 4]):
        reading(history, t, generation_tokens=value)
    (engine,) = engines_use(history.run(), _window()).engines
    assert engine.generated_tokens == 4 + 2 + 2
    assert engine.prompt_tokens is None
    assert engine.running is None


def test_what_is_not_told_is_none_with_the_reason_the_engine_gave() -> None:
    history = History("async")
    history.add("engine_samples", engine="e0", mono_ns=ns(1), reason="no endpoint here")
    use = engines_use(history.run(), _window())
    assert (use.engines, use.reason) == ((), "no endpoint here")
    assert check_counters(history.run()).why == "no engine's counter of generated tokens was read; no endpoint here"
    assert use.prefill_share is use.prefix_hit_ratio is None
    assert engines_use(History().run(), _window()).reason == "no engine announced where it tells its numbers"
    figures = compute(history.run()).figures
    assert figures["queued_share"].value is figures["engine_running_mean"].value is None
    assert all(figures[name].note for name in ("queued_share", "engine_running_mean", "prefix_hit_ratio"))
