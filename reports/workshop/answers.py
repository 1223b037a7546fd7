"""What the workshop's page asks: one setting, synchronous beside async, and the curve over the spread.

The engine and the rows are those of `bench simulate`: the same setting and seed give the same figures there.

While a slider is moved the page asks for a quick look. Where an hour holds so many trajectories that it would lag
behind the hand, that is less: the hour's beginning, and fewer points on the curve. Every answer says how much it has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from harness.protocol.errors import SpecError
from results.planner import compiled
from results.planner.engine import simulate
from results.planner.model import LogNormal, Mode, Scenario
from results.planner.result import CONVENTIONS, Result
from results.planner.sweep import cells, row_of, theory

SPREADS = tuple(round(0.1 * k, 1) for k in range(16))  # sigma of the curve's points
QUICK_SPREADS, QUICKEST_SPREADS = SPREADS[::3], SPREADS[::5]
HOUR_S = 3600.0
# Trajectories of one simulation, if nothing ever waits: up to the first an hour with all its points keeps up with the
# hand; a quick look has up to the second, and fewer points.
FOLLOWS, QUICK = 8_000, 12_000
QUICK_UPDATES = 2  # at least so many update times are in a quick look
MODES = (Mode.SYNCHRONOUS.value, Mode.ASYNC.value)
UNBOUNDED = -1  # of the staleness slider


@dataclass(frozen=True, slots=True)
class Slider:
    """One setting of the page: its ends, its step, and the workshop's own value."""

    name: str
    label: str
    low: float
    high: float
    step: float
    value: float
    unit: str = ""

    def parse(self, text: str) -> float:
        """The value a request gives.

        Raises:
            SpecError: not a number, or beyond the slider's ends.
        """
        try:
            value = float(text)
        except ValueError:
            raise SpecError(f"{self.name} = {text}: not a number") from None
        if not self.low <= value <= self.high:
            raise SpecError(f"{self.name} = {text}: allowed is {self.low:g} to {self.high:g}")
        return value


SLIDERS = (
    Slider("median", "Median duration", 1, 120, 1, 20, "s"),
    Slider("sigma", "Spread σ", 0, 1.5, 0.05, 1, "log units"),
    Slider("update_s", "Update time", 0, 120, 1, 15, "s"),
    Slider("workers", "Rollout workers", 1, 256, 1, 64),
    Slider("batch_size", "Batch", 1, 256, 1, 64, "trajectories"),
    Slider("max_staleness", "Staleness bound", UNBOUNDED, 8, 1, UNBOUNDED, "versions"),
)
_WHOLE = ("workers", "batch_size", "max_staleness")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the sliders say. `max_staleness` None: no bound. `quick`: less than an hour, where an hour takes long."""

    median: float
    sigma: float
    update_s: float
    workers: int
    batch_size: int
    max_staleness: int | None
    seed: int = 1
    quick: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Setting":
        """The setting of a request; what it leaves out has the workshop's value.

        Raises:
            SpecError: an unknown name, or a value that is none.
        """
        unknown = set(query) - {field.name for field in fields(cls)}
        if unknown:
            raise SpecError(f"{min(unknown)}: unknown; allowed are {', '.join(field.name for field in fields(cls))}")
        found: dict[str, Any] = {}
        for slider in SLIDERS:
            value = slider.parse(query[slider.name]) if slider.name in query else slider.value
            found[slider.name] = int(value) if slider.name in _WHOLE else value
        if found["max_staleness"] == UNBOUNDED:
            found["max_staleness"] = None
        seed = query.get("seed", "1")
        if not seed.isdecimal() or len(seed) > 18:
            raise SpecError(f"seed = {seed[:20]}: allowed is a whole number from 0")
        quick = query.get("quick", "0")
        if quick not in ("0", "1"):
            raise SpecError(f"quick = {quick[:20]}: allowed is 0 or 1")
        whole = cls(**found, seed=int(seed))
        return replace(whole, quick=quick == "1" and whole.starts(HOUR_S) > FOLLOWS)

    def starts(self, horizon_s: float) -> float:
        """Trajectories that would start in that time if nothing ever waited, without a spread: the most there are."""
        return self.workers * horizon_s / self.median

    @property
    def horizon_s(self) -> float:
        """Virtual seconds to play: an hour, or for a quick look a half, a quarter, ... of it."""
        horizon_s = HOUR_S
        while self.quick and self.starts(horizon_s) > QUICK and horizon_s / 2 >= QUICK_UPDATES * self.update_s:
            horizon_s /= 2
        return horizon_s

    @property
    def spreads(self) -> tuple[float, ...]:
        """Sigma of the curve's points."""
        if not self.quick:
            return SPREADS
        return QUICK_SPREADS if self.starts(self.horizon_s) <= 2 * QUICK else QUICKEST_SPREADS

    @property
    def command(self) -> str:
        """The command line that gives the same figures."""
        words = [
            f"bench simulate --median {self.median:g} --sigma {self.sigma:g} --update-s {self.update_s:g}",
            f"--workers {self.workers} --batch-size {self.batch_size}",
        ]
        if self.max_staleness is not None:
            words.append(f"--max-staleness {self.max_staleness}")
        if self.horizon_s != HOUR_S:
            words.append(f"--hours {self.horizon_s / HOUR_S:g}")
        if self.seed != 1:
            words.append(f"--seed {self.seed}")
        return " ".join(words)


def base_of(setting: Setting) -> dict[str, Any]:
    """The scenario of a setting, as `bench simulate` has it: trajectories keep the version they began with."""
    policy: dict[str, Any] = {"in_flight": "keep"}
    if setting.max_staleness is not None:
        policy["max_staleness"] = setting.max_staleness
    return {
        "durations": {"law": "log_normal", "median_s": setting.median, "sigma": setting.sigma},
        "pools": {"workers": setting.workers, "train": setting.update_s},
        "policy": policy,
        "batch_size": setting.batch_size,
        "horizon_s": setting.horizon_s,
        "seed": setting.seed,
    }


@lru_cache(maxsize=512)
def point(setting: Setting) -> dict[str, Any]:
    """One setting: the rows of both modes, the staleness histogram, and one synchronous batch's trajectories."""
    found = {}
    batch: dict[str, Any] = {"bars": [], "ends_s": None, "update_s": setting.update_s, "workers": setting.workers}
    for cell in cells(base_of(setting), {"mode": list(MODES)}):
        mode = str(cell.values["mode"])
        first = setting.batch_size if mode == Mode.SYNCHRONOUS.value else 0
        result = _simulated(cell.scenario, first)
        row = row_of(cell, result)
        row["staleness"] = {name: _histogram(result, name) for name in CONVENTIONS}
        found[mode] = row
        if first:
            batch |= _batch(result, setting.workers)
    return {"simulated": True, "command": setting.command, "modes": found, "batch": batch, **_extent(setting)}


def never() -> bool:
    """No one gives an answer up."""
    return False


def curve(setting: Setting, gone: Callable[[], bool] = never) -> dict[str, Any]:
    """Updates per hour of both modes over the spread, and in the long run where there is a closed form.

    Args:
        setting: its spread changes nothing: there is one curve for all.
        gone: asked between two simulations; true: nobody waits for the answer any more.

    Raises:
        Abandoned: `gone` was true.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    for mode in MODES:
        lines[mode] = []
        for sigma in setting.spreads:
            if gone():
                raise Abandoned
            bound = setting.max_staleness if mode == Mode.ASYNC.value else None  # no other mode has a use for it
            lines[mode].append(_on_curve(replace(setting, sigma=sigma, max_staleness=bound), mode))
    return {"simulated": True, "lines": lines, **_extent(setting)}


class Abandoned(Exception):  # noqa: N818 - no error: the hand moved on
    """Nobody waits for the answer any more."""


@lru_cache(maxsize=8192)
def _on_curve(setting: Setting, mode: str) -> dict[str, Any]:
    scenario = replace(
        _without_spread(replace(setting, sigma=0.0), mode), durations=LogNormal(setting.median, setting.sigma)
    )
    result = _simulated(scenario, 0)
    return {
        "sigma": setting.sigma,
        "updates_per_hour": result.updates_per_hour,
        "long_run": theory(scenario),
        "unstable": result.unstable,
    }


@lru_cache(maxsize=64)
def _without_spread(setting: Setting, mode: str) -> Scenario:
    """What the points of a curve share: made once."""
    (cell,) = cells(base_of(setting), {"mode": [mode]}, assumed=("in_flight",))
    return cell.scenario


def _extent(setting: Setting) -> dict[str, Any]:
    """How much was simulated."""
    return {"horizon_s": setting.horizon_s, "whole": not setting.quick}


def warm() -> str:
    """Loads what a first answer would wait for; returns how the loop runs: compiled or interpreted."""
    point(Setting.of({}))
    curve(Setting.of({}))
    return "compiled" if compiled.available() else "interpreted"


def _simulated(scenario: Scenario, records: int) -> Result:
    return simulate(scenario, backend="compiled" if compiled.available() else "interpreted", records=records)


def _histogram(result: Result, name: str) -> list[list[float]]:
    """Pairs of staleness and share, from the smallest."""
    return [[value, share] for value, share in result.staleness[name].shares.items()]


def _batch(result: Result, workers: int) -> dict[str, Any]:
    """The first batch: each trajectory's start and end, seconds from the batch's beginning, in the order of ends."""
    records = result.records
    if records is None or not len(result.taken_s):
        return {}
    ends = float(result.taken_s[0])
    bars = sorted(
        (float(end), float(start), int(worker))
        for start, end, worker in zip(records.start_s, records.end_s, records.worker, strict=True)
        if end <= ends
    )
    idle = 1 - sum(end - start for end, start, _ in bars) / (ends * workers) if ends > 0 else 0.0
    return {"bars": [[start, end, worker] for end, start, worker in bars], "ends_s": ends, "idle_ratio": idle}
