"""The stand-in NVML library, compiled once, and a sampler process that runs against it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from harness.protocol.events import Event, Failure, Metric, read_events
from results.samples import read_gpus, read_samples

SOURCE = Path(__file__).parents[2] / "nvml_stand_in" / "nvml_stand_in.c"
HANG_S = 60.0  # only a hang takes this long


def uuid_of(index: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{index:012d}"


def compile_stand_in(folder: Path, *flags: str) -> Path:
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", *flags]
    command += ["-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE), "-lpthread"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.fail("these tests compile a stand-in for NVML: install a C compiler as `cc`")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{' '.join(command)}\n{error.stderr}")
    return folder


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stand_in(tmp_path_factory.mktemp("nvml-old"), "-DWITHOUT_FIELD_VALUES")


class RunningSampler:
    """A real sampler process, and what it has left on disk so far."""

    def __init__(
        self, folder: Path, library: Path, settings: str, hz: float, more: tuple[str, ...] = (), path: str | None = None
    ) -> None:
        self.more = more
        self.samples_dir = folder / "run" / "samples"
        self.events_dir = folder / "run" / "events"
        self.settings = folder / "settings"
        self.configure(settings)
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": str(self.settings)}
        if path is not None:
            self.environment["PATH"] = path
        self.hz = hz
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "run-1", "--hz", str(self.hz)]
        command += ["--out", str(self.samples_dir), "--events", str(self.events_dir), *self.more]
        self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.process

    def configure(self, settings: str) -> None:
        temporary = self.settings.with_suffix(".new")
        temporary.write_text(settings)
        temporary.replace(self.settings)

    def rows(self, gpu: int | None = None) -> list[dict[str, object]]:
        rows = self.table().to_pylist()
        return rows if gpu is None else [row for row in rows if row["gpu"] == uuid_of(gpu)]

    def table(self) -> pa.Table:
        return read_samples(self.samples_dir)

    def power(self, gpu: int) -> list[dict[str, object]]:
        return [row for row in self.rows(gpu) if row["power_limit_watts"] is not None]

    def gpus(self) -> dict[int, dict[str, object]]:
        return {int(gpu["index"]): gpu for gpu in read_gpus(self.samples_dir) if "index" in gpu}

    def events(self) -> list[Event]:
        found = [event for path in sorted(self.events_dir.glob("*.jsonl")) for event in read_events(path)]
        return [event for event in found if not isinstance(event, ValueError)]

    def metrics(self, name: str, gpu: int | None = None) -> list[Metric]:
        found = [event for event in self.events() if isinstance(event, Metric) and event.name == name]
        return found if gpu is None else [event for event in found if event.labels.get("gpu") == uuid_of(gpu)]

    def failures(self) -> list[Failure]:
        return [event for event in self.events() if isinstance(event, Failure)]

    def wait_for(self, what: Callable[[], object]) -> None:
        end = time.monotonic() + HANG_S
        while not what():
            assert time.monotonic() < end, "the sampler did not get there"
            assert self.process.poll() is None, f"the sampler ended: {self.process.stderr.read().decode()}"
            time.sleep(0.1)

    def wait_until_sampling(self, *gpus: int, rows: int = 5) -> None:
        self.wait_for(lambda: all(len(self.power(gpu)) >= rows for gpu in gpus))

    def heeds(self, number: int) -> bool:
        """Whether the process has a handler for the signal by now: before, the signal would just end it."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
        return bool(caught >> (number - 1) & 1)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stderr.close()


@pytest.fixture
def sampler(tmp_path: Path, stand_in: Path) -> Iterator[Callable[..., RunningSampler]]:
    started: list[RunningSampler] = []

    def start(
        settings: str,
        *,
        library: Path | None = None,
        hz: float = 10,
        more: tuple[str, ...] = (),
        path: str | None = None,
    ) -> RunningSampler:
        running = RunningSampler(tmp_path, library or stand_in, settings, hz, more, path)
        started.append(running)
        return running

    yield start
    for running in started:
        running.close()


@pytest.fixture(scope="session")
def sampler_process() -> type[RunningSampler]:
    """For samplers that live longer than one test; whoever starts one closes it."""
    return RunningSampler


@pytest.fixture
def uuid() -> Callable[[int], str]:
    return uuid_of
