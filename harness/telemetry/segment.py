"""Rows of readings, appended to one Arrow stream file per sampler process.

A batch is one write of one encapsulated IPC message, made twice a second: a killed sampler loses at most what it read
since, and a file cut inside a batch is readable up to it. A background thread syncs once a second.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from harness.protocol.recorder import NOT_WRITTEN
from harness.telemetry.batches import Batches
from harness.telemetry.cadence import Stop

FLUSH_PERIOD_S = 0.5
FSYNC_PERIOD_S = 1.0
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Arrow IPC streaming format, "end-of-stream"

Row = Mapping[str, str | int | float | None]
Values = Sequence[str | int | float | None]
# Rows of one host: GPUs, moments and uncertainties (monotonic ns), and by column the values, as many of each.
Block = tuple[str, Sequence[str | None], Sequence[int], Sequence[int | None], Mapping[str, Values]]

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
_FIRST = ("host", "gpu", "mono_ns", "uncertainty_ns")  # the columns of a `Block` before its values


class Segment:
    """One append-only `*.arrows` file. `append` may be called from any thread; `flush` from one."""

    def __init__(self, path: Path) -> None:
        """Creates `path`, which must not exist, and writes the schema.

        Raises:
            OSError: the file exists or cannot be written.
        """
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._batches = Batches(SCHEMA)
        self._pending: deque[Block] = deque()
        self.add: Callable[[Block], None] = self._pending.append  # keeps rows for the next flush, from any thread
        self._end = 0
        self.rows = 0
        self.lost_rows = 0
        self._write(SCHEMA.serialize().to_pybytes())
        self._unwritten: OSError | None = None  # a sync said that rows are lost
        self._closed = Stop()
        self._syncer = threading.Thread(target=self._sync_forever, name="segment-fsync", daemon=True)
        self._syncer.start()

    def append(self, row: Row) -> None:
        """Keeps a row for the next flush; in their batch, rows with the same names come together."""
        host, gpu, at, doubt = (row.get(name) for name in _FIRST)
        values = {name: (value,) for name, value in row.items() if name not in _FIRST}
        self.add(
            (cast("str", host), (cast("str | None", gpu),), (cast("int", at),), (cast("int | None", doubt),), values)
        )

    def flush(self) -> None:
        """Writes the rows kept so far as one batch.

        Raises:
            OSError: the file cannot grow. The rows are dropped and counted in `lost_rows`; the file stays readable. Or
                some of those before did not get to the disk, no one knows which.
            ValueError: rows do not fit their columns. They are dropped and counted; the others are written.
        """
        pending = self._pending
        blocks = [pending.popleft() for _ in range(len(pending))]  # others append meanwhile
        if blocks:
            self._put_fitting(blocks)
        unwritten, self._unwritten = self._unwritten, None
        if unwritten is not None:
            raise OSError(unwritten.errno, f"cannot write to {self.path}: rows are lost: {unwritten.strerror}")

    def _put_fitting(self, blocks: Sequence[Block]) -> None:
        try:
            self._put(blocks)
        except ValueError as error:
            fitting = [row for block in blocks for row in _one_by_one(block) if self._fits(row)]
            lost = _count(blocks) - _count(fitting)
            self.lost_rows += lost
            if fitting:
                self._put(fitting)
            raise ValueError(f"{lost} rows do not fit their columns, and are left out: {error}") from None

    def _put(self, blocks: Sequence[Block]) -> None:
        rows = _count(blocks)
        message = self._batches.message(rows, _pieces(blocks))
        try:
            self._write(message)
        except OSError:
            self.lost_rows += rows
            raise
        self.rows += rows

    def _fits(self, block: Block) -> bool:
        try:
            self._batches.message(_count([block]), _pieces([block]))
        except ValueError:
            return False
        return True

    def close(self) -> None:
        """Flushes, ends the stream, makes it durable and closes the file.

        Raises:
            OSError: the last rows could not be written.
            ValueError: as for `flush`; all else is done.
        """
        self._closed.set()
        self._syncer.join(timeout=FSYNC_PERIOD_S)
        try:
            try:
                self.flush()
            finally:
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
                os.fdatasync(self._fd)  # and the file's size, which it can't be read without
            except OSError as error:
                if error.errno in NOT_WRITTEN:
                    self._unwritten = error  # for the next flush, which someone waits for
                    continue
                return  # a descriptor that cannot sync: writes themselves still report errors


def _count(blocks: Iterable[Block]) -> int:
    return sum(len(moments) for _, _, moments, _, _ in blocks)


def _one_by_one(block: Block) -> Iterator[Block]:
    """The rows of a block, as blocks."""
    host, gpus, moments, doubts, values = block
    for place in range(len(moments)):
        one = slice(place, place + 1)
        yield host, gpus[one], moments[one], doubts[one], {name: column[one] for name, column in values.items()}


def _pieces(blocks: Iterable[Block]) -> dict[str, list[tuple[int, Sequence[Any]]]]:
    """Of each column that has values, where rows begin that have it, and these; rows with the same names together."""
    groups: dict[tuple[str, ...], list[list[Any]]] = {}
    for host, gpus, moments, doubts, values in blocks:
        names = tuple(values)
        group = groups.get(names)
        if group is None:
            group = groups[names] = [[] for _ in range(len(_FIRST) + len(names))]
        more: tuple[Sequence[Any], ...] = ([host] * len(moments), gpus, moments, doubts, *values.values())
        for column, its in zip(group, more, strict=True):
            column += its
    begin = 0
    pieces: dict[str, list[tuple[int, Sequence[Any]]]] = {}
    for names, group in groups.items():
        for name, column in zip((*_FIRST, *names), group, strict=True):
            pieces.setdefault(name, []).append((begin, column))
        begin += len(group[0])
    return pieces
