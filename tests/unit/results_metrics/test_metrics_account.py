"""The time account against histories whose class is known at every instant."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_accounts import END, account_of, labels_of, unit_named
from recorded_histories import History, ns

PHASES = {
    "weight_sync": "weight_sync",
    "offload": "offload",
    "checkpoint": "checkpoint",
    "eval": "eval",
    "train": "train",
    "logprob": "logprob",
    "reward": "host",
    "advantage": "host",
    "data": "host",
    "overhead": "host",
    "wait_rollout": "wait_rollout",
    "other": "other",
}


@dataclass(frozen=True)
class Stretch:
    kind: str
    engine: int
    seconds: int


lives = st.lists(
    st.tuples(
        st.integers(-5, END - 1),  # start
        st.integers(0, 3),  # seconds before the first turn
        st.lists(
            st.builds(Stretch, st.sampled_from(["turn", "tool", "agent"]), st.integers(0, 1), st.integers(1, 6)),
            max_size=6,
        ),
        st.booleans(),  # ends, or is open to the end of the record
    ),
    max_size=6,
)
stretches = st.lists(st.tuples(st.integers(0, END), st.integers(0, 8)), max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    lives,
    st.lists(st.tuples(st.sampled_from([*PHASES, "gap"]), st.integers(1, 6)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, END), st.integers(0, 8), st.sampled_from([None, 0, 1])), max_size=3),
    stretches,
    st.sampled_from(["disaggregated", "async"]),
)
def test_every_instant_has_the_class_it_was_given(
    made: list[tuple[int, int, list[Stretch], bool]],
    track: list[tuple[str, int]],
    syncs: list[tuple[int, int, int | None]],
    closed: list[tuple[int, int]],
    placement: str,
) -> None:
    history = History(placement)
    train = ["other"] * END
    at = 0
    for phase, seconds in track:
        for t in range(at, min(at + seconds, END)):
            train[t] = PHASES.get(phase, "other")
        if phase != "gap":
            history.span(phase, at, at + seconds)
        at += seconds
    # What each trajectory does, second by second: (engine it belongs to or None, activity).
    doing: list[dict[int, tuple[int | None, str]]] = []
    for i, (start, before, parts, ends) in enumerate(made):
        name, now, engine = f"t{i}", start, None
        seconds: dict[int, tuple[int | None, str]] = {}
        if any(part.kind == "turn" for part in parts):
            now += before
            seconds.update(dict.fromkeys(range(start, now), (None, "agent")))
        for part in parts:
            until = now + part.seconds
            if part.kind == "turn":
                engine = part.engine
                history.turn(name, now, until, f"e{engine}")
            elif part.kind == "tool":
                history.tool(name, now, until)
            seconds.update(dict.fromkeys(range(now, until), (engine, part.kind)))
            now = until
        if not ends:
            seconds.update(dict.fromkeys(range(now, END), (engine, "agent")))
        history.life(name, start, now if ends else None)
        doing.append(seconds)
    history.life("away", -100, -90)  # so that both engines are known
    for engine in range(2):
        history.turn("away", -100 + engine, -99 + engine, f"e{engine}")
    for start, seconds_, engine_ in syncs:
        history.sync(1, start, start + seconds_, None if engine_ is None else f"e{engine_}")
    shut = set()
    for start, seconds_ in sorted(closed):
        shut |= set(range(start, start + seconds_))
    for t in range(-1, END + 10):
        if (t in shut) != (t - 1 in shut) or t == -1:
            history.gate(t, t not in shut)

    account = account_of(history)
    by_engine = any(part.kind == "turn" for *_, parts, _ in made for part in parts) and account.granularity == "engine"
    assert labels_of(unit_named(account, "train")) == train
    units = [0, 1] if by_engine else [None]
    for engine in units:
        expected = []
        for t in range(END):
            here = [s[t] for s in doing if t in s]
            mine = [kind for owner, kind in here if engine is None or owner == engine]
            synced = any(s <= t < s + n and (engine is None or e in (None, engine)) for s, n, e in syncs)
            busy = train[t] not in ("other", "wait_rollout") and placement == "disaggregated"
            expected.append(
                "weight_sync"
                if synced
                else "generating"
                if "turn" in mine
                else "tool_wait"
                if "tool" in mine
                else "agent"
                if mine
                else "empty"
                if here
                else "wait_train"
                if t in shut or busy
                else "other"
            )
        assert labels_of(unit_named(account, "rollout" if engine is None else f"e{engine}")) == expected
    for unit in account.units:
        assert sum(unit.seconds.values()) == pytest.approx(END)
        busy_s = sum(unit_named(account, "train").seconds.get(name, 0) for name in ("train", "logprob", "host"))
        # A sync is judged by whom it holds up: it can be hidden while the trainer is in that sync itself.
        behind = {name: s for name, s in unit.hidden_seconds.items() if name != "weight_sync"}
        assert sum(behind.values()) <= busy_s + 1e-6
        assert all(unit.hidden_seconds[name] <= unit.seconds[name] + 1e-9 for name in unit.hidden_seconds)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["generation", "train", "weight_sync", "offload", "gap"]), st.integers(1, 9))),
    st.lists(st.tuples(st.integers(0, END), st.integers(1, 6)), max_size=6),
)
def test_colocated_has_rollout_classes_inside_the_native_generate_span_only(
    track: list[tuple[str, int]], turns: list[tuple[int, int]]
) -> None:
    history = History("colocated")
    phase_at, at = ["gap"] * END, 0
    for phase, seconds in track:
        for t in range(at, min(at + seconds, END)):
            phase_at[t] = phase
        if phase != "gap":
            history.span(phase, at, at + seconds, "both")
        at += seconds
    history.life("t", 0, 2 * END)
    for start, seconds in turns:
        history.turn("t", start, start + seconds)
    account = account_of(history)
    open_at = [any(s <= t < s + n for s, n in turns) for t in range(END)]
    expected = [
        ("generating" if running else "agent") if phase == "generation" else "other" if phase == "gap" else phase
        for phase, running in zip(phase_at, open_at, strict=True)
    ]
    assert account.granularity == "pool"
    assert labels_of(unit_named(account, "both")) == expected


def _named(hole: float) -> History:
    """Four steps of 10 s with every second named, and a hole between two native timers."""
    history = History("disaggregated")
    history.life("t", 0, 100)
    history.turn("t", 0, 100)
    for step in range(4):
        begin = step * 10
        cut = begin + 6 + (hole if step == 2 else 0)
        history.span("wait_rollout", begin, begin + 6, step=step + 1)
        history.span("train", cut, begin + 9, step=step + 1)
        history.span("weight_sync", begin + 9, begin + 10, step=step + 1)
        history.span(None, begin, begin + 10, container=True)  # a container covers nothing
    return history


def test_half_a_second_asleep_between_native_timers_is_half_a_second_of_other() -> None:
    whole, planted = account_of(_named(0.0), steps=4), account_of(_named(0.5), steps=4)
    assert whole.coverage == 1.0
    rise = planted.worst.other_s - whole.worst.other_s
    assert rise == pytest.approx(0.5, rel=0.05)
    assert planted.worst.unit == "train"
    assert planted.coverage == pytest.approx(1 - 0.5 / 40)
    assert not planted.covered  # allowed: the larger of 1 % of 40 s and 4 x 50 ms
    assert planted.allowed_other_s == pytest.approx(0.4)


def test_coverage_is_that_of_the_worst_unit() -> None:
    history = _named(0.0)
    history.rows["turns"].clear()
    history.turn("t", 0, 100, "e0")
    history.life("u", 0, 10)
    history.turn("u", 0, 10, "e1")
    account = account_of(history)
    assert account.granularity == "engine"
    assert {unit.unit: unit.coverage for unit in account.units} == {"train": 1.0, "e0": 1.0, "e1": 1.0}
    assert unit_named(account, "e1").seconds == pytest.approx({"generating": 10.0, "empty": 30.0})


def test_a_cancelled_turn_does_not_hide_the_engines() -> None:
    history = _named(0.0)
    history.rows["turns"].clear()
    history.turn("t", 0, 30, "e0", generated_tokens=9)
    history.turn("t", 30, 100, stop_reason="cancelled")  # no reply, so nobody said which engine
    account = account_of(history)
    assert account.granularity == "engine"
    assert unit_named(account, "e0").seconds == pytest.approx({"generating": 40.0})


def test_a_replica_that_no_turn_came_from_is_a_unit_too() -> None:
    history = _named(0.0)
    history.rows["turns"].clear()
    history.turn("t", 0, 100, "e0")
    account = account_of(history)
    silent = unit_named(account, "no turn seen 1")
    assert silent.gpus == 1
    assert silent.seconds == pytest.approx({"empty": 40.0})
    assert account.pool_seconds("rollout") == pytest.approx({"generating": 20.0, "empty": 20.0})


def test_leaves_that_overlap_in_one_process_are_a_defect_and_the_innermost_wins() -> None:
    history = History("disaggregated")
    history.span("train", 0, 40, pid=1)
    history.span("logprob", 10, 15, pid=1)
    history.span("weight_sync", 30, 35, pid=2)  # another process: no defect, and the first class wins
    account = account_of(history)
    assert (account.overlaps, account.overlap_s) == (1, 5.0)
    assert unit_named(account, "train").seconds == pytest.approx({"train": 30.0, "logprob": 5.0, "weight_sync": 5.0})


def test_one_sync_recorded_once_per_engine_is_no_overlap() -> None:
    history = History("colocated")
    for _ in range(8):
        history.span("weight_sync", 0, 40, "both")
    assert account_of(history).overlaps == 0


def test_running_bands_and_the_mean_of_turns_at_once() -> None:
    history = History("async")
    history.life("t", 0, 40)
    for i in range(8):
        history.turn("t", 0, 20 if i else 40)
    rollout = unit_named(account_of(history), "rollout")
    assert rollout.mean_running == pytest.approx(4.5)
    assert rollout.low_band_s == pytest.approx(20.0)  # 1 turn is below a quarter of the p95, 8


def test_waiting_on_after_the_data_were_ready_is_polling() -> None:
    history = History("disaggregated")
    history.life("t", 0, 7)
    history.step(1, 40, ("t",))
    history.span("wait_rollout", 0, 10, step=1)
    assert account_of(history).poll_s == pytest.approx(3.0)


def test_turns_of_a_killed_run_are_open_to_the_end() -> None:
    history = History("async")
    history.life("t", 0, None)
    history.turn("t", 0, 5, "e0")
    history.add("opens", id=3, phase="generation", native_name="turn", trajectory_id="t", start_ns=ns(10))
    account = account_of(history)
    assert unit_named(account, "e0").seconds == pytest.approx({"generating": 35.0, "agent": 5.0})


def _synced() -> History:
    """The trainer trains for 20 s and syncs for 20 s; e0 has a turn open throughout, e1 only tool calls after 5 s."""
    history = History("async")
    history.span("train", 0, 20)
    history.span("weight_sync", 20, 40)
    history.life("t", 0, 40)
    history.turn("t", 0, 40, "e0")
    history.life("u", 0, 40)
    history.turn("u", 0, 5, "e1")
    history.tool("u", 5, 40)
    return history


def test_a_sync_is_exposed_where_it_holds_up_a_turn_and_hidden_where_it_holds_up_none() -> None:
    history = _synced()
    for engine in ("e0", "e1"):
        history.sync(1, 10, 12, engine)
        history.sync(2, 30, 33, engine)
    account = account_of(history)
    assert unit_named(account, "e0").seconds["weight_sync"] == unit_named(account, "e1").seconds["weight_sync"] == 5.0
    assert "weight_sync" not in unit_named(account, "e0").hidden_seconds  # even while the trainer trained
    assert unit_named(account, "e1").hidden_seconds["weight_sync"] == pytest.approx(5.0)


def test_a_turn_that_waits_in_a_queue_is_held_up_by_a_sync() -> None:
    history = _synced()
    history.turn("u", 35, 40, "e1", submitted_ns=ns(31))
    history.sync(2, 30, 33, "e1")
    assert unit_named(account_of(history), "e1").hidden_seconds["weight_sync"] == pytest.approx(1.0)


def test_turns_open_while_the_trainer_syncs_beside_the_pause_are_told() -> None:
    history = _synced()
    for engine in ("e0", "e1"):
        history.sync(2, 30, 33, engine)
    account = account_of(history)
    assert account.evidence == "client"
    assert unit_named(account, "e0").blocked_sync_s == pytest.approx(17.0)
    assert unit_named(account, "e1").blocked_sync_s == 0.0
    assert account.blocked_sync_s == pytest.approx(8.5)
    assert unit_named(account, "train").blocked_sync_s is None


def test_without_a_pause_on_record_what_a_sync_held_up_is_unknown() -> None:
    assert account_of(_synced()).blocked_sync_s is None
    together = History("colocated")
    together.span("weight_sync", 0, 40, "both")
    together.sync(1, 0, 40, pool="both")
    assert account_of(together).blocked_sync_s is None


def test_colocated_a_closed_gate_inside_the_generate_span_waits_for_no_other_pool() -> None:
    history = History("colocated")
    history.span("generation", 0, 30, "both")
    history.span("train", 30, 40, "both")
    history.life("t", 0, 20)
    history.turn("t", 0, 20)
    history.gate(20, False)
    seconds = unit_named(account_of(history), "both").seconds
    assert seconds == pytest.approx({"generating": 20.0, "agent": 10.0, "train": 10.0})
