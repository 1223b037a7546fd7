"""Which turns ran at every instant, by what became of their trajectories: what joules of generating are shared by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.protocol.spec import Placement
from results.intervals import Ns, grid_of, level, merge
from results.store import RunTables
from results.straggler import Batch, tails
from results.throughput import Lives
from results.tracks import UNKNOWN, Tracks
from results.window import Window

Mask = npt.NDArray[np.bool_]
TRAINED, TRAINED_STALE, TRAINED_UNKNOWN = "trained", "trained_stale", "trained_unknown"
DROPPED_STALE, DROPPED_OTHER, FAILED, OPEN = "dropped_stale", "dropped_other", "failed", "open"


@dataclass(frozen=True, slots=True)
class RunningWork:
    """Counts per cell [edges[i], edges[i + 1]) of the window; turns open at the client, of the whole pool.

    `fates`: turns by what became of their trajectory, at any time of the record (trained: within the bound; open: it
    never left). `late`: turns of consumed trajectories that ended after their batch's median; `tail`: inside a tail.
    """

    edges: Ns
    fates: Mapping[str, Ns]
    late: Ns
    tail: Mask

    @property
    def running(self) -> Ns:
        """All turns."""
        return np.asarray(sum(self.fates.values(), np.zeros(self.edges.size - 1, dtype=np.int64)), dtype=np.int64)


def running_work(run: RunTables, tracks: Tracks, window: Window, lives: Lives, made: Sequence[Batch]) -> RunningWork:
    """The turns of the window. `made`: its batches; async has no tails, whatever they are."""
    low, high = window.start_ns, window.end_ns
    turns = tracks.turns
    tail = merge(*tails([] if run.spec.placement is Placement.ASYNC else made))
    edges = grid_of(low, high, turns.start, turns.end, *tail)
    fate = _fates(lives, run.spec.max_staleness)
    late = np.zeros(tracks.life_start.size, dtype=np.bool_)
    consumed = run.frame("trajectories")["step_consumed"].to_numpy(np.float64, na_value=np.nan)
    for batch in made:
        late |= (consumed == batch.step) & (tracks.life_end > batch.median_ns)
    known = turns.life != UNKNOWN
    life = np.maximum(turns.life, 0)

    def count(of_life: Mask, otherwise: bool = False) -> Ns:
        mine = np.where(known, of_life[life], otherwise) if of_life.size else np.full(known.size, otherwise)
        return level(turns.start[mine], turns.end[mine], edges)

    return RunningWork(
        edges=edges,
        fates={name: count(mask, otherwise=name == OPEN) for name, mask in fate.items()},
        late=count(late),
        tail=level(*tail, edges) > 0,
    )


def _fates(lives: Lives, bound: int) -> dict[str, Mask]:
    """What became of each trajectory: exactly one of them holds."""
    stale, unknown = lives.age > bound, np.isnan(lives.age)
    other = ~lives.trained & ~lives.dropped & (lives.left != np.iinfo(np.int64).max)
    return {
        TRAINED: lives.trained & ~stale & ~unknown,
        TRAINED_STALE: lives.trained & stale,
        TRAINED_UNKNOWN: lives.trained & unknown,
        DROPPED_STALE: lives.dropped & stale,
        DROPPED_OTHER: (lives.dropped & ~stale) | (other & lives.cancelled),
        FAILED: other & ~lives.cancelled,
        OPEN: ~lives.trained & ~lives.dropped & ~other,
    }
