"""Real frameworks' runs in the folder $BENCH_RUNS break no identity, and their logs are read as they were printed."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from adapters.base import load_adapter
from harness.cli import call
from harness.envs import ensure
from harness.protocol.spec import Device, RunSpec
from harness.run_folder import list_runs, run_status
from results.importing.areal_tracer import read_sessions
from results.importing.verl_console import phases_of, read_steps
from results.lint.findings import Severity
from results.lint.given import Given
from results.lint.runs import lint_run
from results.lint.source import lint_file
from results.store import load_run

pytestmark = [pytest.mark.framework, pytest.mark.timeout(900)]
LOGS = {"verl": "verl-console", "areal": "areal-console"}
# Sessions by AReaL's own class: accepted, rejected, one whose phase threw, one that never ended.
SESSIONS = """
import sys
from areal.api.cli_args import SessionTracerConfig
from areal.utils.perf_tracer import SessionTraceEvent as E, SessionTracer
tracer = SessionTracer(SessionTracerConfig(enabled=True), output_path=sys.argv[1], rank=0, role="rollout")
tracer.register_task(0)
for status in ("accepted", "rejected", "failed", None):
    name = tracer.register_session(0)
    for event in (E.GENERATE_START, E.GENERATE_END, E.TOOLCALL_START, E.TOOLCALL_END, E.GENERATE_START):
        tracer.record_event(name, event)
    if status != "failed":
        tracer.record_event(name, E.GENERATE_END)
    if status is not None:
        tracer.record_event(name, E.FINALIZED, status=status)
tracer.flush(force=True)
"""


def finished() -> list[tuple[RunSpec, Path]]:
    """Runs of real frameworks that ended well, without planted faults."""
    place = os.environ.get("BENCH_RUNS")
    assert place, "BENCH_RUNS must name the runs folder"
    found = [(RunSpec.load_file(folder / "spec.json"), folder) for folder in list_runs(Path(place))]
    kept = [
        (spec, folder)
        for spec, folder in found
        if spec.framework != "simulated" and not spec.faults and run_status(folder) == "finished"
    ]
    assert kept, f"no finished run of a real framework in {place}"
    return kept


def test_real_runs_break_no_identity() -> None:
    for _, folder in finished():
        linted = lint_run(folder)
        assert linted.of(Severity.VIOLATION) == [], folder
        assert linted.checks > 500


def test_the_verb_says_so_of_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """As somebody types it: every run is linted by name, nothing is left out, and nothing is broken."""
    folders = [str(folder) for _, folder in finished()]
    assert call(["lint", *folders, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["sources"]) == len(folders)
    assert all(one["checks"] > 500 for one in said["sources"])
    assert said["violations"] == 0


def test_their_console_logs_are_read_and_break_none() -> None:
    for spec, folder in finished():
        if spec.framework in LOGS:
            given = Given(gpus=spec.total_gpus)
            linted = lint_file(folder / "logs" / "worker.log", given, LOGS[spec.framework])
            assert linted.of(Severity.VIOLATION) == [], folder
            assert linted.made["phases_within_step"] >= 1


def test_the_steps_of_verls_log_are_those_that_were_recorded() -> None:
    for spec, folder in finished():
        if spec.framework != "verl":
            continue
        recorded = {row["step"]: row for row in load_run(folder).tables["steps"].to_pylist()}
        lines = (folder / "logs" / "worker.log").read_text(encoding="utf-8", errors="replace").splitlines()
        printed = read_steps(lines)
        assert {one.step for one in printed} == set(recorded)
        for one in printed:
            assert one.value("perf/total_num_tokens") == recorded[one.step]["processed_tokens"]
            assert dict(phases_of(one)).keys() >= {"gen", "old_log_prob", "update_actor", "update_weights"}


def test_sessions_as_areal_writes_them(tmp_path: Path) -> None:
    python = ensure(load_adapter("areal").environment(Device.CPU, "vllm"))
    path = tmp_path / "sessions-r0.jsonl"
    subprocess.run([str(python), "-c", SESSIONS, str(path)], check=True, timeout=600, capture_output=True)
    sessions, problems = read_sessions(path.read_text(encoding="utf-8").splitlines())
    assert problems == []
    assert sorted(one.status for one in sessions) == ["accepted", "failed", "pending", "rejected"]
    (threw,) = [one for one in sessions if one.status == "failed"]
    assert [end is None for _, end in threw.phases["generate"]] == [False, True]
    linted = lint_file(path, Given())
    assert linted.of(Severity.VIOLATION) == []
    assert linted.made["counts_agree"] >= 9
