"""Reads what samplers left in a run's `samples/`: arrow stream segments and gpus.json, however the samplers ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from results.schema import SAMPLES


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
    batches: list[pa.RecordBatch] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.arrows")):
        try:
            batches.extend(_batches(path))
        except _CutError as cut:
            batches.extend(cut.before)
            problems.append(f"{path.name}: {cut}")
    table = pa.Table.from_batches([_fit(batch) for batch in batches], schema=SAMPLES)
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
            gpus += list(json.loads(text)["gpus"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: cannot be read as a list of GPUs: {error}") from None
    return sorted(gpus, key=lambda gpu: (str(gpu.get("host")), int(gpu.get("index", 0))))


class _CutError(Exception):
    """A segment ends before its last batch does."""

    def __init__(self, message: str, before: list[pa.RecordBatch]) -> None:
        super().__init__(message)
        self.before = before


def _batches(path: Path) -> list[pa.RecordBatch]:
    """The whole batches of a segment.

    Raises:
        _CutError: with the batches before the cut.
    """
    found: list[pa.RecordBatch] = []
    try:
        for batch in _stream(path):
            batch.validate(full=True)  # a damaged batch may decode and yet point outside itself
            found.append(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        # ArrowInvalid is a ValueError, and a file cut inside a message's length says so as an OSError.
        rows = sum(batch.num_rows for batch in found)
        raise _CutError(f"cut or damaged after {rows} samples ({error})", found) from None
    return found


def _stream(path: Path) -> Iterator[pa.RecordBatch]:
    data = path.read_bytes()  # mapped, a file that still grows could change under the reader
    if not data:
        raise ValueError("the file is empty")
    with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
        missing = [name for name in ("host", "mono_ns") if name not in stream.schema.names]
        if missing:
            raise ValueError(f"not samples: no column {missing[0]}")
        yield from stream


def _fit(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in the columns of today: one that an older sampler did not write is null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SAMPLES
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SAMPLES)
