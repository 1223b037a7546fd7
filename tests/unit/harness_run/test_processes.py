"""Finding and ending processes, the scratch folder, the power of the newest samples, facts of the machine."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from stand_in import alive, wait_for

from harness import machine
from harness.power import LatestPower
from harness.supervisor import processes, scratch
from harness.supervisor.orders import Orders
from harness.supervisor.processes import all_processes, descendants, marked, read_process, send, sweep
from harness.supervisor.scratch import clear_scratch, make_scratch

IGNORES_TERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", IGNORES_TERM], stdout=subprocess.PIPE, env={**os.environ, "TEST_MARK": "a b"}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_with_an_odd_name_is_read(tmp_path: Path) -> None:
    script = tmp_path / "a) S 1 (b"
    script.symlink_to("/bin/sleep")
    with subprocess.Popen([str(script), "600"]) as process:
        try:
            wait_for(lambda: (found := read_process(process.pid)) and found.name == "a) S 1 (b")
            found = read_process(process.pid)
            assert found is not None
            assert found.parent == os.getpid()
        finally:
            process.kill()


def test_found_by_descent_and_by_mark(sleeper: subprocess.Popen[bytes]) -> None:
    table = all_processes()
    assert sleeper.pid in descendants([os.getpid()], table)
    assert os.getpid() not in descendants([os.getpid()], table)
    assert set(marked("TEST_MARK", "a b", table)) == {sleeper.pid}
    assert not marked("TEST_MARK", "a", table)


def test_a_reused_pid_is_not_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    now = read_process(sleeper.pid)
    assert now is not None
    assert not send(dataclasses.replace(now, start_ticks=now.start_ticks - 1), signal.SIGKILL)
    assert alive(sleeper.pid)
    assert send(now, signal.SIGKILL)
    sleeper.wait()
    assert not send(now, signal.SIGKILL)


def test_a_sweep_asks_then_kills(sleeper: subprocess.Popen[bytes]) -> None:
    def find() -> dict[int, processes.Process]:
        sleeper.poll()
        now = read_process(sleeper.pid)
        return {now.pid: now} if now is not None and now.live else {}

    ended = sweep(find, grace_s=0.3)
    label = f"python ({sleeper.pid})"
    assert [name.split(" ")[1] for name in ended.terminated] == [label.split(" ")[1]]
    assert [name.split(" ")[1] for name in ended.killed] == [label.split(" ")[1]]
    assert not ended.survivors
    assert sleeper.wait() == -signal.SIGKILL


def test_a_sweep_reports_what_it_cannot_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KILL_PATIENCE_S", 0.05)
    monkeypatch.setattr(processes, "send", lambda process, number: False)
    stuck = processes.Process(pid=4, start_ticks=1, parent=1, name="nfs", state="D")
    ended = sweep(lambda: {4: stuck}, grace_s=0.0)
    assert (ended.terminated, ended.killed, ended.survivors) == ([], [], ["nfs (4)"])


def test_the_orders_survive_their_line() -> None:
    orders = Orders(
        run_id="r", arguments=("a", "b c"), log="/l", logs="/d", scratch="/s", env={"X": "ü\n"}, sampler=("s",)
    )
    assert "\n" not in orders.to_json()
    assert Orders.from_json(orders.to_json()) == orders
    assert orders.child_env == {"X": "ü\n", "BENCH_RUN_ID": "r", "BENCH_TMP": "/s", "TMPDIR": "/s"}


def test_only_the_tails_of_the_newest_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "TAIL_BYTES", 10)
    monkeypatch.setattr(scratch, "MOST_FILES", 3)
    folder = make_scratch()
    logs = folder / "ray/session_1/logs"
    logs.mkdir(parents=True)
    (folder / "ray/session_latest").symlink_to(folder / "ray/session_1")
    for number in range(5):
        (logs / f"w{number}.out").write_text(f"0123456789-{number}")
        os.utime(logs / f"w{number}.out", (number, number))
    (logs / "empty.log").touch()
    (logs / "weights.bin").write_text("x")
    (logs / "hosts.txt").symlink_to("/etc/hosts")
    assert clear_scratch(folder, tmp_path) == 3
    kept = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path.name for path in kept] == ["w2.out", "w3.out", "w4.out"]
    assert kept[0].read_text() == "23456789-2"
    assert not folder.exists()
    assert clear_scratch(folder, tmp_path) == 0


def test_the_scratch_path_is_short_whatever_tmpdir_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    folder = make_scratch()
    assert len(str(folder)) < 60
    folder.rmdir()


def test_power_is_the_sum_of_each_gpus_newest_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.power.PERIOD_S", 0.0)
    power = LatestPower(tmp_path)
    assert power() is None
    columns = ["gpu", "power_instant_watts", "power_average_watts"]
    schema = pa.schema([(columns[0], pa.string()), (columns[1], pa.float64()), (columns[2], pa.float64())])

    def batch(*rows: tuple[str | None, float | None, float | None]) -> bytes:
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes()

    with (tmp_path / "h-1.arrows").open("wb", buffering=0) as file:
        file.write(schema.serialize().to_pybytes())
        file.write(batch(("a", 100.0, 1.0), ("b", None, 50.0), (None, 9.0, 9.0)))
        assert power() == 150.0
        second = batch(("a", 200.0, None), ("b", None, None))
        file.write(second[:40])
        assert power() == 150.0  # half a message is no news
        file.write(second[40:])
        assert power() == 250.0
        assert power() == 250.0


def test_the_facts_of_this_machine() -> None:
    facts = machine.machine()
    assert set(facts) == {"host", "cpu", "cores", "memory_bytes", "kernel", "python"}
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 1e8
    assert machine.source()["bench_version"]


def test_no_commit_is_claimed_inside_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(machine, "SOURCE", tmp_path / "site-packages")
    assert machine.source()["commit"] is None
