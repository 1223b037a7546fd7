"""The steady window: the stretch of a run that every rate and share is taken over, boundary to boundary of steps."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.protocol.phases import Phase
from harness.protocol.spec import Placement
from results.importing.imported import LABEL, is_imported
from results.intervals import Ns, covered, grid_of, level
from results.stats import halves_differ, quantile
from results.store import RunTables
from results.tracks import FOREVER, Tracks

ENOUGH_STEPS = 10
TRAJECTORIES_LONG = 3.0  # the window is at least so many p95 trajectory durations
DRIFT = 0.10  # the halves differ by no more than this share
ENDINGS = ("the last step has ended", "end of the run")  # why of a gate that closes for good
IN_FLIGHT = 0.90  # of the cap, reached before an async window begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From the end of step `after_step` to the end of step `last_step`; gaps between steps are inside. Times in ns."""

    start_ns: int
    end_ns: int
    after_step: int
    last_step: int
    boundaries_ns: tuple[int, ...]  # ends of the steps from `after_step` to `last_step` that were recorded
    not_steady: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps inside."""
        return len(self.boundaries_ns) - 1

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def step_seconds(self) -> npt.NDArray[np.float64]:
        """Boundary to boundary seconds of each step inside."""
        return np.diff(np.asarray(self.boundaries_ns, dtype=np.int64)).astype(np.float64) / 1e9

    def holds(self, times: Ns) -> npt.NDArray[np.bool_]:
        """Which instants lie in the window, its end included: a step belongs to the window it ends in."""
        return (times > self.start_ns) & (times <= self.end_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The window, or the reason why there is none."""

    window: Window | None
    reason: str | None = None


def steady_window(run: RunTables, tracks: Tracks) -> Steady:
    """The steady window of a run.

    Synchronous placements: from the end of step max(1, warmup_steps) to the end of the last step. Async: from the
    end of the first step >= max(max_staleness + 1, warmup_steps) such that every trajectory it consumed started
    after update 1 became visible (weight sync of version 1 ended on every engine) and trajectories in flight have
    reached 90 % of their cap (or admission has closed for capacity), to the end of the last step that ended before
    admission closed for good. Where no cap was recorded, the most that were ever in flight stand for it.
    """
    steps = run.frame("steps").sort_values("end_ns").drop_duplicates("step", keep="last").sort_values("step")
    if steps.empty:
        return Steady(window=None, reason="no step ended")
    number = steps["step"].to_numpy(np.int64)
    ends = steps["end_ns"].to_numpy(np.int64)
    spec = run.spec
    first = max(1, spec.warmup_steps)
    last = int(number[-1])
    notes: list[str] = []
    if is_imported(spec):
        notes.append(f"{LABEL}: whether the pipeline was full is not known")
    elif spec.placement is Placement.ASYNC:
        first = max(spec.max_staleness + 1, spec.warmup_steps)
        begin = _async_begin(run, tracks, number, ends, first)
        if isinstance(begin, str):
            return Steady(window=None, reason=begin)
        first = begin
        closed = admission_closed_ns(run.frame("gates"))
        before = number[ends <= closed] if closed is not None else number
        last = int(before[-1]) if before.size else -1
    inside = (number >= first) & (number <= last)
    before_what = " and before admission closed" if last < int(number[-1]) else ""
    if first not in number:
        return Steady(
            window=None,
            reason=f"too few steps: the window begins with the end of step {first}, the run recorded {number.size}",
        )
    if inside.sum() < 2:
        return Steady(
            window=None,
            reason=f"too few steps: the window begins with the end of step {first}, none ended after it{before_what}",
        )
    missing = last - first + 1 - int(inside.sum())
    if missing:
        notes.append(f"{missing} {'step' if missing == 1 else 'steps'} of the window without a record")
    boundaries = tuple(int(end) for end in ends[inside])
    window = Window(
        start_ns=boundaries[0], end_ns=boundaries[-1], after_step=first, last_step=last, boundaries_ns=boundaries
    )
    notes.extend(_not_steady(window, tracks))
    return Steady(
        window=Window(
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            after_step=first,
            last_step=last,
            boundaries_ns=boundaries,
            not_steady=tuple(notes),
        )
    )


def admission_closed_ns(gates: pd.DataFrame) -> int | None:
    """When admission closed for good, or None when it never did.

    The last gate event is a close that nothing reopened. A gate that closed because in flight = cap is how a full
    pipeline works, and a run may simply end before it reopens: that is no drain. A close that says it is the last
    (`ENDINGS`) is final, whatever a framework's own admission does after it.
    """
    if gates.empty:
        return None
    gates = gates.sort_values("mono_ns", kind="stable")
    said = gates[~gates["open"].astype(bool) & gates["why"].isin(list(ENDINGS))]
    if not said.empty:
        return int(said["mono_ns"].iloc[0])
    final = gates.iloc[-1]
    full = pd.notna(final["in_flight"]) and pd.notna(final["cap"]) and final["in_flight"] >= final["cap"]
    return None if final["open"] or full else int(final["mono_ns"])


def in_flight_means(tracks: Tracks, boundaries: Ns) -> npt.NDArray[np.float64]:
    """Mean trajectories in flight between neighbouring boundaries (started, not ended), weighted by time."""
    low, high = int(boundaries[0]), int(boundaries[-1])
    grid = grid_of(low, high, tracks.life_start, tracks.life_end, boundaries)
    weight = level(tracks.life_start, tracks.life_end, grid) * np.diff(grid).astype(np.float64)
    total = np.concatenate(([0.0], np.cumsum(weight)))
    at = total[np.searchsorted(grid, boundaries)]
    return np.asarray(np.diff(at) / np.maximum(np.diff(boundaries), 1), dtype=np.float64)


def _async_begin(run: RunTables, tracks: Tracks, number: Ns, ends: Ns, first: int) -> int | str:
    """The step whose end begins an async window, or why there is none."""
    syncs = run.frame("weight_syncs")
    visible = syncs.loc[syncs["version"] == 1, "end_ns"]
    if visible.empty:
        return "update 1 never became visible to the rollout side: no weight sync of version 1 was recorded"
    update_one = int(visible.max())
    lives = run.frame("trajectories")[["step_consumed", "start_ns"]]
    consumed = lives[lives["step_consumed"].notna()]
    oldest = consumed.groupby("step_consumed")["start_ns"].min()
    reached = _full_ns(run.frame("gates"), tracks)
    if reached is None:
        return "trajectories in flight never reached 90 % of their cap, and admission never closed for capacity"
    for step, end in zip(number.tolist(), ends.tolist(), strict=True):
        if step >= first and step in oldest.index and int(oldest.loc[step]) >= update_one and end >= reached:
            return int(step)
    return (
        f"too few steps: no step >= {first} of the {number.size} recorded trained only on trajectories started after"
        " update 1 became visible, with 90 % of the cap in flight"
    )


def _full_ns(gates: pd.DataFrame, tracks: Tracks) -> int | None:
    """The first instant at which the pipeline was full: 90 % of the cap in flight, or admission closed for capacity.

    Under a staleness rule trajectories that wait to be trained on count too, so that fewer than the cap may be in
    flight and nothing more be admitted: a closed gate is the rule's own word that it is full.
    """
    times: list[int] = []
    shut = gates.loc[~gates["open"].astype(bool), "mono_ns"]
    if len(shut) > 1:  # the last close is the end of the run
        times.append(int(shut.min()))
    told = gates[gates["in_flight"].notna() & gates["cap"].notna()]
    hit = told.loc[told["in_flight"] >= IN_FLIGHT * told["cap"], "mono_ns"]
    if not hit.empty:
        times.append(int(hit.min()))
    if tracks.life_start.size:
        grid = grid_of(int(tracks.life_start.min()), FOREVER, tracks.life_start, tracks.life_end)
        count = level(tracks.life_start, tracks.life_end, grid)
        cap = float(told["cap"].max()) if not told.empty else float(count.max())
        reached = np.flatnonzero(count >= IN_FLIGHT * cap)
        if reached.size:
            times.append(int(grid[reached[0]]))
    return min(times, default=None)


def _not_steady(window: Window, tracks: Tracks) -> list[str]:
    notes = []
    if window.steps < ENOUGH_STEPS:
        notes.append(f"{window.steps} {'step' if window.steps == 1 else 'steps'}, fewer than {ENOUGH_STEPS}")
    boundaries = np.asarray(window.boundaries_ns, dtype=np.int64)
    ended = window.holds(tracks.life_end)
    p95 = quantile((tracks.life_end[ended] - tracks.life_start[ended]) / 1e9, 0.95)
    if p95 and (times := window.seconds / p95) < TRAJECTORIES_LONG:
        notes.append(
            f"the window is {_below(times, TRAJECTORIES_LONG)} x the p95 trajectory, less than {TRAJECTORIES_LONG:g} x"
        )
    if halves_differ(in_flight_means(tracks, boundaries), DRIFT):
        notes.append("trajectories in flight differ by more than 10 % between the halves")
    if halves_differ(window.step_seconds, DRIFT):
        notes.append("step times differ by more than 10 % between the halves")
    for phase in (Phase.CHECKPOINT, Phase.EVAL):
        spans = tracks.leaves[tracks.leaves["phase"] == phase.value]
        starts, ends = spans["start_ns"].to_numpy(np.int64), spans["end_ns"].to_numpy(np.int64)
        inside = covered(starts, ends, boundaries[[0, -1]])
        if inside[1] > inside[0]:
            notes.append(f"{phase.value} inside ({(inside[1] - inside[0]) / 1e9:.1f} s)")
    return notes


def _below(value: float, bound: float) -> str:
    """A value below a bound, with one decimal or as many as it takes to be below it as printed too."""
    for decimals in range(1, 17):
        text = f"{value:.{decimals}f}"
        if float(text) < bound:
            return text
    return repr(value)
