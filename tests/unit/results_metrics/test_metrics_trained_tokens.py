"""What the loss mask leaves out is no goodput, was not trained, and does not lengthen what was."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recorded_histories import History
from test_metrics_throughput import _found, _one

from harness.protocol.models import SHAPES
from harness.protocol.spec import Load, Thinking
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
    ledger = _found(history).token_ledger
    assert (ledger.trained, ledger.failed, ledger.gap) == (140, 50, pytest.approx(0))


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
