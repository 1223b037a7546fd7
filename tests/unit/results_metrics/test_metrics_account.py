"""The time account against histories whose class is known at every instant."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_histories import History, ns

from results.account import Account, UnitAccount, make_account
from results.classes import Class
from results.tracks import tracks
from results.window import Window

END = 40  # seconds of the generated histories
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


def _account(history: History, low: float = 0, high: float = END, steps: int = 1) -> Account:
    run = history.run()
    edges = tuple(ns(low + (high - low) * i / steps) for i in range(steps + 1))
    window = Window(start_ns=edges[0], end_ns=edges[-1], after_step=0, last_step=steps, boundaries_ns=edges)
    return make_account(run, tracks(run), window)


def _labels(unit: UnitAccount, end: int = END) -> list[str]:
    """The class in the middle of each second."""
    names, edges = list(Class), unit.timeline.edges.tolist()
    cell, found = 0, []
    for second in range(end):
        while edges[cell + 1] <= ns(second + 0.5):
            cell += 1
        found.append(names[unit.timeline.codes[cell]].value)
    return found


def _unit(account: Account, name: str) -> UnitAccount:
    return next(unit for unit in account.units if unit.unit == name)


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

    account = _account(history)
    by_engine = any(part.kind == "turn" for *_, parts, _ in made for part in parts) and account.granularity == "engine"
    assert _labels(_unit(account, "train")) == train
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
        assert _labels(_unit(account, "rollout" if engine is None else f"e{engine}")) == expected
    for unit in account.units:
        assert sum(unit.seconds.values()) == pytest.approx(END)
        busy_s = sum(_unit(account, "train").seconds.get(name, 0) for name in ("train", "logprob", "host"))
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
    account = _account(history)
    open_at = [any(s <= t < s + n for s, n in turns) for t in range(END)]
    expected = [
        ("generating" if running else "agent") if phase == "generation" else "other" if phase == "gap" else phase
        for phase, running in zip(phase_at, open_at, strict=True)
    ]
    assert account.granularity == "pool"
    assert _labels(_unit(account, "both")) == expected


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
    whole, planted = _account(_named(0.0), steps=4), _account(_named(0.5), steps=4)
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
    account = _account(history)
    assert account.granularity == "engine"
    assert {unit.unit: unit.coverage for unit in account.units} == {"train": 1.0, "e0": 1.0, "e1": 1.0}
    assert _unit(account, "e1").seconds == pytest.approx({"generating": 10.0, "empty": 30.0})


def test_a_cancelled_turn_does_not_hide_the_engines() -> None:
    history = _named(0.0)
    history.rows["turns"].clear()
    history.turn("t", 0, 30, "e0", generated_tokens=9)
    history.turn("t", 30, 100, stop_reason="cancelled")  # no reply, so nobody said which engine
    account = _account(history)
    assert account.granularity == "engine"
    assert _unit(account, "e0").seconds == pytest.approx({"generating": 40.0})


def test_a_replica_that_no_turn_came_from_is_a_unit_too() -> None:
    history = _named(0.0)
    history.rows["turns"].clear()
    history.turn("t", 0, 100, "e0")
    account = _account(history)
    silent = _unit(account, "no turn seen 1")
    assert silent.gpus == 1
    assert silent.seconds == pytest.approx({"empty": 40.0})
    assert account.pool_seconds("rollout") == pytest.approx({"generating": 20.0, "empty": 20.0})


def test_leaves_that_overlap_in_one_process_are_a_defect_and_the_innermost_wins() -> None:
    history = History("disaggregated")
    history.span("train", 0, 40, pid=1)
    history.span("logprob", 10, 15, pid=1)
    history.span("weight_sync", 30, 35, pid=2)  # another process: no defect, and the first class wins
    account = _account(history)
    assert (account.overlaps, account.overlap_s) == (1, 5.0)
    assert _unit(account, "train").seconds == pytest.approx({"train": 30.0, "logprob": 5.0, "weight_sync": 5.0})


def test_one_sync_recorded_once_per_engine_is_no_overlap() -> None:
    history = History("colocated")
    for _ in range(8):
        history.span("weight_sync", 0, 40, "both")
    assert _account(history).overlaps == 0


def test_down_is_before_the_hello_and_after_the_bye() -> None:
    history = History("disaggregated")
    history.process("controller", 4, 30)
    history.span("train", 0, 40)
    account = _account(history)
    assert _unit(account, "train").seconds == pytest.approx({"down": 14.0, "train": 26.0})
    assert _unit(account, "rollout").seconds["down"] == pytest.approx(14.0)


def _lose(history: History, *gpus: tuple[str, float, float | None]) -> None:
    """Each GPU goes at the second, and comes back at the third."""
    for gpu, gone, back in gpus:
        message = f"GPU 0 ({gpu}): GPU is lost"
        history.add("failures", boundary="telemetry", type="GpuLostError", message=message, mono_ns=ns(gone))
        if back is not None:
            labels = json.dumps({"gpu": gpu})
            history.add("probes", name="telemetry.gpu_returned", value=1.0, mono_ns=ns(back), labels_json=labels)


def _two_pools() -> History:
    history = History("disaggregated")
    history.process("train", -5, gpu_uuids=["GPU-0", "GPU-1"], pool="train")
    history.process("rollout", -5, gpu_uuids=["GPU-2", "GPU-3"], pool="rollout")
    history.span("train", 0, 40)
    history.life("t", 0, 40)
    for engine, start in (("e0", 0), ("e1", 20)):
        history.turn("t", start, start + 20, engine)
    return history


def test_a_unit_that_needs_a_lost_gpu_is_down_until_it_is_back() -> None:
    history = _two_pools()
    _lose(history, ("GPU-0", 10, 16), ("GPU-1", 14, None), ("GPU-9", 1, None))
    account = _account(history)
    assert _unit(account, "train").seconds == pytest.approx({"train": 10.0, "down": 30.0})
    assert "down" not in _unit(account, "e0").seconds


def test_engines_are_down_when_too_few_gpus_are_left_for_any() -> None:
    one = _two_pools()
    _lose(one, ("GPU-2", 10, None))
    for name in ("e0", "e1"):  # which of them had it is not known
        assert "down" not in _unit(_account(one), name).seconds
    both = _two_pools()
    _lose(both, ("GPU-2", 10, 30), ("GPU-3", 25, None))
    for name in ("e0", "e1"):
        assert _unit(_account(both), name).seconds["down"] == pytest.approx(5.0)
    assert "down" not in _unit(_account(both), "train").seconds
    shared = _two_pools()  # one replica on both GPUs
    shared.changes["rollout_tp"] = 2
    shared.rows["turns"].pop()
    _lose(shared, ("GPU-2", 10, None))
    assert _unit(_account(shared), "e0").seconds == pytest.approx({"generating": 10.0, "down": 30.0})


def test_together_a_lost_gpu_puts_the_training_down_and_the_engine_that_spans_it() -> None:
    history = History("colocated")
    history.process("controller", -5, gpu_uuids=["GPU-0", "GPU-1"], pool="both")
    history.span("generation", 0, 20, "both")
    history.span("train", 20, 40, "both")
    history.life("t", 0, 20)
    history.turn("t", 0, 20, "e0")
    _lose(history, ("GPU-1", 15, 25))
    seconds = _unit(_account(history), "e0").seconds
    assert seconds == pytest.approx({"generating": 15.0, "down": 10.0, "train": 15.0})


def test_running_bands_and_the_mean_of_turns_at_once() -> None:
    history = History("async")
    history.life("t", 0, 40)
    for i in range(8):
        history.turn("t", 0, 20 if i else 40)
    rollout = _unit(_account(history), "rollout")
    assert rollout.mean_running == pytest.approx(4.5)
    assert rollout.low_band_s == pytest.approx(20.0)  # 1 turn is below a quarter of the p95, 8


def test_waiting_on_after_the_data_were_ready_is_polling() -> None:
    history = History("disaggregated")
    history.life("t", 0, 7)
    history.step(1, 40, ("t",))
    history.span("wait_rollout", 0, 10, step=1)
    assert _account(history).poll_s == pytest.approx(3.0)


def test_turns_of_a_killed_run_are_open_to_the_end() -> None:
    history = History("async")
    history.life("t", 0, None)
    history.turn("t", 0, 5, "e0")
    history.add("opens", id=3, phase="generation", native_name="turn", trajectory_id="t", start_ns=ns(10))
    account = _account(history)
    assert _unit(account, "e0").seconds == pytest.approx({"generating": 35.0, "agent": 5.0})


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
    account = _account(history)
    assert _unit(account, "e0").seconds["weight_sync"] == _unit(account, "e1").seconds["weight_sync"] == 5.0
    assert "weight_sync" not in _unit(account, "e0").hidden_seconds  # even while the trainer trained
    assert _unit(account, "e1").hidden_seconds["weight_sync"] == pytest.approx(5.0)


def test_a_turn_that_waits_in_a_queue_is_held_up_by_a_sync() -> None:
    history = _synced()
    history.turn("u", 35, 40, "e1", submitted_ns=ns(31))
    history.sync(2, 30, 33, "e1")
    assert _unit(_account(history), "e1").hidden_seconds["weight_sync"] == pytest.approx(1.0)


def test_turns_open_while_the_trainer_syncs_beside_the_pause_are_told() -> None:
    history = _synced()
    for engine in ("e0", "e1"):
        history.sync(2, 30, 33, engine)
    account = _account(history)
    assert account.evidence == "client"
    assert _unit(account, "e0").blocked_sync_s == pytest.approx(17.0)
    assert _unit(account, "e1").blocked_sync_s == 0.0
    assert account.blocked_sync_s == pytest.approx(8.5)
    assert _unit(account, "train").blocked_sync_s is None


def test_without_a_pause_on_record_what_a_sync_held_up_is_unknown() -> None:
    assert _account(_synced()).blocked_sync_s is None
    together = History("colocated")
    together.span("weight_sync", 0, 40, "both")
    together.sync(1, 0, 40, pool="both")
    assert _account(together).blocked_sync_s is None


def test_colocated_a_closed_gate_inside_the_generate_span_waits_for_no_other_pool() -> None:
    history = History("colocated")
    history.span("generation", 0, 30, "both")
    history.span("train", 30, 40, "both")
    history.life("t", 0, 20)
    history.turn("t", 0, 20)
    history.gate(20, False)
    seconds = _unit(_account(history), "both").seconds
    assert seconds == pytest.approx({"generating": 20.0, "agent": 10.0, "train": 10.0})
