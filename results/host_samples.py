"""Whether the sampler kept reading the hosts while a run was measured: on any device, and without any GPU."""

import numpy as np
import pyarrow.compute as pc

from results.store import RunTables
from results.tracks import ints
from results.window import Window

PERIODS = 10  # between two readings: a busy machine makes one late, and not by this many
HOST_HZ = 2.0  # at most: how often hosts are read
MOST_LOST = 0.1  # of the window
VIRTUAL = "virtual"  # the clock of a run beside which nothing is sampled


def lost_samples(run: RunTables, window: Window) -> str:
    """Why the samples do not cover the window, in words; empty where they do, or where none were to be taken."""
    if run.meta.get("clock") == VIRTUAL:
        return ""
    table = run.where("samples", ("host", "gpu", "mono_ns"), lambda batch: pc.is_null(batch.column("gpu")))
    hosts = sorted(pc.unique(table.column("host")).to_pylist())
    if not hosts:
        return "no sample of any host is on record"
    limit_s = PERIODS / min(run.spec.sample_hz, HOST_HZ)
    for host in hosts:
        at = ints(table.filter(pc.equal(table.column("host"), host)).column("mono_ns"))
        inside = np.sort(at[(at >= window.start_ns) & (at <= window.end_ns)])
        gaps = np.diff(np.concatenate([[window.start_ns], inside, [window.end_ns]])) / 1e9
        lost = float(gaps[gaps > limit_s].sum()) if inside.size else window.seconds
        if lost > MOST_LOST * window.seconds:
            return f"{lost:.0f} of {window.seconds:.0f} s of the window have no sample of the host {host}"
    return ""
