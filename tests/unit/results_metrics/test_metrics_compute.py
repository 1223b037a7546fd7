"""All figures of a run: whole, killed, and with nothing recorded at all."""

import pytest
from recorded_histories import History, ns

from results.metrics import OF_WINDOW, compute
from results.schema import conform

NAMES = {
    "step_time_s",
    "throughput_tokens_per_s_gpu",
    "goodput_tokens_per_s_gpu",
    "mfu_ratio",
    "coverage_ratio",
    "other_share",
    "tail_gap_share",
    "slot_loss_share",
    "power_utilisation_ratio",
    "joules_per_trained_trajectory",
    "staleness_at_start_mean",
    "staleness_at_start_p50",
    "staleness_at_start_p95",
    "staleness_at_start_max",
    "staleness_violations",
    "adherence_ratio",
    "tool_overrun_p50_s",
    "tool_overrun_p99_s",
    "recorder_cost_ratio",
    "trajectories_trained",
    "trajectories_open_at_end",
    "wait_rollout_share",
    "sync_s_mean",
    "rollout_busy_share",
    "blocked_sync_s",
    "selection_ratio",
    "steps",
    "window_s",
    "wall_s",
}


def _history(placement: str = "disaggregated", steps: int = 4) -> History:
    """Steps of 10 s: 6 s of rollout (4 trajectories), 3 s of training, 1 s of weight sync."""
    history = History(placement, {"steps": steps}, {"wall_s": 10.0 * steps + 3})
    pool = "both" if placement == "colocated" else "train"
    history.process("controller", -5)
    for step in range(1, steps + 1):
        at = (step - 1) * 10.0
        names = [f"p{step}-s{i}-a0" for i in range(4)]
        for i, name in enumerate(names):
            end = at + 3 + i
            tokens = {"generated_tokens": 100, "prompt_tokens": 50, "observation_tokens": 10}
            versions = {"version_first": step - 1, "version_last": step - 1}
            history.life(name, at, end, group_id=f"p{step}", prompt=step, sample=i, turns=1, **tokens, **versions)
            history.turn(name, at, end, generated_tokens=100, prompt_tokens=50)
        phase = "generation" if placement == "colocated" else "wait_rollout"
        history.span(phase, at, at + 6, pool, step=step, native_name="generate")
        history.span("train", at + 6, at + 9, pool, step=step, native_name="policy_train")
        history.span("weight_sync", at + 9, at + 10, pool, step=step, native_name="sync_weights")
        history.sync(step, at + 9, at + 10)
        recorder = {"recorder_ns": step * 20_000_000}
        history.step(step, at + 10, tuple(names), start=at, loss_tokens=400, processed_tokens=640, **recorder)
    return history


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
def test_figures_of_a_whole_run(placement: str) -> None:
    found = compute(_history(placement).run())
    value = {name: figure.value for name, figure in found.figures.items()}
    assert set(value) >= NAMES
    assert value["steps"] == 3
    assert value["window_s"] == pytest.approx(30)
    assert value["step_time_s"] == pytest.approx(10)
    gpus = 2 if placement == "colocated" else 4
    assert value["throughput_tokens_per_s_gpu"] == pytest.approx(1200 / 30 / gpus)
    assert value["goodput_tokens_per_s_gpu"] == pytest.approx(1200 / 30 / gpus)
    assert value["coverage_ratio"] == pytest.approx(1)
    assert value["other_share"] == pytest.approx(0)
    assert value["tail_gap_share"] == pytest.approx(2 / 6)
    assert value["slot_loss_share"] == pytest.approx(1 - (3 + 4 + 5 + 6) / 4 / 6)
    assert value["rollout_busy_share"] == pytest.approx(0.6)
    assert "turn open at the client: an upper bound of generating" in str(found.figures["rollout_busy_share"].note)
    assert value["blocked_sync_s"] == (None if placement == "colocated" else 0)
    assert value["sync_s_mean"] == pytest.approx(1)
    assert value["wait_rollout_share"] == (None if placement == "colocated" else pytest.approx(0.6))
    assert value["recorder_cost_ratio"] == pytest.approx(0.002)
    assert value["trajectories_trained"] == 12
    assert value["trajectories_open_at_end"] == 0
    assert (value["staleness_at_start_max"], value["staleness_violations"]) == (0, 0)
    assert value["power_utilisation_ratio"] is None
    assert found.figures["power_utilisation_ratio"].note == "no GPU"
    assert value["wall_s"] == 43
    assert all(figure.note for figure in found.figures.values() if figure.value is None)
    assert "range" in str(found.figures["step_time_s"].note)


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
def test_phases_sum_to_the_step_time_and_other_is_a_row(placement: str) -> None:
    history = _history(placement)
    for row in history.rows["spans"]:
        if row["phase"] == "train":
            row["end_ns"] -= 500_000_000
    found = compute(history.run())
    rows = {row.phase: row for row in found.phases}
    first = "generation" if placement == "colocated" else "wait_rollout"
    assert {name: row.mean_s for name, row in rows.items()} == pytest.approx(
        {first: 6.0, "train": 2.5, "weight_sync": 1.0, "other": 0.5}
    )
    assert sum(row.mean_s for row in found.phases) == pytest.approx(found.figures["step_time_s"].value)
    assert sum(row.share for row in found.phases) == pytest.approx(1)
    assert rows["train"].native_names == ("policy_train",)
    assert rows["train"].n == 3


def test_the_metrics_table_has_a_row_for_each_figure() -> None:
    found = compute(_history().run())
    rows = conform("metrics", found.metric_rows()).to_pylist()
    assert [row["metric"] for row in rows] == list(found.figures)
    assert all(row["unit"] for row in rows)


def test_twenty_steps_have_an_interval() -> None:
    figure = compute(_history(steps=22).run()).figures["throughput_tokens_per_s_gpu"]
    assert figure.n == 21
    assert figure.ci_low is not None
    assert figure.value is not None
    assert figure.ci_low <= figure.value


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_a_run_that_recorded_nothing_has_all_figures_as_unknown(placement: str) -> None:
    found = compute(History(placement).run())
    assert set(found.figures) >= NAMES
    assert all(figure.value is None and figure.note for figure in found.figures.values())
    assert found.window is None
    assert found.no_window == "no step ended"
    assert found.account is None
    assert found.metric_rows().num_rows == len(found.figures)


def test_a_run_killed_in_its_first_step_says_why_there_is_no_window() -> None:
    history = History("async")
    history.process("controller", 0)
    history.life("p0-s0-a0", 1, None, prompt=0, sample=0)
    history.turn("p0-s0-a0", 2, 3)
    history.add("opens", id=1, phase="tool", native_name="tool", trajectory_id="p0-s0-a0", start_ns=ns(3))
    found = compute(history.run())
    assert found.figures["throughput_tokens_per_s_gpu"].value is None
    assert "no step ended" in str(found.figures["throughput_tokens_per_s_gpu"].note)
    assert set(OF_WINDOW) <= set(found.figures)


def test_a_run_killed_in_the_middle_has_figures_of_the_steps_that_ended() -> None:
    history = _history()
    del history.rows["steps"][3]
    for row in history.rows["trajectories"][12:]:
        row.update(status="open", end_ns=None, step_consumed=None, version_trained=None, consumed_ns=None)
    history.meta = {}
    found = compute(history.run())
    assert found.figures["steps"].value == 2
    assert found.figures["trajectories_trained"].value == 8
    assert found.figures["wall_s"].value is None


def test_violations_are_counted_over_the_whole_run() -> None:
    history = _history("async", steps=6)
    for row in history.rows["trajectories"]:
        row["version_first"] = max(row["version_first"] - 2, 0)
    found = compute(history.run())
    assert found.figures["staleness_violations"].value == 16  # steps 3 to 6 trained on age 2, the bound is 1
    assert found.figures["staleness_at_start_max"].value == 2
