"""The MLPerf log of a run, read by mlcommons' parser and checker: accepted as it is, refused with a key missing."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlperf_logging.compliance_checker import mlp_compliance, mlp_parser

from harness.cli import call
from reports.exporting.mlperf import RULES
from reports.exporting.source import wall_minus_mono_ns
from results.metrics import compute
from results.staleness import staleness
from results.store import load_run

KEYS = RULES.with_name("bench_agentic_rl_keys.yaml")
COMMON = "training_6.1.0/common.yaml"
TOKEN = ":::MLLOG "


def check(log: Path, rules: str = str(RULES)) -> tuple[bool, list[str]]:
    """Whether mlcommons' checker accepts a log, and what it says."""
    checker = mlp_compliance.make_checker("training", "6.1.0", False, True)
    valid, *_ = mlp_compliance.main(str(log), rules, checker)
    return valid, [*checker.overwritable, *checker.not_overwritable]


def records(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all(line.startswith(TOKEN) for line in lines)
    return [json.loads(line.removeprefix(TOKEN)) for line in lines]


def write(log: Path, lines: Iterable[dict[str, Any]]) -> Path:
    log.write_text("".join(f"{TOKEN}{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return log


def required() -> list[str]:
    """Every key that our rules, or mlcommons' common ones that they leave as they are, ask for."""
    own = {one["KEY"]["NAME"]: one["KEY"].get("REQ", "") for one in _rules(KEYS)}
    theirs = {one["KEY"]["NAME"]: one["KEY"].get("REQ", "") for one in _rules(_theirs(COMMON))}
    found = {**theirs, **own}
    return sorted(name for name, need in found.items() if need in ("EXACTLY_ONE", "AT_LEAST_ONE"))


def _rules(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.load(path.read_text(), Loader=yaml.BaseLoader) if "KEY" in one]


def _theirs(name: str) -> Path:
    return Path(mlp_compliance.__file__).parent / name


@pytest.fixture(scope="module", params=["async_run", "colocated_run", "gpu_run"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def log(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlperf") / "run.log"
    assert call(["export", str(folder), "--to", "mlperf", "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def lines(async_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The lines of the async run's log."""
    path = tmp_path_factory.mktemp("mlperf") / "run.log"
    assert call(["export", str(async_run), "--to", "mlperf", "-o", str(path)]) == 0
    return records(path)


def test_the_parser_reads_every_line(log: Path) -> None:
    lines, errors = mlp_parser.parse_file(str(log), ruleset="6.1.0")
    assert errors == []
    assert len(lines) == len(records(log)) > 50


def test_the_checker_accepts_the_log(log: Path) -> None:
    assert check(log) == (True, [])


def test_the_checker_accepts_it_from_its_command_line(log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--config", str(RULES), "--werror", str(log)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "SUCCESS" in done.stderr


def test_mlcommons_rules_alone_ask_for_what_a_submission_has_and_for_nothing_else(log: Path) -> None:
    """Under their common rules as they stand, only the keys complain that our rules say something else of."""
    valid, complaints = check(log, COMMON)
    assert not valid
    submission = {"submission_org", "submission_platform", "submission_division", "eval_accuracy", "init_stop"}
    precision = {f"lowest_numerical_precision_in_{part}" for part in ("linear", "attn", "comm")}
    assert submission <= set(complaints) <= submission | precision | {"micro_batch_size"}


def test_required_keys_are_many_and_ours_among_them() -> None:
    keys = required()
    assert {"bench.staleness", "bench.tool_calls", "bench.weight_sync_start", "bench.figure", "run_start"} <= set(keys)
    assert {"cache_clear", "tensor_parallelism", "train_samples"} <= set(keys)  # mlcommons' own


@pytest.mark.parametrize("key", required())
def test_a_log_without_a_required_key_is_refused(lines: list[dict[str, Any]], tmp_path: Path, key: str) -> None:
    path = tmp_path / "run.log"
    kept = [line for line in lines if line["key"] != key]
    assert len(kept) < len(lines)
    assert check(write(path, lines))[0]
    valid, complaints = check(write(path, kept))
    assert not valid
    assert complaints


def _change(lines: list[dict[str, Any]], key: str, **changes: Any) -> list[dict[str, Any]]:
    """The last line of that key, changed."""
    at = max(number for number, line in enumerate(lines) if line["key"] == key)
    metadata = {**lines[at]["metadata"], **{k: v for k, v in changes.items() if k != "value"}}
    changed = {**lines[at], "metadata": metadata} | ({"value": changes["value"]} if "value" in changes else {})
    return [*lines[:at], changed, *lines[at + 1 :]]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("bench.staleness", {"value": -1.0}),
        ("bench.staleness", {"max": 99}),  # beyond the bound, and no violation counted
        ("bench.tool_calls", {"failed": 10**9}),
        ("bench.policy_version", {"value": 0}),
        ("bench.weight_sync_stop", {"value": 99}),
        ("bench.weight_sync_stop", {"sync": 99}),
        ("bench.placement", {"value": "anywhere"}),
        ("bench.gpus", {"train": 99}),
        ("bench.figure", {"unit": ""}),
        ("num_generations_per_prompt", {"value": 99}),
        ("block_stop", {"step": 99}),
        ("run_stop", {"status": "fine"}),
        ("init_stop", {}),
        ("run_start", {}),
    ],
)
def test_a_log_that_says_something_impossible_is_refused(
    lines: list[dict[str, Any]], tmp_path: Path, key: str, changes: dict[str, Any]
) -> None:
    path = tmp_path / "run.log"
    if key == "run_start":  # before the start-up ended
        at = next(number for number, line in enumerate(lines) if line["key"] == key)
        changed = [lines[at], *lines[:at], *lines[at + 1 :]]
    elif key == "init_stop":  # twice: exactly one is asked for
        changed = [one for line in lines for one in ([line, {**line, "value": 1}] if line["key"] == key else [line])]
    else:
        changed = _change(lines, key, **changes)
    assert changed != lines
    assert not check(write(path, changed))[0]


@pytest.mark.parametrize("key", ["submission_org", "submission_division", "submission_platform"])
def test_a_run_may_not_name_itself_a_submission(lines: list[dict[str, Any]], tmp_path: Path, key: str) -> None:
    path = tmp_path / "run.log"
    assert not any(line["key"].startswith("submission") for line in lines)
    assert not check(write(path, [{**lines[0], "key": key, "value": "open"}, *lines]))[0]


def test_the_log_says_what_the_tables_say(folder: Path, log: Path) -> None:
    run, lines = load_run(folder), records(log)
    by_key: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_key.setdefault(line["key"], []).append(line)
    steps, offset = run.frame("steps").sort_values("end_ns"), wall_minus_mono_ns(run)
    assert offset is not None
    assert [line["time_ms"] for line in by_key["block_stop"]] == [(end + offset) // 10**6 for end in steps["end_ns"]]
    assert by_key["block_stop"][-1]["metadata"]["samples_count"] == steps["trajectories"].sum()
    lives = run.frame("trajectories")
    trained = set(lives.loc[lives["step_consumed"].notna(), "trajectory_id"])
    calls = run.frame("tool_calls")
    calls = calls[calls["trajectory_id"].isin(trained)]
    assert sum(line["value"] for line in by_key["bench.tool_calls"]) == len(calls)
    seconds = float((calls["end_ns"] - calls["start_ns"]).sum()) / 1e9
    assert sum(line["metadata"]["seconds"] for line in by_key["bench.tool_calls"]) == pytest.approx(seconds)
    stale = staleness(run)
    ages = [line["metadata"] for line in by_key["bench.staleness"]]
    assert sum(age["violations"] for age in ages) == stale.violations
    assert sum(age["n"] for age in ages) == stale.at_start.n
    mean = sum(line["value"] * line["metadata"]["n"] for line in by_key["bench.staleness"]) / stale.at_start.n
    assert mean == pytest.approx(stale.at_start.mean)
    syncs = run.frame("weight_syncs")
    assert [line["value"] for line in by_key["bench.weight_sync_stop"]] == list(syncs.sort_values("end_ns")["version"])
    figures = compute(run).figures
    assert {line["metadata"]["metric"]: line["value"] for line in by_key["bench.figure"]} == {
        name: figure.value for name, figure in figures.items()
    }


def test_what_was_overridden_is_not_claimed(
    async_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that `-o` may have changed is left out and named; the checker asks for parallelism, and refuses."""
    spec = json.loads((async_run / "spec.json").read_text())
    spec["overrides"] = {"actor.tensor_parallel_size": "2"}
    for name in ("events", "samples", "tables", "meta.json", "sealed"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).symlink_to(async_run / name)
    (tmp_path / "run" / "spec.json").write_text(json.dumps(spec))
    path = tmp_path / "run.log"
    assert call(["export", str(tmp_path / "run"), "--to", "mlperf", "-o", str(path)]) == 0
    assert "tensor_parallelism" in capsys.readouterr().err
    assert not any(line["key"] == "tensor_parallelism" for line in records(path))
    valid, complaints = check(path)
    assert not valid
    assert "tensor_parallelism" in complaints


def test_a_run_without_a_step_is_refused_and_says_why(
    async_run: Path, cut_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (cut_run / "events").glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if json.loads(line)["k"] != "step"))
    assert call(["collect", str(cut_run)]) == 0
    log = tmp_path / "run.log"
    assert call(["export", str(cut_run), "--to", "mlperf", "-o", str(log)]) == 0
    assert "no step was recorded" in capsys.readouterr().err
    assert not check(log)[0]


def test_a_run_that_was_killed_is_accepted_as_aborted(cut_run: Path, tmp_path: Path) -> None:
    meta = json.loads((cut_run / "meta.json").read_text()) | {"status": "interrupted"}
    (cut_run / "meta.json").write_text(json.dumps(meta))
    assert load_run(cut_run).tables["steps"].num_rows
    log = tmp_path / "run.log"
    assert call(["export", str(cut_run), "--to", "mlperf", "-o", str(log)]) == 0
    (stop,) = (line for line in records(log) if line["key"] == "run_stop")
    assert stop["metadata"]["status"] == "aborted"
    assert check(log) == (True, [])


def test_what_only_bench_s_own_adapters_configure_is_not_said_of_another_framework(
    async_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(async_run, folder)
    for file in (folder / "spec.json", folder / "tables" / "spec.json"):
        if file.is_file():
            file.write_text(file.read_text().replace('"simulated"', '"own-rl"'))
    capsys.readouterr()
    assert call(["export", str(folder), "--to", "mlperf", "-o", str(tmp_path / "run.log")]) == 0
    keys = {line["key"] for line in records(tmp_path / "run.log")}
    assert "max_steps" in keys
    assert not {key for key in keys if "parallelism" in key or "numerical_precision" in key}
    said = capsys.readouterr()
    assert "lowest_numerical_precision_in_comm: left out, not known of own-rl" in said.out + said.err
    assert "expert_parallelism: left out, not known of own-rl" in said.out + said.err
