"""Whose a GPU process is, with real processes where the kernel allows it."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.telemetry.host import HostReader, Owner, load_ratio, owner_of

GRANDCHILD = "import os; print(os.getpid(), flush=True); input()"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GRANDCHILD!r}], env={{}})"


@pytest.fixture
def start():
    started = []

    def run(code: str, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", code], env=env, **pipes)
        started.append(process)
        return process

    yield run
    for process in started:
        process.communicate(b"\n")


def test_a_process_that_carries_the_run_is_ours(start):
    process = start("print(1, flush=True); input()", {"BENCH_RUN_ID": "run-1"})
    process.stdout.readline()
    assert owner_of(process.pid, "run-1") is Owner.OURS
    assert owner_of(process.pid, "run-12") is Owner.FOREIGN
    assert owner_of(process.pid, "run") is Owner.FOREIGN


def test_a_descendant_that_dropped_its_environment_is_ours(start):
    process = start(CHILD, {"BENCH_RUN_ID": "run-1"})
    pid = int(process.stdout.readline())
    assert pid != process.pid
    assert owner_of(pid, "run-1") is Owner.OURS


def test_a_process_that_is_not_visible_cannot_be_told():
    assert owner_of(2**22, "run-1") is Owner.UNKNOWN  # pids end below


def fake(proc: Path, pid: int, parent: int, environ: bytes) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_bytes(environ)
    (folder / "stat").write_text(f"{pid} (ray::Worker (1) x) S {parent} 1 1 0")


def test_an_overwritten_environment_is_judged_by_its_ancestors(tmp_path):
    fake(tmp_path, 10, 1, b"A=1\0BENCH_RUN_ID=run-1\0")
    fake(tmp_path, 11, 10, b"ray::Worker\0\0\0\0")  # a process title written over it
    fake(tmp_path, 12, 11, b"VLLM::EngineCore\0\0")
    fake(tmp_path, 1, 0, b"")
    fake(tmp_path, 20, 1, b"PATH=/bin\0")
    fake(tmp_path, 21, 20, b"some title\0\0")
    fake(tmp_path, 22, 21, b"PATH=/bin\0")
    assert owner_of(12, "run-1", tmp_path) is Owner.OURS
    assert owner_of(22, "run-1", tmp_path) is Owner.FOREIGN
    assert owner_of(21, "run-1", tmp_path) is Owner.UNKNOWN
    assert owner_of(99, "run-1", tmp_path) is Owner.UNKNOWN


def test_host_readings_are_ratios_and_bytes():
    reader = HostReader()
    first = reader.read()  # moments after the start
    assert first["cpu_ratio"] is None or 0 <= first["cpu_ratio"] <= 1
    assert first["host_memory_used_bytes"] > 1_000_000
    assert load_ratio() >= 0


def test_the_share_of_the_cpus_begins_anew_where_one_was_taken_away(tmp_path):
    """Its times go with it: what is busy from then on is not set against what they were."""

    def spent(user, idle):
        numbers = " ".join(str(number) for number in (user, 0, 0, idle, 0, 0, 0, 0, 0, 0))
        (tmp_path / "stat").write_text(f"cpu  {numbers}\ncpu0 {numbers}\n")

    (tmp_path / "self" / "net").mkdir(parents=True)
    (tmp_path / "self" / "net" / "dev").write_text("Inter-|\n face |\n")
    (tmp_path / "meminfo").write_text("MemTotal: 4 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n")
    second = 10_000_000  # of many CPUs, in ticks
    spent(3 * second, 9 * second)
    reader = HostReader(tmp_path)
    spent(2 * second, 6 * second)
    assert reader.read()["cpu_ratio"] is None
    spent(2 * second + second // 2, 6 * second + second // 2)
    assert reader.read()["cpu_ratio"] == 0.5
    spent(3 * second + second // 2, 6 * second + second // 2)
    assert reader.read()["cpu_ratio"] == 1.0
