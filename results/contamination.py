"""What else was on the machine: the sampler's `contamination.*` probes, each held until the next of its kind and GPU.

MEASURING.md and DESIGN.md, "Telemetry": a contaminated window is marked, and gets no verdict.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from results.energy import WORKERS
from results.gpu_sensors import gpu_pools
from results.store import RunTables
from results.window import Window

PREFIX = "contamination."
HOST_LOAD = "host_load"
GPU_CHECKS = ("foreign_processes", "power_cap", "locked_clocks", "mig")
BUSY_LOAD = 0.5  # one-minute load average per core before the launch: above it, others had half the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Contamination:
    """What held at any instant of the window (the whole run where there is none), by the name of the check.

    Of GPUs, only the run's own count, where it is known which these are.
    """

    gpu: tuple[str, ...]
    """Checks of a GPU that were not clean: they bear on power, energy and speed."""
    before: tuple[str, ...]
    """Checks of a GPU that were not clean at some time before the window."""
    unknown: tuple[str, ...]
    """Checks that could not look, or (where GPUs are known) were never made."""
    load_ratio: float | None
    """Load average per core before the launch. Later ones are the run's own load, and not looked at."""
    reasons: tuple[str, ...]
    """What holds against the window, in words."""

    @property
    def busy_host(self) -> bool | None:
        """Whether others kept the host busy before the launch; None: not known."""
        return None if self.load_ratio is None else self.load_ratio > BUSY_LOAD


@dataclass(frozen=True, slots=True)
class _Look:
    check: str
    gpu: str
    at_ns: int
    value: float | None


def contamination(run: RunTables, window: Window | None) -> Contamination:
    """What the probes say of the window, and of the time before it."""
    pools = gpu_pools(run)
    looks = [look for look in _looks(run) if not pools or look.gpu in pools or look.check == HOST_LOAD]
    checked = [look for look in looks if look.check != HOST_LOAD]
    held, before = _held(checked, window)
    dirty = {(look.check, look.gpu) for look in held if look.value}
    blind = {look.check for look in held if look.value is None}
    if checked:
        blind |= set(GPU_CHECKS) - {look.check for look in held}
    load = _load(run, looks)
    checks = _in_order(check for check, _ in dirty)
    reasons = [f"{check} on {sum(one == check for one, _ in dirty)} GPU(s)" for check in checks]
    if load is not None and load > BUSY_LOAD:
        reasons.append(f"load of {load:.2f} per core before the launch")
    return Contamination(
        gpu=checks,
        before=_in_order(look.check for look in before if look.value),
        unknown=_in_order(blind),
        load_ratio=load,
        reasons=tuple(reasons),
    )


def _looks(run: RunTables) -> list[_Look]:
    found = []
    for row in run.tables["probes"].select(["name", "mono_ns", "value", "labels_json"]).to_pylist():
        if row["name"].startswith(PREFIX):
            gpu = str(json.loads(row["labels_json"]).get("gpu"))
            found.append(_Look(row["name"].removeprefix(PREFIX), gpu, row["mono_ns"], row["value"]))
    return sorted(found, key=lambda look: look.at_ns)


def _held(looks: Collection[_Look], window: Window | None) -> tuple[list[_Look], list[_Look]]:
    """(looks whose finding holds at some instant of the window, looks that held before it)."""
    until: dict[tuple[str, str], int] = {}
    inside, before = [], []
    for look in sorted(looks, key=lambda look: look.at_ns, reverse=True):
        end = until.get((look.check, look.gpu))
        until[look.check, look.gpu] = look.at_ns
        if window is None or (look.at_ns < window.end_ns and (end is None or end > window.start_ns)):
            inside.append(look)
        if window is not None and look.at_ns < window.start_ns:
            before.append(look)
    return inside, before


def _load(run: RunTables, looks: Collection[_Look]) -> float | None:
    """The last load on record from before the first process of the framework."""
    processes = run.tables["processes"].select(["role", "mono_ns"]).to_pylist()
    begun = [row["mono_ns"] for row in processes if row["role"] in WORKERS and row["mono_ns"] is not None]
    loads = [look.value for look in looks if look.check == HOST_LOAD and (not begun or look.at_ns < min(begun))]
    return loads[-1] if loads else None


def _in_order(checks: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(checks)))
