"""A sweep spread over processes: the same rows, and nothing left running however it ends."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from results.planner.sweep import cells, run


def test_other_processes_give_the_same_rows():
    base = {"durations": {"law": "log_normal", "median_s": 20, "sigma": 1}, "horizon_s": 1800.0}
    sweep = cells(base, {"workers": [16, 64], "mode": ["synchronous", "async"]}, seeds=2)

    assert run(sweep, jobs=2) == run(sweep, jobs=1)


def test_other_processes_give_the_same_rows_of_large_fleets_with_turns_and_load():
    base = {
        "durations": {
            "law": "composed",
            "turns": [[2, 9]],
            "generation": {"law": "log_normal", "median_s": 8, "sigma": 0.6},
            "tool": {"law": "log_normal", "median_s": 16, "sigma": 0.7},
        },
        "policy": {"group_size": 8, "mode": "async"},
        "pools": {"engines": 40, "slow_down": {"concurrency": [1, 64], "factor": [1.0, 3.0]}, "train": 60.0},
        "batch_size": 64,
        "horizon_updates": 3,
    }
    sweep = cells(base, {"workers": [500, 2_000], "max_staleness": [None, 1]}, seeds=2)
    told: list[tuple[int, int]] = []

    rows = run(sweep, jobs=3, progress=lambda done, total: told.append((done, total)))

    assert rows == run(sweep, jobs=1)
    assert [row["workers"] for row in rows] == [500] * 4 + [2_000] * 4
    assert told == [(done, 8) for done in range(1, 9)]


def test_an_interrupt_ends_a_large_sweep_and_its_processes():
    words = ["--sweep", "sigma=0:1.5:400", "--sweep", "update_s=1:100:50", "--jobs", "2", "--json"]
    bench = [sys.executable, "-c", "from harness.cli import main; main()", "simulate", *words]
    run = subprocess.Popen(bench, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert run.stderr is not None
        assert run.stderr.readline() == "40,000 scenarios\n"
        until = time.monotonic() + 60
        while len(spawned(run.pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(spawned(run.pid)) == 2
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all of them
        assert run.wait(timeout=60) == 130
        assert "Traceback" not in run.stderr.read()
        while spawned(run.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not spawned(run.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)


def test_processes_of_a_sweep_end_with_the_one_that_was_killed():
    words = ["--sweep", "sigma=0:1.5:400", "--sweep", "update_s=1:100:50", "--jobs", "2", "--json"]
    bench = [sys.executable, "-c", "from harness.cli import main; main()", "simulate", *words]
    run = subprocess.Popen(bench, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while len(spawned(run.pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(spawned(run.pid)) == 2
        time.sleep(1)  # until they have begun to watch
        run.kill()
        run.wait(timeout=60)
        while spawned(run.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not spawned(run.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)


def spawned(session):
    """Living processes of a session that multiprocessing has started to work."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = os.getsid(int(folder.name)) == session
            if mine and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
