"""How busy a machine's cores were while each side worked: what one run tells of two sides that share them.

The sampler reads the cores' use at its own pace, longer than a turn or a phase. So use is taken as a sum over classes:
of each reading, (share of its time in a class) x (the class's use), fitted by least squares.

What is in use is not what is needed: threads that wait for work keep their cores busy for a while (OpenMP's teams
between two parallel regions, an engine between two requests). How much, the class `waiting` shows, in which nothing
computes: tools run elsewhere. So what a class needs lies between its use less that of waiting, and its use.
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from results.intervals import covered
from results.planner.calibration.constants import MEASURED, Constant
from results.store import RunTables
from results.tracks import ints
from results.window import Window

GENERATING, TRAINING, WAITING = "generating", "training", "waiting"
_TRAINS = ("train", "logprob")
_ELSE = "else"  # a weight sync, or between phases: kept apart, so that it colours no other class
FEWEST = 20  # readings in the window
LEAST = 0.02  # of the time in a class, below which its use is not told
RESAMPLES = 400
Floats = npt.NDArray[np.float64]


def cores_in_use(run: RunTables, window: Window) -> dict[str, Constant]:
    """Share of all cores in use by class, of a run whose sides take turns; classes that can't be told are missing."""
    samples = run.tables["samples"]
    host = samples.filter(samples.column("gpu").is_null()).sort_by("mono_ns")
    times, used = ints(host.column("mono_ns")), np.array(host.column("cpu_ratio").to_pylist(), dtype=np.float64)
    keep = (times[:-1] >= window.start_ns) & (times[1:] <= window.end_ns) & ~np.isnan(used[1:]) if times.size else used
    if not times.size or keep.sum() < FEWEST:
        return {}
    shares = {name: share[keep] for name, share in _shares(run, times).items()}
    told = [name for name, share in shares.items() if share.mean() >= LEAST]
    design, seen = np.stack([shares[name] for name in told], axis=1), used[1:][keep]
    found = np.clip(_fit(design, seen), 0, 1)
    random = np.random.default_rng(0)
    drawn = [_fit(design[at], seen[at]) for at in random.integers(0, seen.size, (RESAMPLES, seen.size))]
    low, high = (np.clip(np.quantile(np.array(drawn), share, axis=0), 0, 1) for share in (0.025, 0.975))
    return {
        name: Constant(
            value=float(found[k]),
            low=float(min(low[k], found[k])),
            high=float(max(high[k], found[k])),
            unit="1",
            source=MEASURED,
            n=int(seen.size),
        )
        for k, name in enumerate(told)
        if name != _ELSE
    }


def contention(use: Mapping[str, Constant], cores: int | None) -> Constant | None:
    """How much longer each side takes while both compute, by what cores were in use; None where that isn't known.

    Between two limits, and nothing here tells where: at least what both need beyond all cores, as if work could be
    divided and shared evenly (need_g + need_t - 1, with what waiting has in use taken off each); at most as if the
    two excluded each other whenever one has a single thread to run, which is what threads that wait for each other
    at barriers come near to: cores x (use_g + use_t) - 1, and never beyond 1, each taking twice as long.
    """
    if GENERATING not in use or TRAINING not in use:
        return None
    idle = use[WAITING].high if WAITING in use else 1.0
    both = (use[GENERATING], use[TRAINING])
    low = min(1.0, max(0.0, math.fsum(max(0.0, one.low - idle) for one in both) - 1))
    high = min(1.0, max(low, (cores or 1_000_000) * math.fsum(one.high for one in both) - 1))
    count = min(one.n for one in both)
    return Constant(value=(low + high) / 2, low=low, high=high, unit="1", source=MEASURED, n=count)


def _shares(run: RunTables, times: npt.NDArray[np.int64]) -> dict[str, Floats]:
    """Of the time between two readings: the share of each class."""
    turns, calls, spans = run.tables["turns"], run.tables["tool_calls"], run.frame("spans")
    trains = spans[spans["phase"].isin(_TRAINS) & ~spans["container"]]
    turned = (ints(turns.column("start_ns")), ints(turns.column("end_ns")))
    called = (ints(calls.column("start_ns")), ints(calls.column("end_ns")))
    length = np.maximum(np.diff(times), 1).astype(np.float64)

    def share(*parts: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> Floats:
        starts, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
        made: Floats = np.diff(covered(starts, ends, times)) / length
        return made

    training = share((trains["start_ns"].to_numpy(np.int64), trains["end_ns"].to_numpy(np.int64)))
    generating = share(turned)
    waiting = share(turned, called) - generating
    rest = np.maximum(1 - training - generating - waiting, 0.0)
    return {GENERATING: generating, TRAINING: training, WAITING: waiting, _ELSE: rest}


def _fit(design: Floats, seen: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(design, seen, rcond=None)[0], dtype=np.float64)
