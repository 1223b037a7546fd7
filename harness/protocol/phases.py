"""The one vocabulary of phases, and the attributes a span of each phase may carry."""

from enum import StrEnum


class Phase(StrEnum):
    """What a stretch of time was spent on. Containers (`step`, …) have no phase: they are marked `container`."""

    GENERATION = "generation"
    TOOL = "tool"
    REWARD = "reward"
    LOGPROB = "logprob"
    ADVANTAGE = "advantage"
    TRAIN = "train"
    WEIGHT_SYNC = "weight_sync"
    OFFLOAD = "offload"
    WAIT_ROLLOUT = "wait_rollout"
    WAIT_TRAIN = "wait_train"
    OVERHEAD = "overhead"
    CHECKPOINT = "checkpoint"
    EVAL = "eval"
    DATA = "data"
    OTHER = "other"


class Pool(StrEnum):
    """The GPU pool a span occupied; `both` is the shared pool of a colocated run."""

    TRAIN = "train"
    ROLLOUT = "rollout"
    BOTH = "both"


# Keys of Span.attributes, by phase. A turn is a `generation` span with a trajectory_id; a tool call is a `tool`
# span with one; a weight sync is a `weight_sync` span with a `version`.
TURN_ATTRIBUTES = (
    "engine",  # address of the server that answered, or None when the framework hides it
    "submitted_ns",  # monotonic ns at which the request was queued at the engine, or None when that is not seen
    "prompt_tokens",
    "generated_tokens",  # counted from the ids the engine returned, never from the plan
    "version_start",  # policy version visible when the turn began
    "version_end",  # policy version visible when the turn ended
    "stop_reason",
    "cache_break",  # true where the ids sent no longer begin with those of the turn before (stripped thinking)
)
TOOL_ATTRIBUTES = (
    "tool",
    "call",  # its number within the trajectory, from 0
    "argument",  # query or address, cut at 500 characters
    "planned_ns",  # latency that was imposed; None where the tool takes what it takes
    "status",  # ok | timeout | error | refused | empty | not_found
    "observation_tokens",
    "observation_bytes",
    "http_status",
    "wire_bytes",  # of the page or the provider's answer
    "served_ns",  # time inside the tool server
    "detail",  # why the status is not ok
)
SYNC_ATTRIBUTES = (
    "version",  # the version that became visible when this sync ended
    "engine",
    "pause_ns",
    "transfer_ns",
    "resume_ns",
    "bytes",
)
