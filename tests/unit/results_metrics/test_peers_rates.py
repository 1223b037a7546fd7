"""What users of other frameworks were told wrongly about throughput, staleness and losses, told right here.

Each case is an issue or pull request of a public project whose report gives inputs small enough for a CPU.

verl 7049: rollout GPUs were not in the denominator
    test_throughput_is_per_gpu_of_all_gpus_in_every_placement
prime-rl 2048, guidellm 1078: tokens made before the window (or a warm-up) counted inside it
    test_tokens_of_a_turn_count_where_they_were_made
prime-rl 20: an MFU of 337 %, the number of GPUs missing; prime-rl 1722, trl 7197: the peak of another GPU
    test_mfu_counts_all_gpus_and_knows_no_peak_but_the_gpus_own
trl 6715: generated tokens were only those trained; guidellm 444: failed requests counted
    test_generated_trained_and_failed_tokens_are_different_numbers
vllm 51109: input tokens of many turns overstated
    test_what_was_sent_again_each_turn_is_not_what_was_processed
SkyRL 2143: time-outs counted twice; prime-rl 2020: errors and empty ones not comparable
    test_every_trajectory_has_one_fate
prime-rl 3310, UniRL 310: one word for two quantities, one of them with the time in the queue
    test_staleness_is_told_at_its_three_points_and_they_add_up
SkyRL 1798: what the engine had cached under old weights was used under new ones
    test_tokens_of_a_turn_that_a_sync_overtook_are_told
AReaL's and SkyRL's bounds: a straggler passes an admission rule
    test_a_violation_is_counted_and_is_no_goodput
"""

import pytest
from recorded_histories import History, ns

from results.account import make_account
from results.staleness import staleness
from results.throughput import Lives, Throughput, throughput
from results.tracks import tracks
from results.window import Window

LOW, HIGH = 100, 200


def _found(history: History) -> Throughput:
    run = history.run()
    window = Window(start_ns=ns(LOW), end_ns=ns(HIGH), after_step=1, last_step=2, boundaries_ns=(ns(LOW), ns(HIGH)))
    arrays = tracks(run)
    return throughput(run, arrays, window, make_account(run, arrays, window), Lives.of(run, arrays))


def _one(history: History, name: str, begin: float, end: float, tokens: int, **more: object) -> None:
    values = {"generated_tokens": tokens, "prompt_tokens": 10, "observation_tokens": 0, "version_first": 0, **more}
    history.life(name, begin, end, **values)
    history.turn(name, begin, end, generated_tokens=tokens, prompt_tokens=10)


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_throughput_is_per_gpu_of_all_gpus_in_every_placement(placement: str) -> None:
    history = History(placement)
    assert history.run().spec.total_gpus == (2 if placement == "colocated" else 4)  # 2 + 2, or 2 that take turns
    _one(history, "t", 110, 150, 800)
    history.step(1, 100)
    history.step(2, 200, ("t",))
    assert _found(history).tokens.value == pytest.approx(800 / 100 / (2 if placement == "colocated" else 4))


def test_tokens_of_a_turn_count_where_they_were_made() -> None:
    history = History("async")
    _one(history, "before", 0, 100, 1000)  # trained on in the window, and made before it: not a token of it
    _one(history, "across", 60, 110, 500)  # a fifth of it inside
    history.step(1, 100)
    history.step(2, 200, ("before", "across"))
    found = _found(history)
    assert found.generated_tokens == pytest.approx(100)
    assert found.tokens.value == pytest.approx(100 / 400)
    assert found.token_ledger.open_at_start == pytest.approx(1000 + 400)  # nothing is lost of them either
    assert found.token_ledger.gap == pytest.approx(0)


def test_mfu_counts_all_gpus_and_knows_no_peak_but_the_gpus_own() -> None:
    def mfu(name: str) -> float | None:
        history = History("async", {"model": "random:qwen3-0.6b", "device": "cuda"})
        history.meta = {"gpus": [{"name": name, "uuid": f"GPU-{i}"} for i in range(4)]}
        _one(history, "t", 110, 150, 900)
        history.step(1, 100)
        history.step(2, 200, ("t",), processed_tokens=1_000_000)
        return _found(history).mfu

    h100, a100 = mfu("NVIDIA H100 80GB HBM3"), mfu("NVIDIA A100-SXM4-80GB")
    assert h100 is not None
    assert a100 is not None
    # 6 x 0.6e9 parameters x 1e6 tokens, at least, on four GPUs in 100 s.
    assert 6 * 0.44e9 * 1e6 / (4 * 100 * 989.4e12) < h100 < 6 * 0.9e9 * 1e6 / (4 * 100 * 989.4e12)
    assert a100 / h100 == pytest.approx(989.4 / 312)
    assert mfu("NVIDIA Imaginary 9000") is None


def test_generated_trained_and_failed_tokens_are_different_numbers() -> None:
    history = History("async")
    _one(history, "trained", 110, 150, 300)
    _one(history, "failed", 110, 150, 200, status="failed")
    _one(history, "waiting", 110, 150, 100)
    history.step(1, 100)
    history.step(2, 200, ("trained",))
    found = _found(history)
    assert found.generated_tokens == pytest.approx(600)
    assert found.goodput.value == pytest.approx(300 / 400)
    ledger = found.token_ledger
    assert (ledger.trained, ledger.failed, ledger.queued) == (300, 200, 100)
    assert ledger.gap == pytest.approx(0)


def test_what_was_sent_again_each_turn_is_not_what_was_processed() -> None:
    history = History("async")
    history.life("t", 110, 160, generated_tokens=30, prompt_tokens=10, observation_tokens=60, version_first=0)
    for turn, sent in enumerate((10, 50, 90)):  # 10 + 10 + 30 and so on: the history, again and again
        history.turn("t", 110 + 10 * turn, 115 + 10 * turn, generated_tokens=10, prompt_tokens=sent)
    history.step(1, 100)
    history.step(2, 200, ("t",))
    found = _found(history)
    assert found.prefilled_tokens == 150  # sent, cached or not
    assert found.processed_tokens == 100  # the sequence, once
    assert found.generated_tokens == pytest.approx(30)


def test_every_trajectory_has_one_fate() -> None:
    history = History("async")
    fates = ("ok", "failed", "timeout", "cancelled", "ok", "ok")
    for number, status in enumerate(fates):
        _one(history, f"t{number}", 110, 150, 0 if status == "failed" else 10, status=status)
    _one(history, "open", 120, 190, 10)
    history.rows["trajectories"][-1].update(end_ns=None, status="open")
    history.step(1, 100)
    history.step(2, 190, ("t0",), dropped_ids=["t4"])
    ledger = _found(history).trajectory_ledger
    assert ledger.added == 7
    assert (ledger.trained, ledger.failed, ledger.dropped_other) == (1, 2, 2)  # time-outs are failures, once
    assert (ledger.in_flight, ledger.queued, ledger.gap) == (1, 1, 0)


def _aged() -> History:
    """Trained into version 5 (at 4): begun under 1, ended under 3, so that it waited from 3 to 4."""
    history = History("async", {"max_staleness": 3})
    history.life("t", 110, 150, generated_tokens=30, version_first=1, version_last=3)
    history.turn("t", 110, 120, generated_tokens=10, version_start=1, version_end=1)
    history.turn("t", 130, 150, generated_tokens=20, version_start=2, version_end=3)
    history.step(5, 190, ("t",))
    return history


def test_staleness_is_told_at_its_three_points_and_they_add_up() -> None:
    found = staleness(_aged().run())
    assert (found.at_start.max, found.at_finish.max, found.in_queue.max) == (3, 2, 1)
    assert found.per_token.mean == pytest.approx((10 * 3 + 20 * 2) / 30)
    assert found.violations == 0


def test_tokens_of_a_turn_that_a_sync_overtook_are_told() -> None:
    found = staleness(_aged().run())
    assert found.tokens_across_sync == 20
    assert found.resolution == "turn"


def test_a_violation_is_counted_and_is_no_goodput() -> None:
    history = _aged()
    history.changes["max_staleness"] = 2
    history.step(1, 100)
    found = staleness(history.run())
    assert (found.violations, found.at_start.max) == (1, 3)  # told as it was, never clipped
    rates = _found(history)
    assert (rates.stale_trajectories, rates.good_trajectories) == (1, 0)
    assert rates.goodput.value == 0
