"""The classes of a second, in the order in which they are tried, and sums over timelines of them."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from harness.protocol.phases import Phase
from results.intervals import Ns, Timeline, covered_cells


class Class(StrEnum):
    """Classes of a second, in the order in which they are tried; those of the other side never occur."""

    DOWN = "down"
    WEIGHT_SYNC = "weight_sync"
    OFFLOAD = "offload"
    CHECKPOINT = "checkpoint"
    EVAL = "eval"
    TRAIN = "train"
    LOGPROB = "logprob"
    HOST = "host"
    WAIT_ROLLOUT = "wait_rollout"
    QUEUED = "queued"  # a client has turns open, and the engine says that it runs none of them
    GENERATING = "generating"
    TOOL_WAIT = "tool_wait"
    AGENT = "agent"
    EMPTY = "empty"
    WAIT_TRAIN = "wait_train"
    OTHER = "other"


CODES: Mapping[Class, int] = {member: code for code, member in enumerate(Class)}
TRAIN_BUSY = (CODES[Class.TRAIN], CODES[Class.LOGPROB], CODES[Class.HOST])
TAIL_CLASSES = (Class.QUEUED, Class.GENERATING, Class.TOOL_WAIT, Class.AGENT, Class.EMPTY)

OTHER_CODE = CODES[Class.OTHER]
ROLLOUT_REGION = len(CODES)  # inside a native colocated generate span: the rollout classes apply
# The phases of the class `host`, told apart by codes of their own beyond those of the classes.
HOST_PHASES: Mapping[str, int] = {
    phase.value: ROLLOUT_REGION + 1 + place
    for place, phase in enumerate((Phase.REWARD, Phase.ADVANTAGE, Phase.DATA, Phase.OVERHEAD))
}
OF_PHASE: Mapping[str, int] = {
    Phase.WEIGHT_SYNC.value: CODES[Class.WEIGHT_SYNC],
    Phase.OFFLOAD.value: CODES[Class.OFFLOAD],
    Phase.CHECKPOINT.value: CODES[Class.CHECKPOINT],
    Phase.EVAL.value: CODES[Class.EVAL],
    Phase.TRAIN.value: CODES[Class.TRAIN],
    Phase.LOGPROB.value: CODES[Class.LOGPROB],
    Phase.REWARD.value: CODES[Class.HOST],
    Phase.ADVANTAGE.value: CODES[Class.HOST],
    Phase.DATA.value: CODES[Class.HOST],
    Phase.OVERHEAD.value: CODES[Class.HOST],
    Phase.WAIT_ROLLOUT.value: CODES[Class.WAIT_ROLLOUT],
}


def named(timeline: Timeline, weights: npt.NDArray[np.float64] | None = None) -> dict[str, float]:
    """Seconds of each class that occurs; `weights` (ns per cell) stand for the cells' lengths where given."""
    cells = np.diff(timeline.edges).astype(np.float64) if weights is None else weights
    seconds = np.bincount(timeline.codes, weights=cells, minlength=len(CODES)) / 1e9
    return {member.value: float(seconds[code]) for member, code in CODES.items() if seconds[code] > 0}


def inside(timeline: Timeline, others: tuple[Ns, Ns], classes: tuple[Class, ...]) -> dict[str, float]:
    """Seconds of each of `classes` inside the union of `others`."""
    cells = covered_cells(timeline.edges, others).astype(np.float64)
    return {name: s for name, s in named(timeline, cells).items() if name in {member.value for member in classes}}


def hidden(timeline: Timeline, train: Timeline, wanted: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Seconds of each class while the train unit was in train, logprob or host.

    A weight sync is judged by whom it blocks: it is exposed in the cells that are `wanted` (a trajectory of the unit
    generates or wants to), and hidden in the others, whatever the train unit does.
    """
    behind = tuple(member for member in Class if member not in (Class.OTHER, Class.WEIGHT_SYNC))
    seconds = inside(timeline, train.where(*TRAIN_BUSY), behind)
    free = (timeline.codes == CODES[Class.WEIGHT_SYNC]) & ~wanted
    if free.any():
        seconds[Class.WEIGHT_SYNC.value] = float(np.diff(timeline.edges)[free].sum()) / 1e9
    return seconds
