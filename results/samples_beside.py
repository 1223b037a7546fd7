"""Samples that are read in a thread of their own, while the tables that they go with are looked at."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from harness.protocol.spec import Device
from results.energy import Read, read_gpus
from results.store import RunTables
from results.utilisation import BUSY_COLUMNS, busy_gpus


@contextmanager
def samples_beside(run: RunTables) -> Iterator[Callable[[], Read]]:
    """What gives the samples, once they are read: for the energy, and of GPUs for how busy they were.

    Nearly all of the reading leaves the interpreter free. What nobody has waited for at the end is read no further.

    Raises:
        SpecError: they cannot be read; where they are asked for.
    """
    over = Event()

    def wanted() -> bool:
        return not over.is_set()

    gpus, columns = (busy_gpus(run), BUSY_COLUMNS) if run.spec.device is Device.CUDA else ([], ())
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(read_gpus, run, gpus, columns, wanted)
        try:
            yield reading.result
        finally:
            over.set()
