"""Which turns ran when, by what became of their trajectories: what the joules of generating are shared by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.protocol.spec import Placement
from results.intervals import Ns, merge
from results.store import RunTables
from results.straggler import Batch, tails
from results.throughput import Lives
from results.tracks import FOREVER, Tracks, ints

NO_STEP = -1  # of a trajectory that none trained on
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Stretches = tuple[Ns, Ns]
TRAINED, TRAINED_STALE, TRAINED_UNKNOWN = "trained", "trained_stale", "trained_unknown"
DROPPED_STALE, DROPPED_OTHER, FAILED, OPEN = "dropped_stale", "dropped_other", "failed", "open"


@dataclass(frozen=True, slots=True)
class RunningWork:
    """Turns open at the client, of the whole pool, each as (starts, ends).

    `fates`: turns by what became of their trajectory, at any time of the record (trained: within the bound; open: it
    never left). `late`: turns of consumed trajectories that ended after their batch's median; `tail`: the batches'.
    """

    fates: Mapping[str, Stretches]
    late: Stretches
    tail: Stretches

    def shares(self, edges: Ns) -> tuple[dict[str, Floats], Floats]:
        """Of the turn-seconds in each cell of `edges`, the share of each fate, and of the late; 0 where none ran."""
        spent = {name: turn_time(*turns, edges) for name, turns in self.fates.items()}
        whole = np.maximum(sum(spent.values(), np.zeros(edges.size - 1)), 1e-3)  # ns: none is less than 1
        return {name: each / whole for name, each in spent.items()}, turn_time(*self.late, edges) / whole


def turn_time(starts: Ns, ends: Ns, edges: Ns) -> Floats:
    """Time (ns) that the stretches spend inside each cell of `edges`, all of them added up."""

    def since(times: Ns) -> Floats:
        """At each edge, how long ago each of the times before it was, added up."""
        ordered = np.sort(times) - edges[0]
        total = np.concatenate(([0.0], np.cumsum(ordered, dtype=np.float64)))
        count = np.searchsorted(ordered, edges - edges[0], side="right")
        return np.asarray(count * (edges - edges[0]).astype(np.float64) - total[count], dtype=np.float64)

    keep = (ends > edges[0]) & (starts < edges[-1]) & (ends > starts)
    inside = np.maximum(starts[keep], edges[0]), np.minimum(ends[keep], edges[-1])
    return np.maximum(np.diff(since(inside[0]) - since(inside[1])), 0.0)


def running_work(run: RunTables, tracks: Tracks, lives: Lives, made: Sequence[Batch]) -> RunningWork:
    """The turns of a run. `made`: the window's batches; async has no tails, whatever they are."""
    turns = tracks.turns
    fate = _fates(lives, run.spec.max_staleness)
    median = {batch.step: batch.median_ns for batch in made}
    consumed = ints(run.tables["trajectories"]["step_consumed"], NO_STEP)
    numbers, place = np.unique(consumed, return_inverse=True)
    medians = np.array([median.get(step, FOREVER) for step in numbers.tolist()], dtype=np.int64)
    late = tracks.life_end > medians[place]

    def of(mask: Mask, otherwise: bool = False) -> Stretches:
        mine = np.flatnonzero(np.append(mask, otherwise)[turns.life])  # UNKNOWN is the last of any list
        return turns.start[mine], turns.end[mine]

    return RunningWork(
        fates={name: of(mask, otherwise=name == OPEN) for name, mask in fate.items()},
        late=of(late),
        tail=merge(*tails([] if run.spec.placement is Placement.ASYNC else made)),
    )


def _fates(lives: Lives, bound: int) -> dict[str, Mask]:
    """What became of each trajectory: exactly one of them holds."""
    stale, unknown = lives.age > bound, np.isnan(lives.age)
    gone = lives.trained | lives.dropped | lives.failed | lives.cut
    return {
        TRAINED: lives.trained & ~stale & ~unknown,
        TRAINED_STALE: lives.trained & stale,
        TRAINED_UNKNOWN: lives.trained & unknown,
        DROPPED_STALE: lives.dropped & stale,
        DROPPED_OTHER: (lives.dropped & ~stale) | lives.cut,
        FAILED: lives.failed,
        OPEN: ~gone,
    }
