"""A calibration: the numbers that a plan is made from, each with its interval, its source and what it can't see."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Offload, Placement
from results.planner.calibration.typed import Rule, Rules, made_of

FORMAT = 1
SIMULATED = "simulated"  # framework of runs without one; in files their source is MEASURED, as of all runs
MEASURED, PUBLISHED, PRIOR = "measured", "published", "prior"
# Constants of a step, in seconds. `host_s`: reward, advantage, data, conversion, handing over, and what has no name.
STEP = ("train_s", "logprob_s", "host_s", "sync_pause_s", "sync_transfer_s", "sync_resume_s", "offload_s")
# Of a turn: `token_s` at one sequence on an engine, and how much longer it takes per further sequence beside it.
TURN = ("token_s", "token_s_per_sequence", "agent_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One number. `low`, `high`: its 95 % interval, or a prior's range; equal to `value` where nothing tells them."""

    value: float
    low: float
    high: float
    unit: str
    source: str  # measured | published | prior
    n: int = 0  # observations
    note: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and math.isfinite(self.low) and math.isfinite(self.high)):
            raise SpecError(f"a constant of {self.value} ({self.low} to {self.high}): allowed are numbers")
        if not self.low <= self.value <= self.high:
            raise SpecError(f"a constant of {self.value} outside its range {self.low} to {self.high}")

    def at(self, share: float) -> float:
        """The value at a place of its range: 0 is `low`, 0.5 is `value`, 1 is `high`; straight lines between."""
        if share <= 0.5:
            return self.low + (self.value - self.low) * share * 2
        return self.value + (self.high - self.value) * (share - 0.5) * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How well generation's speed was fitted: seconds a token = base + slope x (sequences beside it on the engine)."""

    turns: int
    least: float  # sequences on an engine, mean over a turn: 5th percentile
    most: float  # 95th percentile
    r2: float | None
    residual_p50: float | None  # of a turn's seconds, as shares of them
    residual_p95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """How one placement moves weights and takes batches.

    Attributes:
        transport: of a weight sync, as the adapter names it; "" where it doesn't say.
        polled_s: seconds between two looks for what was written: how long a sync waits at most for nothing.
        held_s: a turn that a sync interrupts goes on at a multiple of so many seconds after the sync's begin at which
            it is over; 0: at its end.
        whole_batches: batches are dispatched whole, and trained on in that order: the trainer waits for the oldest.
    """

    transport: str = ""
    polled_s: float = 0.0
    held_s: float = 0.0
    whole_batches: bool = False

    @property
    def within(self) -> bool:
        """Whether weights stay in their process or on their GPU."""
        return self.transport.startswith(("in process", "CUDA IPC"))


UNKNOWN = Mechanism()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One system on one machine. Lists are samples to draw from, in no order that matters."""

    source: str  # measured | published
    name: str  # run id, or where the numbers are from
    device: str
    placement: str
    framework: str
    model: str
    batch_size: int  # groups in a step
    group_size: int
    train_gpus: int
    rollout_gpus: int
    gpus_per_engine: int
    turns: tuple[int, ...]
    turn_tokens: tuple[float, ...]
    tool_s: tuple[float, ...]
    constants: Mapping[str, Constant]
    step_s: float | None = None  # as it was measured: what a prediction for the same placement is held against
    power_ratio: float | None = None
    watts_limit: float | None = None  # of one GPU
    watts: Mapping[str, float] = field(default_factory=dict)  # of one GPU: train.CLASS, rollout.CLASS, idle
    power_scale: float = 1.0  # of the power priors: with it the calibrated placement draws what was published
    fit: Fit | None = None
    unseen: tuple[str, ...] = ()  # what this calibration can't tell
    work_digest: str = ""
    work: Mapping[str, str] = field(default_factory=dict)  # what the digest is of, as text
    gpu_bytes: int | None = None  # memory of one GPU, the smallest
    offload: str = ""  # what the run moved off its GPUs, as its spec says; "" unknown
    laws: str = "seen"  # where turns, tokens and seconds of tools are from: seen | planned (the preset's own law)
    cores: Mapping[str, Constant] = field(default_factory=dict)  # on CPU: share of all cores in use, by class
    contention: Constant | None = None  # on CPU: what that tells of two sides at once
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)  # of each placement, by its adapter

    def __post_init__(self) -> None:
        if not self.turns or min(self.turns) < 1:
            raise SpecError("turns: no counts of turns")
        # One order, whether it was just fitted or read from a file: draws go through the constants in it.
        object.__setattr__(self, "constants", dict(sorted(self.constants.items())))
        missing = [name for name in (*STEP, *TURN) if name not in self.constants]
        if missing:
            raise SpecError(f"constants.{missing[0]}: it is missing")

    @property
    def gpus(self) -> int:
        """GPUs of the system, each counted once."""
        return self.train_gpus if self.placement == "colocated" else self.train_gpus + self.rollout_gpus

    @property
    def simulated(self) -> bool:
        """Whether it was fitted to a run without a framework: nothing in it was measured."""
        return self.source == MEASURED and self.framework == SIMULATED

    @property
    def kind(self) -> str:
        """Where the numbers come from, as a reader is told: `published`, `fitted to a simulated run`, ..."""
        if self.source != MEASURED:
            return self.source
        if self.simulated:
            return "fitted to a simulated run: nothing was measured"
        return f"fitted to a run on {'CPU: a functional check' if self.device == 'cpu' else 'GPUs'}"

    def source_of(self, constant: Constant) -> str:
        """A constant's source, as a reader is told: `fitted` to a run, `simulated`, `published` or `prior`."""
        if constant.source != MEASURED:
            return constant.source
        return SIMULATED if self.simulated else "fitted"

    def mechanism(self, placement: str) -> Mechanism:
        """That of a placement; all unknown where no adapter said it."""
        return self.mechanisms.get(placement, UNKNOWN)

    @property
    def trajectories(self) -> int:
        """Trajectories in a step."""
        return self.batch_size * self.group_size


def write(calibration: Calibration, path: Path) -> None:
    """Writes it as JSON.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **asdict(calibration)}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> Calibration:
    """A calibration from its file.

    Raises:
        SpecError: no such file, or what it holds is no calibration: names the key.
    """
    none = "`bench calibrate RUN -o FILE` writes one"
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path} can't be read: {error}") from None
    except RecursionError:
        raise SpecError(f"{path}: no calibration (nested too deeply); {none}") from None
    except ValueError as error:
        raise SpecError(f"{path}: no calibration (not JSON: {error}); {none}") from None
    number = held.pop("format", None) if isinstance(held, dict) else None
    if isinstance(number, bool) or number != FORMAT:
        raise SpecError(f"{path}: no calibration of format {FORMAT}; {none}")
    try:
        return made_of(Calibration, held, _RULES)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def _one_of(*names: str) -> Rule:
    return Rule(allowed="one of " + ", ".join(name or '""' for name in names), holds=lambda value: value in names)


# What is allowed in a file beyond each field's type. Limits: a file that says more is damaged.
_MOST, _LONGEST = 1_000_000, 1e15
_COUNT = Rule(allowed=f"a whole number from 1 to {_MOST}", holds=lambda value: 1 <= value <= _MOST, filled=True)
_SOME = Rule(allowed="a whole number from 0 up", holds=lambda value: value >= 0)
_FROM_0 = Rule(allowed="a number from 0 up", holds=lambda value: 0 <= value <= _LONGEST, filled=True)
_ABOVE_0 = Rule(allowed="a number above 0", holds=lambda value: 1e-12 <= value <= _LONGEST, filled=True)
_RULES: Rules = {
    **{(Constant, name): _FROM_0 for name in ("value", "low", "high")},
    (Constant, "source"): _one_of(MEASURED, PUBLISHED, PRIOR),
    (Constant, "n"): _SOME,
    (Fit, "turns"): _SOME,
    **{(Fit, name): _FROM_0 for name in ("least", "most", "residual_p50", "residual_p95")},
    **{(Mechanism, name): _FROM_0 for name in ("polled_s", "held_s")},
    **{
        (Calibration, name): _COUNT
        for name in ("batch_size", "group_size", "train_gpus", "rollout_gpus", "gpus_per_engine", "turns")
    },
    **{(Calibration, name): _FROM_0 for name in ("tool_s", "step_s", "power_ratio", "watts")},
    **{(Calibration, name): _ABOVE_0 for name in ("turn_tokens", "watts_limit", "power_scale")},
    (Calibration, "gpu_bytes"): Rule(allowed="a whole number from 1 up", holds=lambda value: value >= 1),
    (Calibration, "source"): _one_of(MEASURED, PUBLISHED),
    (Calibration, "device"): _one_of(*Device),
    (Calibration, "placement"): _one_of(*Placement),
    (Calibration, "offload"): _one_of("", *Offload),
    (Calibration, "laws"): _one_of("seen", "planned"),
}
