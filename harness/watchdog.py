"""When a run has gone on too long without moving, or too long altogether."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.progress import Progress
from harness.protocol.errors import SpecError

STARTUP_S = 30 * 60.0
STALL_S = 5 * 60.0
STALL_STEPS = 10  # times the median step
STALL_TRAJECTORIES = 3  # times the longest planned trajectory
STARTUP_VARIABLE = "BENCH_STARTUP_S"
STALL_VARIABLE = "BENCH_STALL_S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds a run may take. `stall_s` set means exactly that; None means as the steps and the plan ask for."""

    startup_s: float = STARTUP_S
    stall_s: float | None = None
    timeout_s: float | None = None
    longest_trajectory_s: float | None = None

    @classmethod
    def of(
        cls, timeout_s: float | None, longest_trajectory_s: float | None, environ: Mapping[str, str] = os.environ
    ) -> "Limits":
        """The limits of a run; BENCH_STARTUP_S and BENCH_STALL_S (seconds) replace the usual ones.

        Raises:
            SpecError: a variable is not a positive number.
        """
        return cls(
            startup_s=_seconds(environ, STARTUP_VARIABLE) or STARTUP_S,
            stall_s=_seconds(environ, STALL_VARIABLE),
            timeout_s=timeout_s,
            longest_trajectory_s=longest_trajectory_s,
        )

    def of_virtual_time(self) -> "Limits":
        """The limits, which are of real time, for a run whose steps take none of it."""
        return replace(self, stall_s=self.stall_s or STALL_S)

    def stall_limit_s(self, median_step_s: float | None) -> float:
        """Seconds without movement that are too many, given the steps so far."""
        if self.stall_s is not None:
            return self.stall_s
        by_step = STALL_STEPS * (median_step_s or 0.0)
        by_trajectory = STALL_TRAJECTORIES * (self.longest_trajectory_s or 0.0)
        return max(STALL_S, by_step, by_trajectory)


@dataclass(frozen=True, slots=True)
class Overrun:
    """A limit that was passed."""

    status: str  # timeout | stalled
    reason: str


class Watchdog:
    """Judges one run; times are seconds of one monotonic clock."""

    def __init__(self, limits: Limits, started: float) -> None:
        self.limits = limits
        self.started = started
        self._moved = 0
        self._moved_at = started

    def check(self, progress: Progress, now: float) -> Overrun | None:
        """The limit that the run has passed by `now`, or None. Movement is anything begun or ended, not a metric."""
        if progress.moved != self._moved:
            self._moved, self._moved_at = progress.moved, now
        ran = now - self.started
        timeout = self.limits.timeout_s
        if timeout is not None and ran > timeout:
            return Overrun("timeout", f"the run took longer than timeout = {timeout:g} s")
        if not progress.working:
            if ran > self.limits.startup_s:
                return Overrun(
                    "stalled",
                    f"no step and no trajectory began within {self.limits.startup_s:g} s of the start "
                    f"(the start-up limit; {STARTUP_VARIABLE} changes it)",
                )
            return None
        limit = self.limits.stall_limit_s(progress.median_step_s)
        if now - self._moved_at > limit:
            return Overrun("stalled", f"nothing began or ended for {limit:.0f} s ({STALL_VARIABLE} changes this limit)")
        return None


def _seconds(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise SpecError(f"{name} = {text}: allowed is a number of seconds above 0")
    return value
