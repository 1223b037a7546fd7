"""What each GPU held and moved, memory by process, and why a reading is not known."""

from collections.abc import Callable, Sequence

from reports.markdown import code, escape, number, table
from results.gpu_traffic import COUNTERS, GAUGES, ProcessMemory, Reading, process_memory, traffic
from results.store import RunTables
from results.untold import untold
from results.window import Window

MOST_PROCESSES = 16  # shown
MOST_UNTOLD = 24

_UNITS: dict[str, Callable[[float], str]] = {
    "memory_used_bytes": lambda value: f"{number(value / 2**30)} GiB",
    "dcgm_power_instant_watts": lambda value: f"{number(value)} W",
}


def sensed_part(run: RunTables, window: Window | None) -> list[str]:
    """The tables; nothing where nothing was read."""
    lines: list[str] = []
    if window is not None:
        lines += _traffic(traffic(run, window))
        lines += _processes(process_memory(run, window))
    return lines + _untold(run)


def _traffic(readings: Sequence[Reading]) -> list[str]:
    names = {**GAUGES, **COUNTERS}
    shown = [column for column in names if any(each.column == column for each in readings)]
    if not shown:
        return []
    cells = {(each.gpu, each.column): each for each in readings}
    rows = []
    for gpu in sorted({each.gpu for each in readings}):
        row = [code(gpu)]
        for column in shown:
            each = cells.get((gpu, column))
            unit = _UNITS.get(column, _rate)
            row.append("not read" if each is None else f"{unit(each.mean)} / {unit(each.most)} ({each.n:,})")
        rows.append(row)
    head = ["GPU", *(f"{names[column]}" for column in shown)]
    said = "Mean / most over the steady window (readings). NVML's PCIe reading is of 20 ms, every few seconds."
    return ["", *table(head, rows, "l"), "", said]


def _rate(value: float) -> str:
    return f"{number(value / 1e9)} GB/s"


def _processes(found: Sequence[ProcessMemory]) -> list[str]:
    if not found:
        return []
    rows = []
    for each in found[:MOST_PROCESSES]:
        who = f"{each.role or 'no process that records'} ({each.pid} on {each.host})"
        known = each.mean is not None and each.most is not None
        mean, most = (
            f"{number(value / 2**30)} GiB" if known and value is not None else "the driver does not say"
            for value in (each.mean, each.most)
        )
        rows.append([code(each.gpu), escape(who), mean, most])
    lines = ["", *table(["GPU", "memory by process", "mean", "most"], rows, "llrr")]
    if len(found) > MOST_PROCESSES:
        lines += ["", f"... and {len(found) - MOST_PROCESSES} processes with less."]
    return lines


def _untold(run: RunTables) -> list[str]:
    found = untold(run)
    if not found:
        return []
    rows = [
        [
            code(each.field),
            escape(each.reason) + ("" if each.never else " (at times)"),
            "all of them, or not of one GPU" if each.gpus is None else f"{each.gpus}",
        ]
        for each in found[:MOST_UNTOLD]
    ]
    lines = ["", *table(["Not known", "why, as the driver or DCGM says it", "GPUs"], rows, "llr")]
    if len(found) > MOST_UNTOLD:
        lines += ["", f"... and {len(found) - MOST_UNTOLD} more, in the table `probes`."]
    return lines
