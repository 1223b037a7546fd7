"""Our runs: simulated and played ones are clean, and an error planted in a table or a figure is found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.run_folder import list_runs
from results.figure import Figure
from results.lint import runs as lint_runs
from results.lint.findings import Linted, Severity
from results.lint.runs import lint_loaded, lint_run
from results.metrics import RunFigures, compute
from results.store import RunTables

Rows = list[dict[str, Any]]


def broken(linted: Linted) -> set[str]:
    return {finding.identity for finding in linted.of(Severity.VIOLATION)}


def changed(run: RunTables, table: str, change: Callable[[Rows], object]) -> RunTables:
    """The run with the rows of one table changed in place."""
    rows = run.tables[table].to_pylist()
    change(rows)
    return replace(run, tables={**run.tables, table: pa.Table.from_pylist(rows, schema=run.tables[table].schema)})


def test_simulated_runs_are_clean(simulated_runs: Path) -> None:
    folders = list_runs(simulated_runs)
    assert len(folders) == 3
    for folder in folders:
        linted = lint_run(folder)
        assert broken(linted) == set(), folder
        assert linted.checks > 500
        assert {"start_before_end", "counts_agree", "used_once", "ordered"} <= set(linted.made)


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_played_runs_on_gpus_are_clean(gpu_runs: dict[str, RunTables], placement: str) -> None:
    linted = lint_loaded(gpu_runs[placement])
    assert broken(linted) == set()
    for identity in ("tokens_rate", "power_within_limit", "ledger_closes", "mfu_below_one", "phases_within_step"):
        assert linted.made[identity] >= 1
    assert ("hidden_within_busy" in linted.made) == (placement != "colocated")


def swap(rows: Rows) -> None:
    rows[3]["start_ns"], rows[3]["end_ns"] = rows[3]["end_ns"], rows[3]["start_ns"] - 1


def fall(rows: Rows) -> None:
    gpu = [row for row in rows if row["energy_joules"] is not None]
    gpu[len(gpu) // 2]["energy_joules"] = 1.0


def twice(rows: Rows) -> None:
    rows[-1]["trajectory_ids"] = [*rows[-1]["trajectory_ids"][1:], rows[-2]["trajectory_ids"][0]]


def overlap(rows: Rows) -> None:
    leaf = next(row for row in rows if row["phase"] == "train")
    first, last = min(row["start_ns"] for row in rows), max(row["end_ns"] for row in rows)
    rows.append({**leaf, "phase": "logprob", "start_ns": first, "end_ns": last})


def update(place: int, **values: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[place].update(values)


def add(column: str, more: int) -> Callable[[Rows], None]:
    return lambda rows: rows[0].update({column: rows[0][column] + more})


def low_limit(rows: Rows) -> None:
    for row in rows:
        if row["power_limit_watts"] is not None:
            row["power_limit_watts"] = 90.0


@pytest.mark.parametrize(
    ("table", "change", "identity"),
    [
        ("turns", swap, "start_before_end"),
        ("tool_calls", swap, "start_before_end"),
        ("tool_calls", update(0, observation_tokens=-5), "count_not_negative"),
        ("samples", update(0, cpu_ratio=1.3), "share_in_unit"),
        ("samples", update(0, cpu_ratio=-0.1), "share_in_unit"),
        ("samples", update(0, temperature_celsius=140737488355328.0), "not_blank"),
        ("samples", fall, "counter_grows"),
        ("samples", low_limit, "power_within_limit"),
        ("trajectories", add("generated_tokens", 7), "counts_agree"),
        ("trajectories", add("turns", 1), "counts_agree"),
        ("trajectories", add("tool_ns", 10**9), "counts_agree"),
        ("trajectories", update(0, version_first=5, version_last=3), "ordered"),
        ("steps", add("trajectories", 1), "counts_agree"),
        ("steps", update(2, start_ns=0), "leaves_within_wall"),
        ("steps", twice, "used_once"),
        ("spans", overlap, "leaves_within_wall"),
    ],
)
def test_an_error_planted_in_a_table(
    gpu_runs: dict[str, RunTables], table: str, change: Callable[[Rows], object], identity: str
) -> None:
    linted = lint_loaded(changed(gpu_runs["disaggregated"], table, change))
    assert identity in broken(linted)
    assert all(finding.row for finding in linted.findings)


def test_syncs_of_one_engine_that_overlap_are_found_in_its_raw_spans(gpu_runs: dict[str, RunTables]) -> None:
    run = gpu_runs["disaggregated"]
    engine = "10.0.0.1:8000"

    def plant(count: int, engines: int) -> Callable[[Rows], None]:
        def more(rows: Rows) -> None:
            leaf = next(row for row in rows if row["phase"] == "train")
            first, last = min(row["start_ns"] for row in rows), max(row["end_ns"] for row in rows)
            sync = {**leaf, "phase": "weight_sync", "pool": "rollout", "native_name": "update", "start_ns": first}
            rows += [{**sync, "unit": f"{engine}{k % engines}", "end_ns": last + k} for k in range(count)]

        return more

    found = lint_loaded(changed(run, "spans", plant(2, 1))).of(Severity.VIOLATION)
    assert [(one.identity, one.row) for one in found] == [
        ("leaves_within_wall", f"spans of the rollout side, engine {engine}0")
    ]
    assert broken(lint_loaded(changed(run, "spans", plant(2, 2)))) == set()  # one each: engines sync at once


def figure(found: RunFigures, metric: str, **values: Any) -> RunFigures:
    kept: dict[str, Figure] = dict(found.figures)
    kept[metric] = replace(kept[metric], **values)
    return replace(found, figures=kept)


def scaled(metric: str, factor: float) -> Callable[[RunFigures], RunFigures]:
    return lambda found: figure(found, metric, value=(found.figures[metric].value or 0) * factor)


def unclosed(found: RunFigures) -> RunFigures:
    assert found.throughput is not None
    ledger = replace(found.throughput.trajectory_ledger, trained=found.throughput.trajectory_ledger.trained - 3)
    return replace(found, throughput=replace(found.throughput, trajectory_ledger=ledger))


def unit(found: RunFigures, pool: str, **changes: Callable[[dict[str, float]], dict[str, float]]) -> RunFigures:
    assert found.account is not None
    units = [
        replace(one, **{name: change(dict(getattr(one, name))) for name, change in changes.items()})
        if one.pool == pool
        else one
        for one in found.account.units
    ]
    return replace(found, account=replace(found.account, units=tuple(units)))


def longer(seconds: dict[str, float]) -> dict[str, float]:
    return {name: 1.5 * value for name, value in seconds.items()}


def more_hidden(seconds: dict[str, float]) -> dict[str, float]:
    return {"generating": 1e6}


def longer_phases(found: RunFigures) -> RunFigures:
    return replace(found, phases=tuple(replace(row, mean_s=2 * row.mean_s) for row in found.phases))


def uncounted(found: RunFigures) -> RunFigures:
    stale = replace(found.staleness_run, violations=found.staleness_run.violations + 1)
    return replace(found, staleness_run=stale)


@pytest.mark.parametrize(
    ("plant", "identity"),
    [
        (scaled("throughput_tokens_per_s_gpu", 2.0), "tokens_rate"),
        (scaled("goodput_tokens_per_s_gpu", 1.1), "counts_agree"),
        (scaled("step_time_s", 0.5), "steps_time"),
        (scaled("mfu_ratio", 1e4), "mfu_below_one"),
        (scaled("power_utilisation_ratio", 10.0), "share_in_unit"),
        (scaled("coverage_ratio", 1.5), "share_in_unit"),
        (scaled("window_s", -1.0), "count_not_negative"),
        (lambda found: figure(found, "step_time_s", ci_low=1e6, ci_high=2e6), "ordered"),
        (unclosed, "ledger_closes"),
        (lambda found: unit(found, "rollout", seconds=longer), "leaves_within_wall"),
        (lambda found: unit(found, "train", seconds=longer), "shares_within_one"),
        (lambda found: unit(found, "rollout", hidden_seconds=more_hidden), "hidden_within_busy"),
        (longer_phases, "phases_within_step"),
        (uncounted, "counts_agree"),
    ],
)
def test_an_error_planted_in_a_figure(
    gpu_runs: dict[str, RunTables],
    plant: Callable[[RunFigures], RunFigures],
    identity: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lint_runs, "compute", lambda run: plant(compute(run)))
    assert identity in broken(lint_loaded(gpu_runs["async"]))


def test_many_broken_rows_are_counted_and_the_first_are_named(gpu_runs: dict[str, RunTables]) -> None:
    def spoil(rows: Rows) -> None:
        for row in rows:
            row["generated_tokens"] = -1

    linted = lint_loaded(changed(gpu_runs["colocated"], "turns", spoil))
    named = [finding for finding in linted.findings if finding.identity == "count_not_negative"]
    assert 20 <= len(named) <= 25
    assert any("more rows break `count_not_negative`" in note for note in linted.notes)


def test_staleness_beyond_the_bound_that_is_counted_is_said(gpu_runs: dict[str, RunTables]) -> None:
    run = gpu_runs["async"]
    beyond = replace(run, spec=replace(run.spec, max_staleness=0))
    linted = lint_loaded(beyond)
    (said,) = [finding for finding in linted.of(Severity.IMPLIED) if finding.identity == "staleness_within_bound"]
    assert "beyond the bound of 0" in said.message
    assert broken(linted) == set()
