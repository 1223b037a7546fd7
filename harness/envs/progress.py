"""What a build says while it goes on: events for a caller, or a bar or plain lines on stderr."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Stage(StrEnum):
    """Where a build is; in this order, and `waiting` only when another process builds the same environment."""

    WAITING = "waiting"
    PLAN = "plan"
    VENV = "venv"
    DOWNLOAD = "download"
    INSTALL = "install"
    CHECK = "check"
    SHARE = "share"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProgress:
    """One piece of news. `done` and `total` count packages; both are 0 where nothing is counted."""

    environment: str
    stage: Stage
    message: str
    done: int = 0
    total: int = 0


Report = Callable[[BuildProgress], None]

_PLAIN_STEPS = 10  # without a terminal: a line for each tenth of the packages,
_PLAIN_PAUSE_S = 20.0  # and one when nothing was said for this long


class Display:
    """Shows a build on stderr: a bar on a terminal, else plain lines. Call it with each `BuildProgress`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._console = Console(file=self._stream, soft_wrap=True, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said: tuple[Stage | None, int, float] = (None, 0, 0.0)  # stage, steps done, time

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def __call__(self, news: BuildProgress) -> None:
        """Shows one piece of news."""
        if news.total and self._console.is_terminal:
            self._show_bar(news)
        elif news.total:
            self._show_line(news)
        else:
            self._stop()
            self._console.print(f"{news.environment}: {news.message}", markup=False)

    def _show_bar(self, news: BuildProgress) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:.0f}/{task.total:.0f} packages"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task(news.message, total=news.total)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, description=news.message, completed=news.done, total=news.total)

    def _show_line(self, news: BuildProgress) -> None:
        stage, step, at = self._said
        now = time.monotonic()
        reached = news.done * _PLAIN_STEPS // news.total
        if stage is news.stage and reached == step and now < at + _PLAIN_PAUSE_S:
            return
        self._said = (news.stage, reached, now)
        self._console.print(f"{news.environment}: {news.message} {news.done}/{news.total} packages", markup=False)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
