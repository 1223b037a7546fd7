"""Reads what samplers left in a run's `samples/`: arrow stream segments and gpus.json, however the samplers ended."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from results.segments import CutError, pieces, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """All segments of a folder: the readable rows, and what could not be read."""

    table: pa.Table
    problems: tuple[str, ...]  # "<file>: why, what is lost"


def read_samples(folder: Path) -> pa.Table:
    """All samples, oldest first: one row per group of sensor calls, null where a reading is not part of it.

    Power and energy of a moment share a row, as do utilisation, memory, clocks and temperature; so a column is null
    in the rows of other groups, and in all rows where the sensor is unsupported. `power_limit_watts` is the limit as
    last read before. Rows of the host have no gpu. A segment that is cut or damaged is read up to there.
    """
    return read_segments(folder).table


def read_segments(folder: Path) -> Segments:
    """The samples as `read_samples` gives them, with the files that were cut, damaged or not samples at all."""
    tables: list[pa.Table] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.arrows")):
        try:
            for table in pieces(path):
                tables.append(table)
        except CutError as cut:
            problems.append(f"{path.name}: {cut}")
    table = whole(tables)
    return Segments(table=table.sort_by("mono_ns"), problems=tuple(problems))


def read_gpus(folder: Path) -> list[dict[str, Any]]:
    """The GPUs that the samplers described in gpus.json, by host and index; none when there is no such file.

    Keys: host, index, uuid, name, minor_number, pci_bus_id, compute_capability, driver, mig_mode, memory_total_bytes,
    power_limit_watts (enforced, at the start), power_limit_{min,max,default}_watts, sm_clock_max_hz;
    {power_instant,power_average,energy}_refresh_s with _refresh_resolution_s and _refresh_reason (why it is None);
    power_instant_source, power_average_source, power_average_window_s, energy_source, power_scope; sample_period_s;
    unsupported ({reading: reason}). A sampler that ended early may have left some of them out.

    Raises:
        ValueError: the file is damaged.
    """
    gpus: list[dict[str, Any]] = []
    for path in (folder / "gpus.json", *sorted(folder.glob("gpus-*.json"))):  # the latter of other hosts, gathered
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        try:
            gpus += sorted(json.loads(text)["gpus"], key=_place)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # one that is no object, too
            raise ValueError(f"{path}: cannot be read as a list of GPUs: {error}") from None
    return sorted(gpus, key=_place)


def _place(gpu: dict[str, Any]) -> tuple[str, int]:
    return str(gpu.get("host")), int(gpu.get("index", 0))
