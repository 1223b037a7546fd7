"""What a person sees while a run goes on: a table that stays in place, or plain lines when it is not a terminal."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.progress import Progress

REFRESH_S = 0.5
GONE = contextlib.suppress(OSError, ValueError)  # a terminal or pipe that was closed must not end the run
START_UP = "starting engine and trainer (imports take a minute on CPU)"
FOLLOW = "bench logs latest -f, in another terminal, shows what they say"
Watts = Callable[[], float | None]  # power of all GPUs now; None without a GPU or before the first sample


class Display(Protocol):
    """Where a run's state is shown."""

    def stage(self, text: str) -> None:
        """The run enters a new stage: preparing, starting, stopping, collecting."""

    def update(self, progress: Progress, steps: int, watts: float | None) -> None:
        """Shows the state; cheap enough to be called several times a second."""

    def close(self) -> None:
        """Gives the terminal back."""


class SilentDisplay:
    """Shows nothing."""

    def stage(self, text: str) -> None:
        """Nothing."""

    def update(self, progress: Progress, steps: int, watts: float | None) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainDisplay:
    """One line per step and per stage: for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.begin = time.monotonic()
        self._shown = 0

    def stage(self, text: str) -> None:
        """One line."""
        self._line(text)

    def update(self, progress: Progress, steps: int, watts: float | None) -> None:
        """One line for each step since the last call (the newest state if several ended at once)."""
        if progress.steps_done > self._shown:
            self._shown = progress.steps_done
            rows = [f"{name} {text}" for name, text in describe(progress, steps, watts) if name != "phase"]
            self._line(" · ".join(rows))

    def close(self) -> None:
        """Nothing is held."""

    def _line(self, text: str) -> None:
        with GONE:
            print(f"[{time.monotonic() - self.begin:7.1f} s] {text}", file=self.stream, flush=True)


class LiveDisplay:
    """A small table, redrawn in place twice a second."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._drawn = float("-inf")
        self.begin = time.monotonic()

    def stage(self, text: str) -> None:
        """A line above the table."""
        with GONE:
            self.console.print(Text(text))

    def update(self, progress: Progress, steps: int, watts: float | None) -> None:
        """Redraws when the last drawing is old enough."""
        now = time.monotonic()
        if now - self._drawn < REFRESH_S:
            return
        self._drawn = now
        table = Table.grid(padding=(0, 2))
        for name, text in self._rows(progress, steps, watts, now - self.begin):
            table.add_row(Text(name, style="dim"), Text(text))
        with GONE:
            if self._live is None:
                self._live = Live(table, console=self.console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(table, refresh=True)

    def _rows(self, progress: Progress, steps: int, watts: float | None, elapsed_s: float) -> list[tuple[str, str]]:
        elapsed = ("elapsed", f"{int(elapsed_s) // 60}:{int(elapsed_s) % 60:02d}")
        if not progress.working:
            return [("start-up", START_UP), elapsed, ("logs", FOLLOW)]
        return [*describe(progress, steps, watts), elapsed]

    def close(self) -> None:
        """Takes the table away."""
        if self._live is not None:
            with GONE:
                self._live.stop()
            self._live = None


def make_display(stream: TextIO | None = None) -> Display:
    """The display that fits the stream (standard error unless given: standard output is for results)."""
    stream = stream or sys.stderr
    if stream.isatty():
        return LiveDisplay(Console(file=stream))
    return PlainDisplay(stream)


def describe(progress: Progress, steps: int, watts: float | None) -> list[tuple[str, str]]:
    """The rows shown, name and text; what is not known is left out, never shown as 0."""
    now_ns = time.monotonic_ns()
    rows = [("step", f"{progress.steps_done}/{steps}")]
    if progress.median_step_s is not None:
        rows[0] = ("step", f"{progress.steps_done}/{steps} (median {progress.median_step_s:.2f} s)")
    if progress.phase is not None:
        rows.append(("phase", progress.phase))
    done = f"{progress.trajectories_done} done"
    if progress.trajectories_failed:
        done += f" ({progress.trajectories_failed} failed)"
    rows.append(("trajectories", f"{done}, {progress.in_flight} in flight"))
    rows.append(("tool calls waiting", f"~{progress.tools_waiting}"))
    rate = progress.tokens_per_s(now_ns)
    if rate is not None:
        rows.append(("tokens/s", f"{rate:,.0f}"))
    if progress.staleness is not None:
        mean, most = progress.staleness
        rows.append(("staleness", f"mean {mean:.2f}, max {most}"))
    if watts is not None:
        rows.append(("power", f"{watts:,.0f} W"))
    return rows
