"""Readings of this machine: CPU, memory, network; and whether a process belongs to the run."""

import os
from enum import StrEnum
from pathlib import Path

from harness.protocol.recorder import RUN_ID_VARIABLE

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHORTEST_CPU_S = 0.1  # the kernel counts in ticks of 10 ms: a share of fewer than ten says nothing


class HostReader:
    """Reads CPU share, memory and network counters of the machine (proc(5)), from files that are kept open."""

    def __init__(self, proc: Path = PROC) -> None:
        """
        Raises:
            OSError: there is no `/proc` here.
        """
        self._stat = os.open(proc / "stat", os.O_RDONLY | os.O_CLOEXEC)
        self._meminfo = os.open(proc / "meminfo", os.O_RDONLY | os.O_CLOEXEC)
        self._net = os.open(proc / "self" / "net" / "dev", os.O_RDONLY | os.O_CLOEXEC)
        self._cpus = os.cpu_count() or 1
        self._before = self._cpu_times()

    def read(self) -> dict[str, int | float | None]:
        """Columns of a host row.

        `cpu_ratio` is the busy share of all CPUs since it was last told (None when that is a moment ago);
        network bytes are cumulative since boot, all interfaces but loopback.
        """
        now = self._cpu_times()
        total, idle = (after - before for after, before in zip(now, self._before, strict=True))
        busy_share = None
        if total < 0:  # a CPU was taken away, with its times: the share begins anew
            self._before = now
        elif total >= SHORTEST_CPU_S * TICKS_PER_S * self._cpus:
            busy_share = min(1.0, max(0.0, 1.0 - idle / total))
            self._before = now
        received, sent = self._network()
        return {
            "cpu_ratio": busy_share,
            "host_memory_used_bytes": self._memory_used(),
            "net_rx_bytes": received,
            "net_tx_bytes": sent,
        }

    def _cpu_times(self) -> tuple[int, int]:
        """All time and idle time of all CPUs, in the kernel's ticks."""
        times = tuple(map(int, os.pread(self._stat, 256, 0).partition(b"\n")[0].split()[1:9]))
        # The ninth and tenth, guest time, are contained in the first two; the fourth and fifth are idle.
        return sum(times), times[3] + times[4]

    def _memory_used(self) -> int | None:
        """What is not available to a new program; None on a kernel that does not say."""
        known = {}
        for line in os.pread(self._meminfo, 512, 0).split(b"\n")[:5]:
            name, _, rest = line.partition(b":")
            known[name] = rest
        if not {b"MemTotal", b"MemAvailable"} <= known.keys():
            return None
        total, available = (int(known[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
        return (total - available) * 1024

    def _network(self) -> tuple[int | None, int | None]:
        text, received, sent, found = b"", 0, 0, False
        while more := os.pread(self._net, 65536, len(text)):
            text += more
        for line in text.split(b"\n")[2:]:
            name, _, rest = line.partition(b":")
            if rest and name.strip() != b"lo":
                fields = rest.split()
                received, sent, found = received + int(fields[0]), sent + int(fields[8]), True
        return (received, sent) if found else (None, None)


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
