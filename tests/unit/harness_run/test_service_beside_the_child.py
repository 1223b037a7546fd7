"""The service that a child needs: waited for, ended after it, started once more, and never left behind."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from stand_in import alive, wait_for

from harness.supervisor.handle import Report, SupervisorHandle
from harness.supervisor.orders import Orders

# Makes the file of argv[1] after argv[2] seconds and writes its pid; ends with its standard input, as a tool server.
SERVICE = """
import os, pathlib, sys, time
time.sleep(float(sys.argv[2]))
ready = pathlib.Path(sys.argv[1])
ready.with_suffix(".pids").open("a").write(f"{os.getpid()}\\n")
ready.touch()
sys.stdin.read()
"""

DIES_WHEN_TOLD = """
while not ready.with_suffix(".die").exists():
    time.sleep(0.02)
raise SystemExit(7)
"""


class Case:
    """A supervisor with a service, and what it reported."""

    def __init__(self, folder: Path, child: str = "pass", *, service: str = SERVICE, **orders: Any) -> None:
        self.ready = folder / "ready"
        (folder / "scratch").mkdir()
        (folder / "logs").mkdir()
        self.log = folder / "logs" / "service.log"
        self.orders = Orders(
            run_id=f"service-{folder.name}",
            arguments=(sys.executable, "-c", child, str(self.ready)),
            log=str(folder / "logs" / "worker.log"),
            logs=str(folder / "logs"),
            scratch=str(folder / "scratch"),
            **{
                "service": (sys.executable, "-c", service, str(self.ready), "0.1"),
                "service_name": "tool server",
                "service_log": str(self.log),
                "service_ready": str(self.ready),
                "settle_s": 0.2,
                **orders,
            },
        )
        self.reports: list[Report] = []

    def run(self) -> None:
        with SupervisorHandle(self.orders, Path(self.orders.logs) / "supervisor.log") as handle:
            while not handle.over:
                self.reports += handle.reports(0.2)

    def all(self, kind: str) -> list[Report]:
        return [report for report in self.reports if report["kind"] == kind]

    def moment(self, kind: str) -> int:
        (one,) = self.all(kind)
        return int(one["mono_ns"])

    def pids(self) -> list[int]:
        path = self.ready.with_suffix(".pids")
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_the_child_starts_when_the_service_is_ready_and_the_service_outlives_it(tmp_path: Path) -> None:
    # The child fails unless the service is there when it starts and when it ends.
    child = (
        "import os, pathlib, sys, time; ready = pathlib.Path(sys.argv[1]); assert ready.exists(); time.sleep(0.3);"
        " os.kill(int(ready.with_suffix('.pids').read_text()), 0)"
    )
    case = Case(tmp_path, child)
    case.run()
    assert case.all("exited")[0]["code"] == 0, (tmp_path / "logs" / "worker.log").read_text()
    assert case.moment("service_started") < case.moment("started") < case.moment("exited") < case.moment("done")
    assert not case.all("service_lost")
    assert not case.all("service_failed")
    (swept,) = case.all("swept")
    assert swept["terminated"] == swept["killed"] == swept["survivors"] == []  # that it was asked to end is no news
    (pid,) = case.pids()
    assert not alive(pid)


def test_a_service_that_is_never_ready_ends_the_run_before_the_child(tmp_path: Path) -> None:
    case = Case(tmp_path, service="import sys; sys.stdin.read()", service_patience_s=0.5)
    case.run()
    (failed,) = case.all("service_failed")
    assert failed["message"] == "the tool server was not ready after 0.5 s"
    assert not case.all("started")
    assert not alive(case.all("service_started")[0]["pid"])


def test_a_service_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    case = Case(tmp_path, service="raise SystemExit(7)", service_patience_s=600)
    case.run()
    (failed,) = case.all("service_failed")
    assert failed["message"] == "the tool server ended with code 7"
    assert not case.all("started")


@pytest.mark.parametrize("waiting_for", ["lead", "readings"])
def test_a_service_that_dies_between_being_ready_and_the_childs_start_ends_the_run(
    tmp_path: Path, waiting_for: str
) -> None:
    until: dict[str, dict[str, Any]] = {
        "lead": {"lead_s": 600.0},
        "readings": {
            "sampler": (sys.executable, "-c", "import sys; sys.stdin.read()"),
            "sampler_ready": str(tmp_path / "never"),
            "ready_patience_s": 600.0,
        },
    }
    case = Case(tmp_path, service=SERVICE.replace("sys.stdin.read()", DIES_WHEN_TOLD), **until[waiting_for])
    runner = threading.Thread(target=case.run)
    runner.start()
    wait_for(lambda: case.ready.exists())
    assert not case.all("service_failed")
    case.ready.with_suffix(".die").touch()
    runner.join(60)
    assert not runner.is_alive()
    (failed,) = case.all("service_failed")
    assert failed["message"] == "the tool server ended with code 7"
    assert not case.all("started")


def test_a_service_that_dies_as_soon_as_it_is_ready_ends_the_run(tmp_path: Path) -> None:
    case = Case(tmp_path, service=SERVICE.replace("sys.stdin.read()", "raise SystemExit(7)"), lead_s=600.0)
    case.run()
    (failed,) = case.all("service_failed")
    assert failed["message"] == "the tool server ended with code 7"
    assert not case.all("started")


def test_a_service_that_hangs_when_it_is_started_again_is_lost(tmp_path: Path) -> None:
    # The first one dies once the child runs; the second never becomes ready.
    service = f"""
import sys, pathlib
if pathlib.Path(sys.argv[1]).with_suffix(".pids").exists():
    sys.stdin.read()
{SERVICE}"""
    child = "import os, pathlib, sys, time\npids = pathlib.Path(sys.argv[1]).with_suffix('.pids')\n"
    child += "os.kill(int(pids.read_text()), 9)\ntime.sleep(600)"
    case = Case(tmp_path, child, service=service, service_patience_s=8.0)
    with SupervisorHandle(case.orders, Path(case.orders.logs) / "supervisor.log") as handle:
        while len(case.all("service_lost")) < 2:
            assert not handle.over
            case.reports += handle.reports(0.2)
        handle.stop()
        while not handle.over:
            case.reports += handle.reports(0.2)
    first, second = case.all("service_lost")
    assert (first["message"], first["restarted"]) == ("ended with signal 9", True)
    assert (second["message"], second["restarted"]) == ("was not ready after 8 s", False)
    assert not any(alive(report["pid"]) for report in case.all("service_started"))


def test_a_service_that_is_ready_again_in_time_is_not_lost_later(tmp_path: Path) -> None:
    child = """
import os, pathlib, sys, time
pids = pathlib.Path(sys.argv[1]).with_suffix(".pids")
os.kill(int(pids.read_text()), 9)
while len(pids.read_text().split()) < 2:
    time.sleep(0.02)
time.sleep(9)
"""
    # Ready again in a moment, but for longer than the patience of the restart without its file.
    case = Case(tmp_path, child, service_patience_s=8.0)
    case.run()
    (lost,) = case.all("service_lost")
    assert lost["restarted"] is True
    assert case.all("exited")[0]["code"] == 0


def test_a_service_that_cannot_be_started_ends_the_run(tmp_path: Path) -> None:
    case = Case(tmp_path, service="", service_patience_s=600)
    case.orders = Orders(**{**_fields(case.orders), "service": (str(tmp_path / "nothing"),)})
    case.run()
    (failed,) = case.all("service_failed")
    assert "can't be started" in failed["message"]
    assert not case.all("started")


def test_a_service_that_dies_is_started_once_more_and_not_twice(tmp_path: Path) -> None:
    # The child kills the service twice, waiting for the second one to be ready.
    child = """
import os, pathlib, signal, sys, time
pids = pathlib.Path(sys.argv[1]).with_suffix(".pids")
for count in (1, 2):
    while len(pids.read_text().split()) < count:
        time.sleep(0.02)
    os.kill(int(pids.read_text().split()[-1]), signal.SIGKILL)
time.sleep(0.5)
"""
    case = Case(tmp_path, child)
    case.run()
    first, second = case.all("service_lost")
    assert (first["message"], first["restarted"]) == ("ended with signal 9", True)
    assert (second["message"], second["restarted"]) == ("ended with signal 9", False)
    assert len(case.pids()) == 2
    assert case.all("exited")[0]["code"] == 0


def test_the_child_does_not_inherit_what_is_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PROVIDERS_KEY", "secret")
    service = "import os; assert os.environ['A_PROVIDERS_KEY'] == 'secret'\n" + SERVICE
    child = "import os; assert 'A_PROVIDERS_KEY' not in os.environ; assert os.environ['PATH']"
    case = Case(tmp_path, child, service=service, withheld=("A_PROVIDERS_KEY",))
    case.run()
    assert case.all("exited")[0]["code"] == 0


def test_a_stop_while_the_service_starts_leaves_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path, service="import sys; sys.stdin.read()", service_patience_s=600)
    with SupervisorHandle(case.orders, Path(case.orders.logs) / "supervisor.log") as handle:
        while not case.all("service_started"):
            case.reports += handle.reports(0.2)
        handle.stop()
        while not handle.over:
            case.reports += handle.reports(0.2)
    assert not case.all("started")
    assert not case.all("service_failed")
    assert not alive(case.all("service_started")[0]["pid"])


def test_a_service_ends_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    case = Case(tmp_path, "import time; time.sleep(600)")
    with SupervisorHandle(case.orders, Path(case.orders.logs) / "supervisor.log") as handle:
        while not case.all("started"):
            case.reports += handle.reports(0.2)
        (pid,) = case.pids()
        os.kill(handle.process.pid, signal.SIGKILL)
        while not handle.over:
            handle.reports(0.2)
    wait_for(lambda: not alive(pid))


def test_a_service_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    deaf = SERVICE.replace("sys.stdin.read()", "time.sleep(600)") + ""
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + deaf
    case = Case(tmp_path, service=deaf, service_grace_s=0.3)
    runner = threading.Thread(target=case.run)
    runner.start()
    runner.join(60)
    assert not runner.is_alive()
    (swept,) = case.all("swept")
    assert len(swept["killed"]) == 1
    assert not alive(case.pids()[0])


def _fields(orders: Orders) -> dict[str, Any]:
    return {name: getattr(orders, name) for name in Orders.__slots__}
