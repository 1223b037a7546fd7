"""Throughput, goodput, MFU and the ledgers of hand-made windows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_histories import History, ns

from harness.protocol.models import SHAPES
from results.account import make_account
from results.lifetimes import lifetimes
from results.throughput import Lives, Throughput, peak_flops, throughput
from results.tracks import tracks
from results.window import Window

LOW, HIGH = 100, 200


def _window(low: float = LOW, high: float = HIGH) -> Window:
    return Window(start_ns=ns(low), end_ns=ns(high), after_step=1, last_step=2, boundaries_ns=(ns(low), ns(high)))


def _found(history: History) -> Throughput:
    run, window = history.run(), _window()
    arrays = tracks(run)
    return throughput(run, arrays, window, make_account(run, arrays, window), Lives.of(run, arrays))


def _one(history: History, name: str, begin: float, end: float, tokens: int, **more: object) -> None:
    """A trajectory of one turn as long as its life."""
    values = {"generated_tokens": tokens, "prompt_tokens": 100, "observation_tokens": 0, "version_first": 0, **more}
    history.life(name, begin, end, **values)
    history.turn(name, begin, end, generated_tokens=tokens, prompt_tokens=100)


def test_tokens_of_a_turn_across_an_edge_count_by_its_time_inside_and_rates_by_all_gpus() -> None:
    history = History("async", {"max_staleness": 1})
    _one(history, "before", 20, 120, 500)  # 20 s of 100 inside
    _one(history, "inside", 130, 140, 300)
    _one(history, "after", 190, 230, 400)  # 10 s of 40 inside
    history.step(1, 100)
    history.step(2, 200, ("before", "inside"))
    found = _found(history)
    assert found.generated_tokens == pytest.approx(100 + 300 + 100)
    assert found.tokens.value == pytest.approx(500 / (100 * 4))  # 2 + 2 GPUs
    assert found.goodput.value == pytest.approx(800 / (100 * 4))  # the whole trajectories, where they were trained on
    assert found.prefilled_tokens == 200


def test_goodput_leaves_out_what_is_stale_failed_or_of_unknown_version() -> None:
    history = History("async", {"max_staleness": 1})
    for name, more in (
        ("good", {"version_first": 2}),
        ("stale", {"version_first": 1}),
        ("failed", {"version_first": 2, "status": "failed"}),
        ("unknown", {"version_first": None}),
    ):
        _one(history, name, 110, 150, 100, **more)
    _one(history, "early", 10, 50, 100)
    history.step(1, 90, ("early",))
    history.step(4, 190, ("good", "stale", "failed", "unknown"))
    found = _found(history)
    assert found.goodput.value == pytest.approx(100 / 400)
    assert (found.good_trajectories, found.stale_trajectories, found.unknown_trajectories) == (1, 1, 1)
    assert (found.trajectory_ledger.trained, found.trajectory_ledger.failed) == (3, 1)
    assert found.trained.value == pytest.approx(300 / 400)


def test_mfu_is_three_forwards_over_the_peak_of_all_gpus() -> None:
    history = History("async", {"model": "random:qwen3-0.6b", "device": "cuda"})
    history.meta = {"gpus": [{"name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{i}"} for i in range(4)]}
    _one(history, "t", 110, 150, 900)
    history.span("train", 150, 170)
    history.span("logprob", 170, 180)
    history.step(1, 100)
    history.step(2, 200, ("t",), processed_tokens=1000)
    found = _found(history)
    forward = SHAPES["random:qwen3-0.6b"].forward_flops(1000, 1001 / 2)
    assert found.train_flops == pytest.approx(3 * forward)
    assert found.logprob_flops == pytest.approx(forward)
    assert found.mfu == pytest.approx(3 * forward / (100 * 4 * 989.4e12))
    assert found.mfu_train == pytest.approx(3 * forward / (20 * 2 * 989.4e12))
    assert found.processed_source == "trainer"


@pytest.mark.parametrize(
    ("changes", "gpus", "why"),
    [
        ({}, [], "no GPU"),
        ({}, [{"name": "NVIDIA GeForce RTX 4090"}], "not in the table"),
        ({}, [{"name": "NVIDIA A100-SXM4-80GB"}, {"name": "NVIDIA H200"}], "different kinds"),
        ({"model": "some/model"}, [{"name": "NVIDIA H200"}], "shape of model"),
    ],
)
def test_mfu_is_unknown_with_a_reason(changes: dict[str, str], gpus: list[dict[str, str]], why: str) -> None:
    history = History("async", changes, {"gpus": gpus})
    _one(history, "t", 110, 150, 900)
    history.step(1, 100)
    history.step(2, 200, ("t",))
    found = _found(history)
    assert (found.mfu, found.mfu_train) == (None, None)
    assert why in str(found.mfu_note)
    assert (found.processed_tokens, found.processed_source) == (1000, "trajectories")


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA GB200", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("Tesla T4", None),
        (None, None),
    ],
)
def test_peaks_by_name(name: str | None, peak: float | None) -> None:
    assert peak_flops(name) == peak


FATES = ("trained", "trained later", "stale", "dropped", "failed", "cancelled", "queued", "open")
made = st.lists(
    st.tuples(st.sampled_from(FATES), st.integers(0, 190), st.integers(1, 150), st.integers(0, 1000)), max_size=12
)


@settings(max_examples=80, deadline=None)
@given(made)
def test_ledgers_close_whatever_happened(made: list[tuple[str, int, int, int]]) -> None:
    history = History("async", {"max_staleness": 1})
    trained, later, dropped = [], [], []
    for i, (fate, begin, length, tokens) in enumerate(made):
        name, end = f"t{i}", begin + length
        if fate in ("trained", "stale", "dropped"):
            end = min(end, 199)
        if fate in ("trained", "trained later"):
            (trained if fate == "trained" else later).append(name)
        if fate in ("stale", "dropped"):
            dropped.append(name)
        status = fate if fate in ("failed", "cancelled") else "ok"
        _one(history, name, begin, end, tokens, status=status, version_first=0 if fate == "stale" else 3)
        if fate == "open":
            history.rows["trajectories"][-1].update(end_ns=None, status="open")
    history.step(1, 100)
    history.step(4, 200, tuple(trained), dropped_ids=dropped)
    history.step(5, 350, tuple(later))
    found = _found(history)
    tokens, counts = found.token_ledger, found.trajectory_ledger
    assert counts.gap == 0
    assert tokens.gap == pytest.approx(0, abs=1e-6)
    assert counts.trained == len(trained)
    assert counts.dropped_stale == sum(fate == "stale" for fate, *_ in made)
    assert tokens.trained == sum(tokens_ for fate, _, _, tokens_ in made if fate == "trained")
    run = history.run()
    arrays = tracks(run)
    lived = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    assert sum(seconds or 0 for seconds in lived.seconds.values()) == pytest.approx(lived.total_s)
    assert (lived.seconds["agent"] or 0) >= -1e-6


def test_a_token_that_is_in_no_turn_opens_the_ledger() -> None:
    history = History("async")
    _one(history, "t", 110, 150, 100)
    history.rows["trajectories"][0]["generated_tokens"] = 120
    history.step(1, 100)
    history.step(2, 200, ("t",))
    assert _found(history).token_ledger.gap == pytest.approx(-20)


def test_trajectory_seconds_by_what_they_waited_for() -> None:
    history = History("async")
    history.life("t", 100, 160)
    history.turn("t", 105, 125, "e0", submitted_ns=ns(102))
    history.sync(1, 115, 119, "e0")
    history.sync(1, 105, 125, "e1")  # another engine's
    history.tool("t", 125, 145)
    history.turn("t", 145, 150, "e0", submitted_ns=ns(145))
    history.turn("u", 0, 1, "e1")  # says nothing of a queue, but is not inside the window
    history.span("reward", 150, 153, "rollout", trajectory_id="t")
    history.step(1, 90)
    history.step(2, 180, ("t",))
    run = history.run()
    arrays = tracks(run)
    found = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    assert found.seconds == pytest.approx(
        {"queued": 3, "generating": 21, "paused": 4, "tool": 20, "reward": 3, "agent": 9, "buffer_wait": 20}
    )
    assert found.total_s == pytest.approx(80)


def test_a_queue_that_nobody_saw_is_unknown_and_its_time_is_inside_generating() -> None:
    history = History("async")
    history.life("t", 100, 160)
    history.turn("t", 105, 125, "e0", submitted_ns=ns(102))
    history.turn("t", 145, 150, "e0")
    history.step(1, 90)
    history.step(2, 180, ("t",))
    run = history.run()
    arrays = tracks(run)
    found = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    assert found.seconds["queued"] is None
    assert found.seconds["generating"] == pytest.approx(28)
    assert sum(seconds or 0 for seconds in found.seconds.values()) == pytest.approx(found.total_s)
