"""Whether a run was alone: what its sampler saw of foreign GPU processes, lowered limits, held clocks, MIG and load."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.protocol.spec import Device
from reports.markdown import Footnotes, escape, number, plural
from results.store import RunTables
from results.window import Window

PREFIX = "contamination."
LOAD = "host_load"
BUSY = 0.5  # load average per core before the launch: above it, others had half the machine
# What each check of a GPU is called, when it is clean and when it is not.
CHECKS: Mapping[str, tuple[str, str]] = {
    "foreign_processes": ("foreign process", "foreign processes"),
    "power_cap": ("lowered power limit", "a power limit below the board's default"),
    "locked_clocks": ("held clock", "clocks held down by a setting"),
    "mig": ("MIG", "MIG switched on"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contamination:
    """What was seen while the window lasted (the whole run where there is none). `seen` and `unknown` are in words."""

    seen: tuple[str, ...]
    unknown: tuple[str, ...]  # checks that could not look
    gpus: int  # GPUs that were looked at
    load_ratio: float | None  # one-minute load average per core before the launch

    @property
    def spoiled(self) -> bool:
        """Whether something other than the run can have bent its figures."""
        return bool(self.seen)


def contamination(run: RunTables, window: Window | None) -> Contamination:
    """What the sampler's `contamination.*` probes say: each holds until the next of its kind and GPU."""
    held: dict[str, dict[str, list[tuple[float | None, Mapping[str, Any]]]]] = {}
    load: float | None = None
    looked: dict[tuple[str, str], list[dict[str, Any]]] = {}
    names = ["name", "mono_ns", "value", "labels_json"]
    for row in run.tables["probes"].select(names).to_pylist():
        what = str(row["name"]).removeprefix(PREFIX)
        if what == row["name"]:
            continue
        row["labels"] = json.loads(row["labels_json"])
        if what == LOAD:
            load = row["value"] if load is None else load
        else:
            looked.setdefault((what, str(row["labels"].get("gpu"))), []).append(row)
    for (what, gpu), rows in looked.items():
        rows.sort(key=lambda row: int(row["mono_ns"]))
        for place, row in enumerate(rows):
            until = rows[place + 1]["mono_ns"] if place + 1 < len(rows) else None
            if _touches(row["mono_ns"], until, window):
                held.setdefault(what, {}).setdefault(gpu, []).append((row["value"], row["labels"]))
    seen = [_words(what, per_gpu) for what, per_gpu in held.items() if any(_bad(rows) for rows in per_gpu.values())]
    if load is not None and load > BUSY:
        seen.append(f"a busy host: load {number(load)} per core before the launch")
    blind = [what for what, per_gpu in held.items() if any(v is None for rows in per_gpu.values() for v, _ in rows)]
    return Contamination(
        seen=tuple(seen),
        unknown=tuple(CHECKS.get(what, (what, what))[0] for what in blind),
        gpus=len({gpu for _, gpu in looked}),
        load_ratio=load,
    )


def contamination_line(found: Contamination, device: Device, notes: Footnotes) -> str:
    """The verdict in words."""
    if found.spoiled:
        text = f"**contaminated**: {escape('; '.join(found.seen))}"
    elif found.gpus or (device is Device.CPU and found.load_ratio is not None):
        text = "none seen"
    else:
        return notes.unknown("the sampler recorded no check for foreign processes, limits, clocks or load")
    told = []
    if found.gpus:
        told.append(f"{', '.join(clean for clean, _ in CHECKS.values())}: {plural(found.gpus, 'GPU')} looked at")
    if found.load_ratio is not None and found.load_ratio <= BUSY:
        told.append(f"load before the launch {number(found.load_ratio)} per core")
    if found.unknown:
        told.append(f"could not look for: {', '.join(found.unknown)}")
    return f"{text} ({escape('; '.join(told))})" if told else text


def _touches(start: int, until: int | None, window: Window | None) -> bool:
    if window is None:
        return True
    return start < window.end_ns and (until is None or until > window.start_ns)


def _bad(rows: list[tuple[float | None, Mapping[str, Any]]]) -> bool:
    return any(value for value, _ in rows)


def _words(what: str, per_gpu: Mapping[str, list[tuple[float | None, Mapping[str, Any]]]]) -> str:
    bad = {gpu: [labels for value, labels in rows if value] for gpu, rows in per_gpu.items() if _bad(rows)}
    details = [text for rows in bad.values() for labels in rows if (text := _detail(what, labels))]
    text = f"{CHECKS.get(what, (what, what))[1]} on {plural(len(bad), 'GPU')}"
    return text + (f" ({', '.join(dict.fromkeys(details))})" if details else "")


def _detail(what: str, labels: Mapping[str, Any]) -> str:
    if what == "foreign_processes" and labels.get("pids"):
        return f"pid {labels['pids']}"
    if what == "power_cap" and "limit_watts" in labels:
        return f"{labels['limit_watts']:g} W of {labels.get('default_watts', 0):g} W"
    return str(labels.get("why") or "")
