"""Which names of servers are one engine replica: one that was started again is back on another address."""

from collections.abc import Mapping, Sequence

import numpy as np

from harness.protocol.spec import RunSpec
from results.engine_samples import Series
from results.tracks import Tracks

Lifetime = tuple[int, int]  # from its first sign of life to its last, ns


def replicas_of(spec: RunSpec) -> int:
    """Engine replicas that the spec asks for."""
    return max(spec.gpus.rollout // spec.rollout_tp, 1)


def lifetimes_of(tracks: Tracks, readings: Mapping[str, Series], names: Sequence[str]) -> dict[str, Lifetime]:
    """From when to when each server is known to have been there: by the turns that it answered, and its readings."""
    found: dict[str, Lifetime] = {}
    for name in names:
        signs: list[int] = []
        if name in tracks.engines:
            mine = tracks.answered & (tracks.turn_engine == tracks.engines.index(name))
            if mine.any():
                signs += [int(tracks.turns.start[mine].min()), int(tracks.turns.end[mine].max())]
        if name in readings:
            times = readings[name].mono_ns
            signs += [int(times.min()), int(times.max())]
        found[name] = (min(signs), max(signs)) if signs else (0, 0)
    return found


def replicas(lifetimes: Mapping[str, Lifetime], asked: int) -> tuple[tuple[str, ...], ...]:
    """The names of each replica's server, one after another.

    No more replicas are made than `asked` for, unless more servers than that were there at the same time: a name that
    is one too many continues the replica that has been without a server for longest.
    """
    order = sorted(lifetimes, key=lambda name: (lifetimes[name], name))
    if len(order) <= asked:
        return tuple((name,) for name in sorted(order))
    count = max(asked, _most_at_once([lifetimes[name] for name in order]))
    held: list[list[str]] = []
    for name in order:
        begin = lifetimes[name][0]
        gone = [names for names in held if lifetimes[names[-1]][1] <= begin]
        if len(held) < count or not gone:
            held.append([name])
        else:
            min(gone, key=lambda names: lifetimes[names[-1]][1]).append(name)
    return tuple(tuple(names) for names in sorted(held))


def _most_at_once(lifetimes: Sequence[Lifetime]) -> int:
    begins, ends = (np.sort(np.array(times, dtype=np.int64)) for times in zip(*lifetimes, strict=True))
    gone = np.searchsorted(ends, begins, side="right")
    return int((np.arange(1, begins.size + 1) - gone).max(initial=1))
