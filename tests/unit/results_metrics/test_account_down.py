"""Seconds in which a unit could do nothing: its processes not there, or a GPU that it needs lost."""

import json

import pytest
from recorded_accounts import account_of, unit_named
from recorded_histories import History, ns


def test_down_is_before_the_hello_and_after_the_bye() -> None:
    history = History("disaggregated")
    history.process("controller", 4, 30)
    history.span("train", 0, 40)
    account = account_of(history)
    assert unit_named(account, "train").seconds == pytest.approx({"down": 14.0, "train": 26.0})
    assert unit_named(account, "rollout").seconds["down"] == pytest.approx(14.0)


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
    account = account_of(history)
    assert unit_named(account, "train").seconds == pytest.approx({"train": 10.0, "down": 30.0})
    assert "down" not in unit_named(account, "e0").seconds


def test_engines_are_down_when_too_few_gpus_are_left_for_any() -> None:
    one = _two_pools()
    _lose(one, ("GPU-2", 10, None))
    for name in ("e0", "e1"):  # which of them had it is not known
        assert "down" not in unit_named(account_of(one), name).seconds
    both = _two_pools()
    _lose(both, ("GPU-2", 10, 30), ("GPU-3", 25, None))
    for name in ("e0", "e1"):
        assert unit_named(account_of(both), name).seconds["down"] == pytest.approx(5.0)
    assert "down" not in unit_named(account_of(both), "train").seconds
    shared = _two_pools()  # one replica on both GPUs
    shared.changes["rollout_tp"] = 2
    shared.rows["turns"].pop()
    _lose(shared, ("GPU-2", 10, None))
    assert unit_named(account_of(shared), "e0").seconds == pytest.approx({"generating": 10.0, "down": 30.0})


def test_together_a_lost_gpu_puts_the_training_down_and_the_engine_that_spans_it() -> None:
    history = History("colocated")
    history.process("controller", -5, gpu_uuids=["GPU-0", "GPU-1"], pool="both")
    history.span("generation", 0, 20, "both")
    history.span("train", 20, 40, "both")
    history.life("t", 0, 20)
    history.turn("t", 0, 20, "e0")
    _lose(history, ("GPU-1", 15, 25))
    seconds = unit_named(account_of(history), "e0").seconds
    assert seconds == pytest.approx({"generating": 15.0, "down": 10.0, "train": 15.0})
