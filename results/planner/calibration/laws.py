"""What trajectories are made of: turns, tokens of a turn, seconds of a tool call.

With `--load fixed` a run's trajectories are drawn from its preset, and so will be those of the run that a plan is for.
Then the preset's own law is used, from plans of a seed that no run has: a run of a few steps is a small sample of it,
whose mean work is some percent off. Otherwise (`--load live`, imported logs) there is only what was seen.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.protocol.errors import SpecError
from harness.protocol.spec import Load
from results.store import RunTables
from results.tool_figures import CANCELLED
from results.tracks import floats, ints
from results.window import Window
from workloads.deep_research.plan import draw_plan
from workloads.deep_research.presets import preset_of

PLANNED, SEEN = "planned", "seen"
PLANS = 2_048
PLANS_SEED = 0x9E3779B97F4A7C15  # of no run: those have whole numbers that a person types
SAMPLES = 1_024  # of a law that are kept: quantiles, when there are more
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """Samples, each equally likely; `of`: PLANNED or SEEN."""

    of: str
    turns: tuple[int, ...]
    turn_tokens: tuple[float, ...]
    tool_s: tuple[float, ...]


def laws_of(run: RunTables, window: Window, turn_tokens: Floats) -> Laws:
    """Those of the run's work. `turn_tokens`: of the turns that count.

    Raises:
        SpecError: no trajectory was trained on.
    """
    lives = run.frame("trajectories")
    used = lives[lives["step_consumed"].notna() & (lives["turns"] > 0)]
    if used.empty:
        raise SpecError(f"{run.run_id}: no trajectory was trained on")
    took, over = _tools(run, window)
    planned = _planned(run)
    if planned is None or over is None:
        tools = _kept(took) if took.size else (0.0,)
        return Laws(of=SEEN, turns=tuple(int(n) for n in used["turns"]), turn_tokens=_kept(turn_tokens), tool_s=tools)
    turns, tokens, latencies = planned
    tools = _kept(np.maximum(latencies + over, 0.0)) if latencies.size else (0.0,)
    return Laws(of=PLANNED, turns=turns, turn_tokens=_kept(tokens), tool_s=tools)


def _tools(run: RunTables, window: Window) -> tuple[Floats, float | None]:
    """Seconds of the calls that ended in the window, and how much longer than planned they took on average.

    Calls that were cut short say how long someone waited, not how long a tool takes. None: not all were planned.
    """
    calls = run.tables["tool_calls"]
    status = np.array([one == CANCELLED for one in calls.column("status").to_pylist()], dtype=np.bool_)
    keep = window.holds(ints(calls.column("end_ns"))) & ~status
    took: Floats = (ints(calls.column("end_ns")) - ints(calls.column("start_ns")))[keep] / 1e9
    planned = floats(calls.column("planned_ns"))[keep] / 1e9
    if np.isnan(planned).any():
        return took, None
    return took, float((took - planned).mean()) if took.size else 0.0


def _planned(run: RunTables) -> tuple[tuple[int, ...], Floats, Floats] | None:
    """Turns, tokens and latencies by the preset's law; None where the run's work is not drawn from one."""
    spec = run.spec
    if spec.load is not Load.FIXED:
        return None
    try:
        preset = preset_of(spec)
    except SpecError:
        return None
    plans = [draw_plan(preset, PLANS_SEED, k, 0, spec.latency_scale) for k in range(PLANS)]
    turns = tuple(len(plan.turns) for plan in plans)
    tokens = np.array([turn.generated_tokens for plan in plans for turn in plan.turns], dtype=np.float64)
    tools = [turn.latency_s for plan in plans for turn in plan.turns if turn.latency_s is not None]
    return turns, tokens, np.array(tools, dtype=np.float64)


def _kept(values: Floats) -> tuple[float, ...]:
    if values.size > SAMPLES:
        values = np.quantile(values, (np.arange(SAMPLES) + 0.5) / SAMPLES)
    return tuple(float(f"{value:.6g}") for value in values)
