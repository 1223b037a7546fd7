"""What else was on the machine: the sampler's `contamination.*` probes, each held until the next of its kind and GPU.

MEASURING.md and DESIGN.md, "Telemetry": a contaminated window is marked, and gets no verdict.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.protocol.scalars import number
from results.energy import WORKERS, Energy
from results.gpu_sensors import gpu_pools
from results.store import RunTables
from results.window import Window

PREFIX = "contamination."
HOST_LOAD = "host_load"
FOREIGN = "foreign_processes"
# The checks of a GPU: what one looks for, and what was found where it is not clean.
CHECKS: Mapping[str, tuple[str, str]] = {
    FOREIGN: ("foreign process", "foreign processes"),
    "power_cap": ("lowered power limit", "a power limit below the board's default"),
    "locked_clocks": ("held clock", "clocks held down by a setting"),
    "mig": ("MIG", "MIG switched on"),
}
SOON_NS = 5_000_000_000  # after the launch: of an average over a minute, the run's own load is not a tenth by then
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
    """Checks that could not look or could not tell, or (where GPUs are known) were never made."""
    unknown_words: tuple[str, ...]
    """The same in words, with what is known of each."""
    looked_at: int
    """GPUs that were looked at."""
    load_ratio: float | None
    """Load average per core at the launch, of the busiest host. Later ones are the run's own, and not looked at."""
    reasons: tuple[str, ...]
    """What holds against the window, in words; empty where nothing does."""

    @property
    def busy_host(self) -> bool | None:
        """Whether others kept a host busy before the launch; None: not known."""
        return None if self.load_ratio is None else self.load_ratio > BUSY_LOAD


@dataclass(frozen=True, slots=True)
class _Look:
    check: str
    gpu: str
    host: str
    at_ns: int
    value: float | None
    labels: Mapping[str, Any]


def contamination(run: RunTables, window: Window | None) -> Contamination:
    """What the probes say of the window, and of the time before it."""
    pools = gpu_pools(run)
    looks = [look for look in _looks(run) if not pools or look.gpu in pools or look.check == HOST_LOAD]
    checked = [look for look in looks if look.check != HOST_LOAD]
    held, before = _held(checked, window)
    blind: dict[str, list[_Look]] = {}
    for look in held:
        if look.value is None:
            blind.setdefault(look.check, []).append(look)
    if checked:
        blind |= {check: [] for check in CHECKS if check not in {look.check for look in held}}
    load = _load(run, looks)
    dirty = [look for look in held if look.value]
    checks = _in_order(look.check for look in dirty)
    reasons = [_found(check, [look for look in dirty if look.check == check]) for check in checks]
    if load is not None and load > BUSY_LOAD:
        reasons.append(f"a busy host: load {load:.2f} per core before the launch")
    return Contamination(
        gpu=checks,
        before=_in_order(look.check for look in before if look.value),
        unknown=_in_order(blind),
        unknown_words=tuple(_untold(check, blind[check]) for check in _in_order(blind)),
        looked_at=len({look.gpu for look in checked}),
        load_ratio=load,
        reasons=tuple(reasons),
    )


def unless_spoiled(power: Energy, spoiled: Contamination) -> Energy:
    """No verdict on energy where something else had the GPUs too, or held them down. What is bad stays bad."""
    if not spoiled.gpu or power.verdict is None:
        return power
    verdict = "bad" if power.verdict == "bad" else None
    note = "; ".join(part for part in (power.note, f"contaminated: {', '.join(spoiled.reasons)}") if part)
    return replace(power, verdict=verdict, reasons=(*power.reasons, "contaminated"), note=note)


def _looks(run: RunTables) -> list[_Look]:
    own: dict[str, set[str]] = {}
    for row in run.tables["processes"].select(["host", "pid"]).to_pylist():
        own.setdefault(row["host"], set()).add(str(row["pid"]))
    found = []
    for row in run.tables["probes"].select(["name", "host", "mono_ns", "value", "labels_json"]).to_pylist():
        if not row["name"].startswith(PREFIX):
            continue
        check, labels, value = row["name"].removeprefix(PREFIX), json.loads(row["labels_json"]), row["value"]
        if check == FOREIGN and value == 0:
            # Not known to be foreign is not known to be ours; what recorded into this run is.
            pids = [pid for pid in str(labels.get("unknown_pids") or "").split() if pid not in own.get(row["host"], ())]
            value, labels = (None, {**labels, "unknown_pids": " ".join(pids)}) if pids else (value, labels)
        found.append(_Look(check, str(labels.get("gpu")), row["host"], row["mono_ns"], value, labels))
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
    return inside[::-1], before[::-1]


def _load(run: RunTables, looks: Collection[_Look]) -> float | None:
    """Load of each host at the launch, of the busiest: the last before it, else the first soon after it."""
    processes = run.tables["processes"].select(["role", "mono_ns"]).to_pylist()
    begun = [row["mono_ns"] for row in processes if row["role"] in WORKERS and row["mono_ns"] is not None]
    loads: dict[str, float] = {}
    for look in looks:
        if look.check != HOST_LOAD or look.value is None:
            continue
        soon = look.host not in loads and begun and look.at_ns <= min(begun) + SOON_NS
        if not begun or look.at_ns < min(begun) or soon:
            loads[look.host] = look.value
    return max(loads.values(), default=None)


def _in_order(checks: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(checks)))


def _found(check: str, looks: Collection[_Look]) -> str:
    gpus = len({look.gpu for look in looks})
    text = f"{CHECKS.get(check, (check, check))[1]} on {gpus} GPU{'' if gpus == 1 else 's'}"
    details = dict.fromkeys(detail for look in looks if (detail := _detail(check, look.labels)))
    return text + (f" ({', '.join(details)})" if details else "")


def _detail(check: str, labels: Mapping[str, Any]) -> str:
    if check == FOREIGN and labels.get("pids"):
        return f"pid {labels['pids']}"
    limit, default = number(labels.get("limit_watts")), number(labels.get("default_watts"))
    if check == "power_cap" and limit is not None:
        return f"{limit:g} W of {default or 0:g} W"
    return str(labels.get("why") or "")


def _untold(check: str, looks: Collection[_Look]) -> str:
    pids = dict.fromkeys(pid for look in looks for pid in str(look.labels.get("unknown_pids") or "").split())
    return CHECKS.get(check, (check, check))[0] + (f" (pid {' '.join(pids)}: whose it is is not known)" if pids else "")
