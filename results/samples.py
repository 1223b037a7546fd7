"""Reads what samplers left in a run's `samples/`: arrow stream segments and gpus.json, however the samplers ended."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from results.gpu_facts import facts_of_all, odd_words
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
    mig_instances (uuid and more of each); unsupported ({reading: reason}). A sampler that ended early may have left
    some of them out; a value that can't be meant (a text for a number) is left out here.

    Raises:
        ValueError: a file is damaged.
    """
    return _in_order(gpu for path in _gpu_files(folder) for gpu in facts_of_all(_listed(path))[0])


def described_gpus(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The GPUs as `read_gpus` gives them, of the files that can be read; and what is not used, as `file: what`."""
    found, problems = [], []
    for path in _gpu_files(folder):
        try:
            gpus, odd = facts_of_all(_listed(path))
        except ValueError as error:
            problems.append(str(error).removeprefix(f"{folder}/"))
            continue
        found += gpus
        if odd:
            problems.append(f"{path.name}: {odd_words(odd)}")
    return _in_order(found), problems


def _gpu_files(folder: Path) -> list[Path]:
    return [folder / "gpus.json", *sorted(folder.glob("gpus-*.json"))]  # the latter of other hosts, gathered


def _listed(path: Path) -> list[Any]:
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["gpus"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # one that is no object, too
        raise ValueError(f"{path}: cannot be read as a list of GPUs: {error}") from None
    if not isinstance(listed, list):
        raise ValueError(f"{path}: cannot be read as a list of GPUs: it is of type {type(listed).__name__}")
    return listed


def _in_order(gpus: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(gpus, key=lambda gpu: (str(gpu.get("host")), gpu.get("index") or 0))
