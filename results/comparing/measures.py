"""What runs are compared by: the registry of measures, and one run as its measures, without its spans.

A measure is one number per run. Its steps, where it has them, are kept beside it for pairing by plan. Unknown is None
with a reason, never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.protocol.phases import Phase
from harness.protocol.spec import Device
from results.classes import Class

Direction = Literal["lower", "higher", "none"]  # which way is better; none: more is not better by itself
Kind = Literal["ratio", "difference"]  # how two sides are compared: on the log scale, or in the measure's own unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One thing runs are compared by. `unit` is of its value; a share's differences are in percentage points."""

    name: str
    unit: str
    direction: Direction
    kind: Kind
    doc: str
    account: bool = False
    """Depends on what a rollout unit is: runs of different granularity are not compared by it."""
    part: bool = False
    """One of the exclusive parts that a step's wall time is made of (`blame` splits a change over them)."""


@dataclass(frozen=True, slots=True)
class Value:
    """A run's value of a measure; None with the reason why it is not known."""

    value: float | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeries:
    """The steps of the steady window, in order. `seconds`: of each step, by measure; all are as long as `steps`.

    `plans`: names the plans that the step trained on (equal names: the same work); None where they are not known.
    """

    steps: tuple[int, ...] = ()
    plans: tuple[str | None, ...] = ()
    seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasures:
    """One run as it is compared. All facts are text, as they are printed; a fact that is not on record is None.

    `problems`: why it has no number in any comparison (did not finish, contaminated, no steady window); empty when it
    may be compared. `notes`: what a reader must know of it all the same.
    `work`, `system`: the fields of the spec that make up the two digests. `machine`: host, cpu, cores, memory, kernel,
    gpus (their models, joined), gpu_count, driver.
    """

    run_id: str
    framework: str
    framework_version: str | None
    placement: str
    load: str
    device: str
    model: str
    seed: int
    work_digest: str
    spec_digest: str
    plans_digest: str | None
    work: Mapping[str, str]
    system: Mapping[str, str]
    machine: Mapping[str, str | None]
    versions: Mapping[str, str]
    bench_version: str | None
    commit: str | None
    started_utc: str | None
    status: str
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    granularity: str | None
    evidence: str | None
    steps: int
    values: Mapping[str, Value]
    series: StepSeries
    adherence: float | None = None
    """Share of the started trajectories that did what was planned; None: no fixed load, not known, or not on record."""
    lost: str = ""
    """Why its samples do not cover its window; empty where they do."""

    def value(self, measure: str) -> float | None:
        """The value of a measure; None when it is not known, or when the run has none of that name."""
        found = self.values.get(measure)
        return None if found is None else found.value

    def why(self, measure: str) -> str:
        """Why a value is None."""
        found = self.values.get(measure)
        return "not among the run's measures" if found is None else found.why

    @property
    def synchronous(self) -> bool:
        """Whether step k of every run trains on the same plans: only then steps are paired by plan."""
        return self.placement != "async"


def on_devices(measure: Measure, devices: Iterable[str]) -> Measure:
    """The measure as it is told of runs on those devices: without a GPU its unit counts processes, as in a report."""
    if set(devices) != {Device.CPU.value} or "GPU" not in measure.unit:
        return measure
    return replace(measure, unit=measure.unit.replace("GPU", "process"))


def _m(name: str, unit: str, direction: Direction, kind: Kind, doc: str, **more: bool) -> Measure:
    return Measure(name=name, unit=unit, direction=direction, kind=kind, doc=doc, **more)


HEADLINE: tuple[Measure, ...] = (
    _m("step_time_s", "s", "lower", "ratio", "wall time of a step: the window / its steps"),
    _m("throughput_tokens_per_s_gpu", "token/s/GPU", "higher", "ratio", "generated tokens / (window x all GPUs)"),
    _m(
        "goodput_tokens_per_s_gpu",
        "token/s/GPU",
        "higher",
        "ratio",
        "trained tokens within the staleness bound / (window x all GPUs)",
    ),
    _m("mfu_ratio", "ratio", "higher", "ratio", "training FLOPs / (window x all GPUs x peak)"),
    _m("power_utilisation_ratio", "ratio", "none", "difference", "joules of all GPUs / integral of their limits"),
    _m("joules_per_trained_trajectory", "J", "lower", "ratio", "joules of all GPUs / trajectories trained on"),
    _m("staleness_at_start_mean", "version", "lower", "difference", "trained at - version at the first token, mean"),
    _m("tail_gap_share", "ratio", "lower", "difference", "straggler gap: last - median end, of the rollout phase"),
    _m("slot_loss_share", "ratio", "lower", "difference", "1 - mean(end - phase start) / (last - phase start)"),
    _m("group_tail_share", "ratio", "lower", "difference", "last - median end of a group, of its life"),
    _m("tool_latency_s", "s", "lower", "ratio", "tool calls that ended in the window and were not cancelled, mean"),
    _m("turn_s_per_token", "s/token", "lower", "ratio", "turns that ended in the window: their seconds / their tokens"),
)

# The parts of a step: phases of the train track, and what a step's last trajectory did while the trainer waited for it.
_PHASES = tuple(
    phase for phase in Phase if phase not in (Phase.GENERATION, Phase.WAIT_ROLLOUT, Phase.TOOL, Phase.WAIT_TRAIN)
)
EXPOSED: Mapping[str, str] = {
    "exposed_generating_s": "it had a turn open",
    "exposed_tool_s": "it was in a tool",
    "exposed_queued_s": "it had handed a turn to the engine, which had not begun it",
    "exposed_agent_s": "it lived, with neither turn nor tool: tokenising, event loop, reward",
    "exposed_hand_over_s": "it had not begun, or had ended: admission, polling, transfer of the batch",
}
OTHER = f"phase_{Phase.OTHER.value}_s"
PARTS: tuple[Measure, ...] = (
    *(
        _m(
            f"phase_{phase.value}_s",
            "s",
            "lower",
            "ratio",
            f"train side, per step: {phase.value}" if phase is not Phase.OTHER else "train side, per step: unnamed",
            part=True,
        )
        for phase in _PHASES
    ),
    *(
        _m(name, "s", "lower", "ratio", f"per step, while the trainer waited for its last trajectory: {doc}", part=True)
        for name, doc in EXPOSED.items()
    ),
)
_TOTALS = (
    _m("phase_generation_s", "s", "lower", "ratio", "colocated, per step: the rollout phase (the exposed parts)"),
    _m("phase_wait_rollout_s", "s", "lower", "ratio", "per step: wait for the rollout side (the exposed parts)"),
)
_ROLLOUT = tuple(
    _m(
        f"rollout_{member.value}_s",
        "s",
        "none",
        "ratio",
        f"rollout side, per step and unit: {member.value} (its share of a step moves with the train side)",
        account=True,
    )
    for member in (
        Class.GENERATING,
        Class.QUEUED,
        Class.TOOL_WAIT,
        Class.AGENT,
        Class.EMPTY,
        Class.WAIT_TRAIN,
        Class.WEIGHT_SYNC,
        Class.OFFLOAD,
    )
)
WORK: tuple[Measure, ...] = tuple(
    _m(f"consumed_{name}", unit, "none", "ratio", f"work: {doc} per trajectory trained on in the window")
    for name, unit, doc in (
        ("generated_tokens", "token", "generated tokens"),
        ("observation_tokens", "token", "observation tokens"),
        ("tool_calls", "call", "tool calls"),
        ("tool_s", "s", "seconds in tools"),
    )
)
MEASURES: Mapping[str, Measure] = {one.name: one for one in (*HEADLINE, *PARTS, *_TOTALS, *_ROLLOUT, *WORK)}


def known(measures: Sequence[str]) -> tuple[Measure, ...]:
    """The measures of those names.

    Raises:
        KeyError: a name is none of the registry's.
    """
    return tuple(MEASURES[name] for name in measures)
