"""What the supervisor waits for before it starts the child and after the child's end, with samplers that are told."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stand_in import SLEEPER, StandIn, make_spec

from harness.live import SilentDisplay
from harness.protocol.errors import SpecError
from harness.run import IDLE_S, idle_seconds, run
from harness.run_folder import read_status
from harness.supervisor.handle import Report, SupervisorHandle
from harness.supervisor.orders import Orders

# Makes the file of argv[1] after argv[2] seconds; ends as the real sampler does.
SAMPLER = (
    "import pathlib, sys, time; time.sleep(float(sys.argv[2])); pathlib.Path(sys.argv[1]).touch(); sys.stdin.read()"
)


def supervised(folder: Path, child: str = "pass", **orders: Any) -> list[Report]:
    """All reports of a supervisor with that child."""
    (folder / "scratch").mkdir()
    (folder / "logs").mkdir()
    given = Orders(
        run_id="around",
        arguments=(sys.executable, "-c", child),
        log=str(folder / "logs" / "worker.log"),
        logs=str(folder / "logs"),
        scratch=str(folder / "scratch"),
        **orders,
    )
    found: list[Report] = []
    with SupervisorHandle(given, folder / "logs" / "supervisor.log") as handle:
        while not handle.over:
            found += handle.reports(0.5)
    return found


def moment(reports: list[Report], kind: str) -> float:
    (one,) = [report for report in reports if report["kind"] == kind]
    return float(one["mono_ns"]) / 1e9


def test_the_lead_begins_with_the_first_readings(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    sampler = (sys.executable, "-c", SAMPLER, str(ready), "0.6")
    reports = supervised(tmp_path, sampler=sampler, sampler_ready=str(ready), lead_s=0.5)
    assert moment(reports, "started") - moment(reports, "sampler_started") >= 0.6 + 0.5
    assert not [report for report in reports if report["kind"] == "no_readings"]


def test_readings_that_never_come_are_waited_for_within_limits_and_told(tmp_path: Path) -> None:
    reports = supervised(tmp_path, sampler=SLEEPER, sampler_ready=str(tmp_path / "never"), ready_patience_s=0.4)
    assert moment(reports, "no_readings") - moment(reports, "sampler_started") >= 0.4
    assert moment(reports, "started") >= moment(reports, "no_readings")
    assert moment(reports, "exited") <= moment(reports, "done")


def test_the_sampler_outlives_the_child_by_its_tail(tmp_path: Path) -> None:
    # It ignores TERM and notes its end, which comes when its standard input ends.
    noting = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); sys.stdin.read(); print(time.monotonic())"
    log = tmp_path / "sampler.log"
    sampler = (sys.executable, "-c", noting)
    reports = supervised(
        tmp_path, sampler=sampler, sampler_log=str(log), tail_s=0.8, child="import time; time.sleep(1)"
    )
    assert float(log.read_text()) - moment(reports, "exited") >= 0.8


def test_a_killed_run_has_no_tail(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "logs").mkdir()
    orders = Orders(
        run_id="around",
        arguments=(sys.executable, "-c", "import time; time.sleep(600)"),
        log=str(tmp_path / "logs" / "worker.log"),
        logs=str(tmp_path / "logs"),
        scratch=str(tmp_path / "scratch"),
        sampler=SLEEPER,
        tail_s=500.0,
    )
    begin = time.monotonic()
    with SupervisorHandle(orders, tmp_path / "logs" / "supervisor.log") as handle:
        while not any(report["kind"] == "started" for report in handle.reports(0.5)):
            assert time.monotonic() - begin < 60
        handle.kill()
        while not handle.over:
            handle.reports(0.5)
    assert handle.lost is None
    assert time.monotonic() - begin < 100


def test_the_idle_time_can_be_set() -> None:
    assert idle_seconds({}) == idle_seconds({"BENCH_IDLE_S": ""}) == IDLE_S == 10.0
    assert idle_seconds({"BENCH_IDLE_S": "2.5"}) == 2.5
    assert idle_seconds({"BENCH_IDLE_S": "0"}) == 0.0
    for bad in ("-1", "soon", "inf", "nan"):
        with pytest.raises(SpecError, match=f"BENCH_IDLE_S = {bad}"):
            idle_seconds({"BENCH_IDLE_S": bad})


@pytest.mark.parametrize(("value", "detail"), [(None, "all"), ("steps", "steps"), ("all", "all")])
def test_what_was_recorded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, detail: str
) -> None:
    monkeypatch.delenv("BENCH_RECORD", raising=False)
    if value is not None:
        monkeypatch.setenv("BENCH_RECORD", value)
    result = run(make_spec(), StandIn("steps=1"), tmp_path, display=SilentDisplay(), sampler=())
    assert read_status(result.run_dir).meta["record_detail"] == detail


def test_the_workers_current_folder_shadows_nothing(tmp_path: Path) -> None:
    show = "import sys; print(sys.flags.safe_path, '' in sys.path)"
    result = run(make_spec(), StandIn(argv=("-c", show)), tmp_path, display=SilentDisplay(), sampler=())
    assert (result.run_dir / "logs/worker.log").read_text() == "True False\n"
