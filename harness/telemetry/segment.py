"""Rows of readings, appended to one Arrow stream file per sampler process.

A batch is one write of one encapsulated IPC message, made twice a second: a killed sampler loses at most what it read
since, and a file cut inside a batch is readable up to it. A background thread syncs once a second.
"""

import os
import threading
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

FLUSH_PERIOD_S = 0.5
FSYNC_PERIOD_S = 1.0
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Arrow IPC streaming format, "end-of-stream"

Row = Mapping[str, str | int | float | None]

# The reader (results.samples) declares the same columns with their units; a test keeps the two equal.
SCHEMA = pa.schema(
    [
        pa.field("host", pa.string(), nullable=False),
        pa.field("gpu", pa.string()),
        pa.field("mono_ns", pa.int64(), nullable=False),
        pa.field("uncertainty_ns", pa.int64()),
        pa.field("util_ratio", pa.float64()),
        pa.field("memory_used_bytes", pa.int64()),
        pa.field("memory_total_bytes", pa.int64()),
        pa.field("power_instant_watts", pa.float64()),
        pa.field("power_average_watts", pa.float64()),
        pa.field("energy_joules", pa.float64()),
        pa.field("power_limit_watts", pa.float64()),
        pa.field("sm_clock_hz", pa.int64()),
        pa.field("memory_clock_hz", pa.int64()),
        pa.field("temperature_celsius", pa.float64()),
        pa.field("throttle_reasons", pa.int64()),
        pa.field("pcie_tx_bytes_per_s", pa.float64()),
        pa.field("pcie_rx_bytes_per_s", pa.float64()),
        pa.field("nvlink_tx_bytes", pa.int64()),
        pa.field("nvlink_rx_bytes", pa.int64()),
        pa.field("cpu_ratio", pa.float64()),
        pa.field("host_memory_used_bytes", pa.int64()),
        pa.field("net_rx_bytes", pa.int64()),
        pa.field("net_tx_bytes", pa.int64()),
        pa.field("ecc_corrected_errors", pa.int64()),
        pa.field("ecc_uncorrected_errors", pa.int64()),
        pa.field("dcgm_sm_active_ratio", pa.float64()),
        pa.field("dcgm_sm_occupancy_ratio", pa.float64()),
        pa.field("dcgm_tensor_active_ratio", pa.float64()),
        pa.field("dcgm_dram_active_ratio", pa.float64()),
        pa.field("dcgm_power_instant_watts", pa.float64()),
        pa.field("dcgm_pcie_tx_bytes_per_s", pa.float64()),
        pa.field("dcgm_pcie_rx_bytes_per_s", pa.float64()),
        pa.field("dcgm_nvlink_tx_bytes_per_s", pa.float64()),
        pa.field("dcgm_nvlink_rx_bytes_per_s", pa.float64()),
    ],
    metadata={"schema_version": "2"},
)
_CODES = {pa.string(): "text", pa.float64(): "d", pa.int64(): "q"}  # "d" and "q": of the module `array`
FIELDS = tuple((field.name, _CODES[field.type]) for field in SCHEMA)
_KINDS = {code: kind for kind, code in _CODES.items()}


class Segment:
    """One append-only `*.arrows` file. `append` may be called from any thread; `flush` from one."""

    def __init__(self, path: Path) -> None:
        """Creates `path`, which must not exist, and writes the schema.

        Raises:
            OSError: the file exists or cannot be written.
        """
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._pending: list[Row] = []
        self._end = 0
        self.rows = 0
        self.lost_rows = 0
        self._write(SCHEMA.serialize().to_pybytes())
        self._closed = threading.Event()
        self._syncer = threading.Thread(target=self._sync_forever, name="segment-fsync", daemon=True)
        self._syncer.start()

    def append(self, row: Row) -> None:
        """Keeps a row for the next flush; in their batch, rows with the same names come together."""
        with self._lock:
            self._pending.append(row)

    def flush(self) -> None:
        """Writes the rows kept so far as one batch.

        Raises:
            OSError: the file cannot grow. The rows are dropped and counted in `lost_rows`; the file stays readable.
        """
        with self._lock:
            rows, self._pending = self._pending, []
        if not rows:
            return
        batch = pa.RecordBatch.from_arrays(_columns(rows), schema=SCHEMA)
        try:
            self._write(batch.serialize().to_pybytes())
        except OSError:
            self.lost_rows += len(rows)
            raise
        self.rows += len(rows)

    def close(self) -> None:
        """Flushes, ends the stream, makes it durable and closes the file.

        Raises:
            OSError: the last rows could not be written.
        """
        self._closed.set()
        self._syncer.join(timeout=FSYNC_PERIOD_S)
        try:
            self.flush()
            self._write(END_OF_STREAM)
            os.fsync(self._fd)
        finally:
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        if written != len(data):
            # A batch cut by a full disk would hide every batch after it.
            os.ftruncate(self._fd, self._end)
            os.lseek(self._fd, self._end, os.SEEK_SET)
            raise OSError(28, f"cannot write to {self.path}: the batch was cut (disk full?)")
        self._end += written

    def _sync_forever(self) -> None:
        while not self._closed.wait(FSYNC_PERIOD_S):
            try:
                os.fsync(self._fd)
            except OSError:
                return  # a descriptor that cannot sync: writes themselves still report errors


def _columns(rows: Sequence[Row]) -> list[pa.Array]:
    """The rows, those with the same names together, as Arrow arrays: a column of some rows is taken at once."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    begin = 0
    pieces: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}  # of each column: where rows begin that have it
    for names, alike in groups.items():
        for name, values in zip(names, zip(*(row.values() for row in alike), strict=True), strict=True):
            pieces.setdefault(name, []).append((begin, values))
        begin += len(alike)
    count = len(rows)
    return [_column(code, count, pieces[name]) if name in pieces else _nulls(code, count) for name, code in FIELDS]


@lru_cache(maxsize=256)
def _nulls(code: str, length: int) -> pa.Array:
    return pa.nulls(length, _KINDS[code])


def _column(code: str, length: int, pieces: Sequence[tuple[int, tuple[Any, ...]]]) -> pa.Array:
    """An Arrow array made from its buffers (Arrow columnar format: validity bits, offsets, data).

    `pa.array` would do, but with its first call it imports pandas where there is one: a quarter second of CPU and
    40 MB in a process that is to be light.
    """
    bits, there = 0, 0
    cells: list[Any] = [b"" if code == "text" else 0] * length
    for begin, values in pieces:
        if None in values:
            known = [(place, value) for place, value in enumerate(values, begin) if value is not None]
            bits |= sum(1 << place for place, _ in known)
            for place, value in known:
                cells[place] = value
            there += len(known)
        else:
            bits |= ((1 << len(values)) - 1) << begin
            cells[begin : begin + len(values)] = values
            there += len(values)
    if not there:
        return _nulls(code, length)
    validity = pa.py_buffer(bits.to_bytes((length + 7) // 8, "little")) if there < length else None
    if code == "text":
        texts = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells]
        offsets = pa.py_buffer(array("i", accumulate(map(len, texts), initial=0)))
        buffers = [validity, offsets, pa.py_buffer(b"".join(texts))]
    else:
        buffers = [validity, pa.py_buffer(array(code, cells))]
    return pa.Array.from_buffers(_KINDS[code], length, buffers, length - there)
