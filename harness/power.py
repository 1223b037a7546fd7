"""The power of a run's GPUs right now, read from the samples as they are written."""

import contextlib
import time
from pathlib import Path

import pyarrow as pa

PERIOD_S = 1.0


class LatestPower:
    """Follows `samples/*.arrows`; each call reads only what was added since the last."""

    def __init__(self, samples: Path) -> None:
        self.samples = samples
        self._offsets: dict[Path, int] = {}
        self._schemas: dict[Path, pa.Schema] = {}
        self._watts: dict[str, float] = {}  # GPU uuid -> newest reading
        self._next = float("-inf")

    def __call__(self) -> float | None:
        """The sum over the GPUs of each one's newest reading, in watts; None while no GPU has given one."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PERIOD_S
            for path in self.samples.glob("*.arrows"):
                self._read(path)
        return sum(self._watts.values()) if self._watts else None

    def _read(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            source = pa.BufferReader(file.read())
        # A message that is not complete yet is read again next time.
        with contextlib.suppress(EOFError, OSError, pa.ArrowInvalid):
            while True:
                message = pa.ipc.read_message(source)
                self._offsets[path] = offset + source.tell()
                if path not in self._schemas:
                    self._schemas[path] = pa.ipc.read_schema(message)
                else:
                    self._take(pa.ipc.read_record_batch(message, self._schemas[path]))

    def _take(self, batch: pa.RecordBatch) -> None:
        rows = batch.select(["gpu", "power_instant_watts", "power_average_watts"]).to_pylist()
        for row in rows:
            watts = row["power_instant_watts"] if row["power_instant_watts"] is not None else row["power_average_watts"]
            if row["gpu"] is not None and watts is not None:
                self._watts[row["gpu"]] = watts
