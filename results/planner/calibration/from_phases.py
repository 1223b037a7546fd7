"""A calibration from published phase times: what one row of a table tells, and what has to be assumed for the rest."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

from harness.protocol.errors import SpecError
from results.planner.calibration.constants import PRIOR, PUBLISHED, Calibration, Constant
from results.planner.engine import simulate
from results.planner.model import Composed, Empirical, Fixed, InFlight, Law, LogNormal, Mode, Policy, Pools, Scenario
from workloads.deep_research.presets import BROWSE, PRESETS, SEARCH

PHASES = ("generate", "train", "logprob", "weight_sync", "offload", "host")
PRESET = "deep-research"
ROUNDING = 0.5  # of the last digit that is printed
SEEDS = 8
TOLERANCE_S = 0.01
UPDATES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row: seconds of a step's phases; `trajectories` in a step; tool calls of a trajectory, seconds of a call."""

    name: str
    phases: Mapping[str, float]
    trajectories: int
    gpus: int
    calls: tuple[int, int] = (1, 8)
    tool_s: float = 16.0
    turn_tokens: float = 600.0
    gpus_per_engine: int = 1
    model: str = ""
    power_ratio: float | None = None
    watts_limit: float | None = None
    group_size: int = 1
    gpu_bytes: int | None = None  # memory of one GPU


def calibrate_phases(row: Published) -> Calibration:
    """A calibration of a synchronous colocated system, from its printed phases.

    Seconds a token are not printed: they are what makes the simulated rollout phase as long as the printed one, for
    generation that no load slows; how load slows it stays a prior.

    Raises:
        SpecError: a phase is unknown or missing, a number is none, or the tools alone take longer than generation.
    """
    _check(row)
    turns = tuple(count + 1 for count in range(row.calls[0], row.calls[1] + 1))
    tokens = LogNormal(row.turn_tokens / math.exp(0.3**2 / 2), 0.3)
    base, spread = _solve(row, turns)
    constants = {
        "token_s": Constant(
            value=base,
            low=max(base - spread, 0.0),
            high=base + spread,
            unit="s/token",
            source=PUBLISHED,
            note=f"solved: the rollout phase is {row.phases['generate']:g} s",
        ),
        "token_s_per_sequence": Constant(
            value=0.0, low=0.0, high=0.0, unit="s/token/sequence", source=PRIOR, note="one row tells one load"
        ),
        "agent_s": _exact(0.0, "s/turn"),
        "sync_pause_s": _exact(0.0, "s"),
        "sync_resume_s": _exact(0.0, "s"),
        "sync_transfer_s": _rounded(row.phases.get("weight_sync", 0.0)),
        "train_s": _rounded(row.phases["train"]),
        "logprob_s": _rounded(row.phases.get("logprob", 0.0)),
        "host_s": _rounded(row.phases.get("host", 0.0)),
        "offload_s": _rounded(row.phases.get("offload", 0.0)),
    }
    quantiles = [(k + 0.5) / 64 for k in range(64)]
    return Calibration(
        source=PUBLISHED,
        name=row.name,
        device="cuda",
        placement="colocated",
        framework="",
        model=row.model,
        batch_size=row.trajectories // row.group_size,
        group_size=row.group_size,
        train_gpus=row.gpus,
        rollout_gpus=row.gpus,
        gpus_per_engine=row.gpus_per_engine,
        turns=turns,
        turn_tokens=tuple(_quantile(tokens, q) for q in quantiles),
        tool_s=tuple(sorted(_tool_quantiles(row.tool_s))),
        constants=constants,
        step_s=math.fsum(row.phases.values()),
        power_ratio=row.power_ratio,
        watts_limit=row.watts_limit,
        gpu_bytes=row.gpu_bytes,
        unseen=(
            "generation at any other load, and whether the printed load was bound by memory or by arithmetic",
            f"training on fewer than {row.gpus} GPUs",
            "a weight sync between separate GPUs",
            "the spread of any figure: one row is one run",
        ),
    )


def rollout_scenario(row: Published, turns: tuple[int, ...], token_s: float, seed: int) -> Scenario:
    """The synchronous colocated row, of generation that no load slows."""
    generation: Law = LogNormal(max(token_s, 1e-12) * row.turn_tokens / math.exp(0.3**2 / 2), 0.3)
    return Scenario(
        durations=Composed(turns=turns, generation=generation, tool=Empirical(tuple(_tool_quantiles(row.tool_s)))),
        policy=Policy(mode=Mode.SYNCHRONOUS, colocated=True, in_flight=InFlight.PARTIAL),
        pools=Pools(workers=row.trajectories, train=Fixed(1.0)),
        batch_size=row.trajectories,
        horizon_updates=UPDATES,
        seed=seed,
    )


def _solve(row: Published, turns: tuple[int, ...]) -> tuple[float, float]:
    """Seconds a token, and what the batches' own chance makes of it (one row is a few steps' mean)."""

    def phase(token_s: float, seed: int, target: float = 0.0) -> float:
        found = simulate(rollout_scenario(row, turns, token_s, seed))
        return found.window_s / found.updates - 1.0 - target

    target = row.phases["generate"]
    tools_alone = sum(phase(0.0, seed) for seed in range(SEEDS)) / SEEDS
    if tools_alone >= target:
        raise SpecError(
            f"generate = {target:g}: the slowest of {row.trajectories} trajectories spends {tools_alone:.0f} s in "
            "tools alone; give other calls or tool seconds"
        )
    most = target / row.turn_tokens  # a trajectory has two turns or more
    found = [_root(partial(phase, seed=seed, target=target), most) for seed in range(SEEDS)]
    mean = math.fsum(found) / len(found)
    return mean, 2 * max(abs(value - mean) for value in found)


def _root(beyond: Callable[[float], float], high: float) -> float:
    """Where a rising function that is nearly a line crosses 0: false position, with a halving where it creeps."""
    low, at_low, at_high = 0.0, beyond(0.0), beyond(high)
    for turn in range(20):
        middle = low - at_low * (high - low) / (at_high - at_low) if turn % 3 < 2 else (low + high) / 2
        value = beyond(middle)
        if abs(value) < TOLERANCE_S:
            return middle
        if value < 0:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
    return (low + high) / 2


def _tool_quantiles(mean: float, count: int = 100) -> list[float]:
    """The preset's two tools, scaled to that mean: equally likely values."""
    preset = PRESETS[PRESET]
    made = []
    for tool, share in ((SEARCH, preset.search_share), (BROWSE, 1 - preset.search_share)):
        many = round(count * share)
        made += [preset.latency_s[tool].at((k + 0.5) / many) for k in range(many)]
    scale = mean / (math.fsum(made) / len(made))
    return [value * scale for value in made]


def _quantile(law: LogNormal, q: float) -> float:
    return law.median_s * math.exp(law.sigma * NormalDist().inv_cdf(q))


def _rounded(value: float) -> Constant:
    """A printed number: half a unit of its last digit either way; exactly 0 is none."""
    decimals = len(f"{value:.9f}".rstrip("0").partition(".")[2])
    half = ROUNDING / 10**decimals if value else 0.0
    return Constant(value=value, low=max(0.0, value - half), high=value + half, unit="s", source=PUBLISHED)


def _exact(value: float, unit: str) -> Constant:
    return Constant(value=value, low=value, high=value, unit=unit, source=PUBLISHED, note="not printed: taken as none")


def _check(row: Published) -> None:
    unknown = set(row.phases) - set(PHASES)
    if unknown:
        raise SpecError(f"phases: {min(unknown)}: allowed are {', '.join(PHASES)}")
    for name in ("generate", "train"):
        if name not in row.phases:
            raise SpecError(f"phases: {name} is missing")
    for name, value in row.phases.items():
        if not (math.isfinite(value) and value >= 0) or (value == 0 and name in ("generate", "train")):
            raise SpecError(f"phases: {name} = {value:g}: allowed are seconds above 0")
    for name, count in (
        ("batch", row.trajectories),
        ("group", row.group_size),
        ("gpus", row.gpus),
        ("gpus-per-engine", row.gpus_per_engine),
    ):
        if count < 1:
            raise SpecError(f"{name} = {count}: allowed is 1 and more")
    if row.trajectories % row.group_size:
        raise SpecError(f"group = {row.group_size}: {row.trajectories} trajectories are no whole number of groups")
    if row.gpu_bytes is not None and row.gpu_bytes <= 0:
        raise SpecError("gpu-gib: allowed is a number above 0")
    if row.gpus % row.gpus_per_engine:
        raise SpecError(f"gpus-per-engine = {row.gpus_per_engine}: {row.gpus} GPUs are no whole number of engines")
    for name, size in (("tool-s", row.tool_s), ("turn-tokens", row.turn_tokens), ("watts-limit", row.watts_limit)):
        if size is not None and not (math.isfinite(size) and size > 0):
            raise SpecError(f"{name} = {size:g}: allowed is a number above 0")
    low, high = row.calls
    if not 0 <= low <= high:
        raise SpecError(f"calls = {low}-{high}: allowed is LEAST-MOST, as 1-8")
