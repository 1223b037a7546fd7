"""What engines' readings say of the turns that clients have open: served, or waiting for an engine that runs none."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from results.engine_samples import Series
from results.intervals import NO_NS, Ns, merge, overlap

Held = tuple[Ns, Ns]
KNOWN_SHARE = 0.95  # of the time with a turn open, told by an engine's readings: less, and the client's word is all


def held(mono_ns: Ns, reach_ns: int) -> Held:
    """The stretch that each reading speaks for: to half-way to its neighbours, and no farther than `reach_ns`."""
    if mono_ns.size == 0:
        return NO_NS, NO_NS
    middle = mono_ns[:-1] + np.diff(mono_ns) // 2
    starts = np.maximum(np.concatenate((mono_ns[:1] - reach_ns, middle)), mono_ns - reach_ns)
    ends = np.minimum(np.concatenate((middle, mono_ns[-1:] + reach_ns)), mono_ns + reach_ns)
    return starts, ends


def unserved(series: Series, turns: Held) -> Held:
    """Stretches of turns that an engine did not run: one for each reading of 0 and turn that was open during it.

    A turn that began or ended during the call, and a stretch beyond what the reading speaks for, are not told: there
    the client's word stands. So a reading of 0 between two short turns says nothing of them.
    """
    at, running = series.known("running_requests")
    starts, ends = held(at, series.reach_ns)
    idle = np.flatnonzero(running == 0)
    known = ~np.isnan(series.values["running_requests"])
    margin = series.uncertainty_ns[known][idle]
    # Calls to one engine follow each other, so their begins and ends are in order too.
    begun, done = at[idle] - margin, at[idle] + margin
    first = np.searchsorted(begun, turns[0], side="left")
    count = np.maximum(np.searchsorted(done, turns[1], side="right") - first, 0)
    total = int(count.sum())
    if total == 0:
        return NO_NS, NO_NS
    turn = np.repeat(np.arange(count.size), count)
    place = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    reading = idle[first[turn] + place]
    return np.maximum(starts[reading], turns[0][turn]), np.minimum(ends[reading], turns[1][turn])


def by_metric(series: Series) -> tuple[Held, Held]:
    """By readings alone: what the engine ran, one stretch per request, and where requests waited and it ran none."""
    at, running = series.known("running_requests")
    starts, ends = held(at, series.reach_ns)
    each = running.astype(np.int64)
    waiting = series.values["waiting_requests"][~np.isnan(series.values["running_requests"])]
    stuck: npt.NDArray[np.bool_] = (running == 0) & (np.nan_to_num(waiting) > 0)
    return (np.repeat(starts, each), np.repeat(ends, each)), (starts[stuck], ends[stuck])


def spoken(series: Sequence[Series]) -> Held:
    """The stretches for which a reading of one of them says how many requests ran."""
    parts = [held(each.known("running_requests")[0], each.reach_ns) for each in series]
    return joined(parts)


def joined(parts: Sequence[Held]) -> Held:
    """All stretches of several lists in one."""
    if not parts:
        return NO_NS, NO_NS
    return np.concatenate([starts for starts, _ in parts]), np.concatenate([ends for _, ends in parts])


def known_share(series: Sequence[Series], turns: Held, low: int, high: int) -> float | None:
    """How much of the time with a turn open, within [low, high), a reading speaks for; None: no turn was open."""
    starts, ends = merge(np.maximum(turns[0], low), np.minimum(turns[1], high))
    whole = int((ends - starts).sum())
    if not whole:
        return None
    return float(overlap(starts, ends, spoken(series)).sum()) / whole
