"""The events a run records: one JSON object per line, one append-only file per process.

Times are `time.monotonic_ns()` of the recording host. Unknown is None, never 0.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First line of every file: who writes, and the anchor of its clock to wall time."""

    kind: ClassVar[str] = "hello"
    protocol: int
    run_id: str
    host: str
    pid: int
    role: str  # controller | train | rollout | engine | sampler | supervisor
    wall_ns: int
    mono_ns: int
    gpu_uuids: tuple[str, ...] = ()
    pool: str | None = None  # the pool its GPUs belong to (phases.Pool), where the process knows
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Something began: an un-closed Open names what a hung process was doing."""

    kind: ClassVar[str] = "open"
    id: int
    start_ns: int
    phase: str | None  # None for a container or a trajectory
    native_name: str
    pool: str | None = None
    unit: str | None = None
    step: int | None = None
    trajectory_id: str | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A closed stretch of time. Leaf spans name time; containers only group and cover nothing."""

    kind: ClassVar[str] = "span"
    phase: str | None
    native_name: str
    start_ns: int
    end_ns: int
    pool: str | None = None
    unit: str | None = None
    step: int | None = None
    trajectory_id: str | None = None
    turn: int | None = None
    container: bool = False
    open_id: int | None = None
    attributes: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One agent attempt, closed. Consumption is told by the `Step` that trained on it."""

    kind: ClassVar[str] = "trajectory"
    trajectory_id: str
    group_id: str
    prompt: int  # row of the dataset: the plan's `prompt`
    sample: int  # repetition within the group: the plan's `sample`
    attempt: int
    status: str  # ok | failed | timeout | cancelled
    start_ns: int
    end_ns: int
    turns: int
    tool_calls: int
    tool_ns: int
    prompt_tokens: int  # of the first prompt
    generated_tokens: int
    observation_tokens: int
    version_scheduled: int | None = None
    version_first: int | None = None  # version at the first generated token
    version_last: int | None = None  # version at the last generated token
    reward: float | None = None
    open_id: int | None = None
    message: str | None = None  # why, when status is not ok
    loss_tokens: int | None = None  # sum of the loss mask; 0 unless ok: what ended otherwise trains on nothing
    sequence_tokens: int | None = None  # prompt and response as they go to the trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One policy update. `trajectory_ids` were trained on by it; version `policy_version` is what they trained into."""

    kind: ClassVar[str] = "step"
    step: int
    policy_version: int
    start_ns: int
    end_ns: int
    trajectory_ids: tuple[str, ...]
    dropped_ids: tuple[str, ...] = ()  # consumed by the trainer's queue but not trained on
    loss_tokens: int | None = None  # sum of the trainer's loss mask
    processed_tokens: int | None = None  # tokens through the training forward, no padding
    reward_mean: float | None = None
    grad_norm: float | None = None
    recorder_ns: int | None = None  # the recorder's own cumulative cost in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number (or a short vector) the framework or a probe reported."""

    kind: ClassVar[str] = "metric"
    name: str
    mono_ns: int
    value: float | None = None
    values: tuple[float, ...] | None = None
    unit: str = ""
    step: int | None = None
    labels: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Admission of new trajectories opened or closed."""

    kind: ClassVar[str] = "gate"
    mono_ns: int
    open: bool
    why: str
    in_flight: int | None = None
    cap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something failed at a boundary (spec, env, worker, tool, engine, recorder, telemetry, supervisor)."""

    kind: ClassVar[str] = "failure"
    mono_ns: int
    boundary: str
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye:
    """Last line of a process that ended as it meant to. Success of a run needs the controller's `Bye`."""

    kind: ClassVar[str] = "bye"
    mono_ns: int
    wall_ns: int
    events: int
    lost_events: int
    recorder_ns: int


Event = Hello | Open | Span | Trajectory | Step | Metric | Gate | Failure | Bye
EVENT_TYPES: Mapping[str, type[Event]] = {
    t.kind: t for t in (Hello, Open, Span, Trajectory, Step, Metric, Gate, Failure, Bye)
}
_FIELDS = {kind: tuple(f.name for f in fields(t)) for kind, t in EVENT_TYPES.items()}
_TUPLES = ("gpu_uuids", "trajectory_ids", "dropped_ids", "values")


# json.dumps builds a new encoder at each call that is not all defaults: most of the cost of a small event.
to_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encode(event: Event) -> str:
    """One line without its newline. Non-finite floats raise ValueError: write None for unknown."""
    line: dict[str, Any] = {"k": event.kind}
    for name in _FIELDS[event.kind]:
        value = getattr(event, name)
        if value is not None:
            line[name] = value
    return to_json(line)


def without_nan(event: Event) -> tuple[Event, tuple[str, ...]]:
    """The event with None for each number that is none (NaN, infinite), and the names of those: unknown, never 0."""
    gone: dict[str, Any] = {}
    for name in _FIELDS[event.kind]:
        value = getattr(event, name)
        if isinstance(value, Mapping):
            if any(map(_is_nan, value.values())):
                gone[name] = {key: None if _is_nan(one) else one for key, one in value.items()}
        elif any(map(_is_nan, value if isinstance(value, tuple) else (value,))):
            gone[name] = None
    return replace(event, **gone), tuple(gone)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def decode(line: str) -> Event:
    """The event of one line.

    Raises:
        ValueError: not JSON, an unknown kind, or fields that do not fit it.
    """
    raw: Any = json.loads(line)
    kind = raw.pop("k", None) if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in EVENT_TYPES:
        raise ValueError(f"not an event line: {line[:80]!r}")
    cls = EVENT_TYPES[kind]
    if cls in (Open, Span):
        raw.setdefault("phase", None)
    try:
        for name in _TUPLES:
            if name in raw:
                raw[name] = tuple(raw[name])
        return cls(**raw)
    except TypeError as error:
        raise ValueError(f"bad {cls.kind} event: {error}") from None


def read_events(path: Path) -> Iterator[Event | ValueError]:
    """Each line of a file as an event; a line that is cut or damaged is yielded as the ValueError it caused."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                yield decode(raw.decode("utf-8"))
            except ValueError as error:
                yield ValueError(f"{path.name}:{number}: {error}")
