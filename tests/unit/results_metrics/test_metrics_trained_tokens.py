"""What the loss mask leaves out is no goodput, was not trained, and does not lengthen what was."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recorded_histories import History
from test_metrics_throughput import _found, _one

from harness.protocol.models import SHAPES
from harness.protocol.spec import Load, Thinking
from results.running import running_work
from results.throughput import Lives
from results.tracks import tracks
from results.trained import trained_tokens


def _history(**changes: object) -> History:
    history = History("async", {"max_staleness": 1, **changes})
    _one(history, "whole", 110, 150, 100, loss_tokens=100, sequence_tokens=200)
    _one(history, "stripped", 110, 150, 300, loss_tokens=40, sequence_tokens=170)
    history.step(1, 100)
    return history


def test_goodput_and_the_ledger_count_loss_tokens() -> None:
    history = _history()
    history.step(2, 200, ("whole", "stripped"))
    found = _found(history)
    assert found.generated_tokens == pytest.approx(400)
    assert found.goodput.value == pytest.approx(140 / 400)  # 100 s, 4 GPUs
    ledger = found.token_ledger
    assert (ledger.trained, ledger.dropped_other, ledger.gap) == (140, 260, pytest.approx(0))
    assert (found.trajectory_ledger.trained, found.trajectory_ledger.dropped_other) == (2, 0)


def test_lengths_are_those_of_the_trained_sequences() -> None:
    history = _history(model="random:qwen3-0.6b")
    history.step(2, 200, ("whole", "stripped"))
    found = _found(history)
    assert (found.processed_tokens, found.processed_source) == (370, "trajectories")
    context = (200 * 201 / 2 + 170 * 171 / 2) / 370
    assert found.train_flops == pytest.approx(3 * SHAPES["random:qwen3-0.6b"].forward_flops(370, context))


def test_a_failed_trajectory_that_kept_its_place_trained_on_nothing() -> None:
    history = _history()
    _one(history, "failed", 110, 150, 50, status="failed")
    history.step(2, 200, ("whole", "stripped", "failed"))
    found = _found(history)
    ledger, counts = found.token_ledger, found.trajectory_ledger
    assert (ledger.trained, ledger.failed, ledger.gap) == (140, 50, pytest.approx(0))
    assert (counts.trained, counts.failed, counts.gap) == (2, 1, 0)
    assert found.trained.value == pytest.approx(140 / 400)  # 100 s, 4 GPUs
    assert found.processed_tokens == 200 + 170 + 150  # it goes through the forward all the same


@pytest.mark.parametrize("status", ["failed", "timeout", "cancelled"])
def test_what_trained_on_nothing_is_failed_wherever_work_is_shared_out(status: str) -> None:
    history = _history()
    _one(history, "kept its place", 110, 150, 50, status=status)
    _one(history, "of no batch", 110, 150, 50, status=status)
    history.step(2, 200, ("whole", "stripped", "kept its place"))
    run = history.run()
    arrays = tracks(run)
    lives = Lives.of(run, arrays)
    spent = {name: starts.size for name, (starts, _) in running_work(run, arrays, lives, ()).fates.items()}
    alone = {"dropped_other": 1} if status == "cancelled" else {}
    assert {name: n for name, n in spent.items() if n} == {"trained": 2, "failed": 2 - len(alone), **alone}
    counts, tokens = _found(history).trajectory_ledger, _found(history).token_ledger
    assert (counts.trained, counts.failed, counts.dropped_other) == (2, 2 - len(alone), len(alone))
    assert (tokens.failed, tokens.dropped_other) == (50 * (2 - len(alone)), 260 + 50 * len(alone))
    assert (counts.gap, tokens.gap) == (0, pytest.approx(0))


def _live(history: History) -> History:
    history.changes |= {"load": Load.LIVE, "thinking": Thinking.STRIP}
    return history


def test_records_without_masks_are_as_generated_unless_thoughts_were_stripped() -> None:
    history = History("async", {"max_staleness": 1})
    _one(history, "t", 110, 150, 100)
    history.step(1, 100)
    history.step(2, 200, ("t",))
    loss, whole = trained_tokens(history.run())
    assert (loss.tolist(), whole.tolist()) == ([100.0], [200.0])
    found = _found(_live(history))
    assert (found.goodput.value, found.unmasked_trajectories, found.processed_tokens) == (None, 1, None)
    assert found.token_ledger.gap == pytest.approx(0)
