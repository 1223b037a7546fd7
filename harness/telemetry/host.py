"""Readings of this machine: CPU, memory, network; and whether a process belongs to the run."""

import os
from enum import StrEnum
from pathlib import Path

import psutil

from harness.protocol.recorder import RUN_ID_VARIABLE

PROC = Path("/proc")
SHORTEST_CPU_S = 0.1  # the kernel counts in ticks of 10 ms: a share of fewer than ten says nothing


class HostReader:
    """Reads CPU share, memory and network counters of the machine."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()
        self._cpus = psutil.cpu_count() or 1

    def read(self) -> dict[str, int | float | None]:
        """Columns of a host row.

        `cpu_ratio` is the busy share of all CPUs since it was last told (None when that is a moment ago);
        network bytes are cumulative since boot, all interfaces but loopback.
        """
        now = psutil.cpu_times()
        # guest time is contained in user time and would be counted twice
        total = sum(now) - sum(self._before) - (_guest(now) - _guest(self._before))
        idle = _idle(now) - _idle(self._before)
        busy_share = None
        if total >= SHORTEST_CPU_S * self._cpus:
            busy_share = min(1.0, max(0.0, 1.0 - idle / total))
            self._before = now
        nics = [n for name, n in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        return {
            "cpu_ratio": busy_share,
            "host_memory_used_bytes": psutil.virtual_memory().used,
            "net_rx_bytes": sum(n.bytes_recv for n in nics) if nics else None,
            "net_tx_bytes": sum(n.bytes_sent for n in nics) if nics else None,
        }


def load_ratio() -> float:
    """The one-minute load average per CPU: how busy the machine was before the run."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class Owner(StrEnum):
    """Whose a process is."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


def owner_of(pid: int, run_id: str, proc: Path = PROC) -> Owner:
    """Whether a process carries the run's id in its environment, or descends from one that does.

    Ancestors count because programs that set their own process title (Ray workers, engine cores) overwrite the
    environment that the kernel shows. A process that is not visible here (another container's), and one whose
    environment was overwritten and has no ancestor of ours, cannot be told: `UNKNOWN`.
    """
    marker = f"{RUN_ID_VARIABLE}={run_id}".encode()
    verdict = Owner.FOREIGN
    first = True
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        folder = proc / str(pid)
        try:
            names = (folder / "environ").read_bytes().split(b"\0")
            if marker in names:
                return Owner.OURS
            if first and not any(b"=" in name for name in names):
                verdict = Owner.UNKNOWN
        except PermissionError:
            pass  # another user's: not a process of this run
        except OSError:
            return Owner.UNKNOWN if first else verdict
        first = False
        pid = _parent(folder)
    return verdict


def _parent(folder: Path) -> int:
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    # the name in parentheses may itself hold spaces and parentheses
    return int(stat.rpartition(")")[2].split()[1])


def _idle(times: object) -> float:
    return float(getattr(times, "idle", 0.0)) + float(getattr(times, "iowait", 0.0))


def _guest(times: object) -> float:
    return float(getattr(times, "guest", 0.0)) + float(getattr(times, "guest_nice", 0.0))
