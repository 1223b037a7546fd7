"""The real sampler process against the stand-in library: how it begins, whom it goes on without, how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.protocol.events import Bye, Hello
from results.samples import read_samples

NS = 1e9


def test_the_first_event_is_a_hello_and_the_last_a_bye(sampler):
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1)
    assert running.end() == 0
    events = running.events()
    assert isinstance(events[0], Hello)
    assert (events[0].role, events[0].run_id, events[0].pid) == ("sampler", "run-1", running.process.pid)
    assert events[0].versions == {"driver": "550.54.15-stand-in", "nvml": "12.550.54.15"}
    assert isinstance(events[-1], Bye)
    assert [metric.value for metric in running.metrics("telemetry.gpus")] == [2.0]
    (told,) = running.metrics("telemetry.rows")
    assert told.value == running.table().num_rows
    assert told.labels["lost"] == 0


def test_a_lost_gpu_ends_its_rows_and_no_others(sampler, uuid):
    running = sampler("* gpus 3\n")
    running.wait_until_sampling(0, 1, 2)
    running.configure("* gpus 3\n1 lost_after 0\n")
    running.wait_for(running.failures)
    lost = len(running.rows(1))
    before = len(running.power(0)), len(running.power(2))
    running.wait_for(lambda: len(running.power(0)) >= before[0] + 10 and len(running.power(2)) >= before[1] + 10)
    assert running.end() == 0
    (failure,) = running.failures()
    assert (failure.boundary, failure.type) == ("telemetry", "GpuLostError")
    assert uuid(1) in failure.message
    assert "GPU_IS_LOST" in failure.message
    assert len(running.rows(1)) <= lost + 20  # rows on their way to the file when it fell off, and no more
    assert max(row["mono_ns"] for row in running.rows(1)) <= failure.mono_ns


@pytest.mark.parametrize("calls", [2, 3, 8, 20])  # while the GPUs are listed, described, measured
def test_a_gpu_lost_during_the_start_does_not_stop_the_others(sampler, calls):
    running = sampler(f"* gpus 2\n0 lost_after {calls}\n")
    running.wait_until_sampling(1)
    assert running.end() == 0
    assert not running.power(0)
    assert [failure.type for failure in running.failures()] == ["GpuLostError"]


def test_a_killed_sampler_leaves_its_rows_and_a_second_one_keeps_them(sampler):
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1, rows=12)
    running.process.kill()
    killed_ns = time.monotonic_ns()
    running.process.wait()
    table = running.table()
    assert killed_ns - max(table["mono_ns"].to_pylist()) < 5 * NS  # it is to be below 1 s; this machine may be busy
    (first,) = running.samples_dir.glob("*.arrows")
    content = first.read_bytes()
    running.process.stdin.close()
    running.process.stderr.close()
    running.start()
    running.wait_for(lambda: running.table().num_rows > table.num_rows)
    assert running.end() == 0
    assert first.read_bytes() == content
    assert len(list(running.samples_dir.glob("*.arrows"))) == 2
    assert running.table().slice(0, table.num_rows).equals(table)
    assert sorted(running.gpus()) == [0, 1]


def test_a_gpu_that_hangs_in_the_driver_holds_up_neither_the_others_nor_the_end(sampler):
    running = sampler("* gpus 3\n1 latency_us.field_values 600000000\n")
    running.wait_until_sampling(0, 2)
    assert running.end() == 0
    assert not running.power(1)
    assert isinstance(running.events()[-1], Bye)


def test_the_ticks_of_a_gpu_that_hangs_until_the_end_are_told(sampler):
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1)
    running.configure("* gpus 2\n1 latency_us.field_values 600000000\n")
    rows = len(running.power(0))
    running.wait_for(lambda: len(running.power(0)) >= rows + 30)
    assert running.end() == 0
    (ticks,) = running.metrics("telemetry.ticks", 1)
    assert ticks.value == len(running.power(1))
    assert ticks.labels["skipped"] >= 10  # those since then; this machine may be busy
    assert len(running.metrics("telemetry.ticks", 0)) == 1
    assert isinstance(running.events()[-1], Bye)


def test_sigterm_ends_a_sampler_whose_driver_does_not_answer_at_all(sampler):
    running = sampler("* gpus 1\n* latency_us.init 600000000\n")
    running.wait_for(lambda: running.heeds(signal.SIGTERM))
    assert running.end() == 0


@pytest.mark.parametrize(("code", "lost"), [(4, 0), (15, 1)])
def test_a_gpu_that_is_hidden_is_no_failure_and_one_that_is_lost_is(sampler, code, lost):
    """A container or a job is given some of the GPUs, and the driver counts all of them."""
    running = sampler(f"* gpus 3\n1 error.handle {code}\n")
    running.wait_until_sampling(0, 2)
    assert running.end() == 0
    assert [failure.message for failure in running.failures()] == lost * ["GPU 1 does not answer: GPU_IS_LOST"]
    told = [one.labels for one in running.metrics("telemetry.unsupported") if one.labels["field"] == "gpu 1"]
    assert told == (1 - lost) * [{"field": "gpu 1", "reason": "NO_PERMISSION"}]
    assert [one.value for one in running.metrics("telemetry.gpus")] == [2.0]


def test_a_driver_that_takes_long_to_open_is_sampled_from_then_on(sampler, tmp_path):
    """As one does that has to initialise eight GPUs first; until then it is not said to be ready."""
    ready = tmp_path / "ready"
    running = sampler("* gpus 2\n* latency_us.init 14000000\n", more=("--ready", str(ready)))
    running.wait_for(lambda: running.metrics("telemetry.gpus"))
    assert "did not answer" in running.metrics("telemetry.gpus")[0].labels["reason"]
    assert not ready.exists()
    running.wait_until_sampling(0, 1)
    running.wait_for(lambda: all("driver" in gpu for gpu in running.gpus().values()) and running.gpus())
    assert ready.exists()
    assert running.end() == 0
    assert [told.value for told in running.metrics("telemetry.gpus")] == [0.0, 2.0]
    assert not running.failures()


def test_end_of_standard_input_ends_it_and_ctrl_c_does_not(sampler):
    running = sampler("* gpus 1\n")
    running.wait_until_sampling(0)
    running.process.send_signal(signal.SIGINT)
    running.wait_until_sampling(0, rows=len(running.power(0)) + 5)
    running.process.stdin.close()
    assert running.process.wait(60) == 0
    assert isinstance(running.events()[-1], Bye)


@pytest.mark.parametrize(
    ("settings", "reason"), [("* error.init 9\n", "DRIVER_NOT_LOADED"), ("* gpus 0\n", "no usable")]
)
def test_without_gpus_it_says_so_once_and_samples_the_host(sampler, settings, reason):
    running = sampler(settings)
    running.wait_for(lambda: running.samples_dir.exists() and running.table().num_rows >= 3)
    assert running.end() == 0
    (told,) = running.metrics("telemetry.gpus")
    assert told.value == 0
    assert reason in told.labels["reason"]
    assert {row["gpu"] for row in running.rows()} == {None}
    assert running.gpus() == {}
    assert not running.failures()


def test_a_library_that_cannot_be_loaded_is_a_reason_not_a_crash(sampler, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").write_text("not a library")
    running = sampler("", library=folder)
    running.wait_for(lambda: running.metrics("telemetry.gpus"))
    assert running.end() == 0
    (told,) = running.metrics("telemetry.gpus")
    assert "LIBRARY_NOT_FOUND" in told.labels["reason"]


@pytest.mark.parametrize(("hz", "code"), [("0", 2), ("101", 2), ("nan", 2)])
def test_a_rate_out_of_range_is_refused(tmp_path: Path, hz, code):
    command = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "r", "--out", str(tmp_path), "--hz", hz]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == code
    assert "--hz" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "samples"
    command = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "r", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 3
    assert str(out) in done.stderr


def started_with_ready(folder, library, settings):
    (folder / "settings").write_text(settings)
    ready = folder / "ready"
    command = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "run-1", "--ready", str(ready)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": str(folder / "settings")}
    arguments = [*command, "--out", str(folder / "run" / "samples")]
    return ready, subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE)


@pytest.mark.parametrize("settings", ["* gpus 2\n", "* gpus 2\n1 lost_after 20\n", "* gpus 0\n"])
def test_it_says_when_every_gpu_that_can_has_given_power(tmp_path, stand_in, settings):
    ready, process = started_with_ready(tmp_path, stand_in, settings)
    with process:
        end = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        said_ns = time.monotonic_ns()
        process.terminate()
    assert process.returncode == 0
    rows = read_samples(tmp_path / "run" / "samples").to_pylist()
    with_power = {row["gpu"] for row in rows if row["power_instant_watts"] is not None and row["mono_ns"] <= said_ns}
    assert len(with_power) == {"* gpus 2\n": 2, "* gpus 0\n": 0}.get(settings, 1)


def test_a_gpu_that_came_back_while_a_call_to_it_still_hung_is_read_by_one_thread(sampler):
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1)
    begun = time.monotonic()
    running.configure("* gpus 2\n1 latency_us.field_values 12000000\n")
    rows = len(running.power(0))
    running.wait_for(lambda: len(running.power(0)) >= rows + 10)  # by now that call hangs
    running.configure("* gpus 2\n1 error.limit 15\n")  # GPU_IS_LOST, as another thread finds
    running.wait_for(running.failures)
    running.configure("* gpus 2\n")
    running.wait_for(lambda: running.metrics("telemetry.gpu_returned"))
    hung_until = (begun + 14) * NS
    running.wait_for(lambda: running.power(0)[-1]["mono_ns"] > hung_until + 2 * NS)
    assert running.end() == 0
    first, second = (sum(row["mono_ns"] > hung_until for row in running.power(gpu)) for gpu in (0, 1))
    assert second < 1.5 * first
    assert len(running.failures()) == 1
    assert len(running.metrics("telemetry.ticks", 1)) == 2  # each of the two that read it
