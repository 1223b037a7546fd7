"""What machine and which code a run was made with: the facts that meta.json keeps."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from harness.protocol.recorder import host_name

SOURCE = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    """Host, CPU model, cores that this process may use, memory, kernel and the harness's Python."""
    return {
        "host": host_name(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def gpus() -> list[dict[str, Any]]:
    """Each GPU's index, uuid, name and enforced power limit in watts (None where the driver does not say)."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def source() -> dict[str, Any]:
    """Version of `bench`, and the commit of its source; None for both when it is not a checkout of its own."""
    try:
        bench_version: str | None = version("agentic-rl-bench")
    except PackageNotFoundError:
        bench_version = None
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != SOURCE:  # installed inside someone else's checkout
        return {"bench_version": bench_version, "commit": None, "dirty": None}
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "bench_version": bench_version,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        limit = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    except nvml.NVMLError:
        limit = None
    return {
        "index": index,
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "power_limit_watts": limit,
    }


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
