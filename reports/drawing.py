"""The pictures on the page of one run, and what stands beside them."""

from collections.abc import Sequence
from pathlib import Path

from reports import figures
from reports.case import Case, steps_in
from reports.learning import learning_section
from reports.markdown import plural
from reports.picture import Picture, remove
from reports.provenance import foot
from reports.waterfall import STEM as WATERFALL
from reports.waterfall import bounds_lines
from results.account import Account
from results.bounds import bounds
from results.store import RunTables
from results.watch import Watch
from results.window import Window


class Drawing(Watch):
    """Draws a run's pictures as soon as what each shows is known: in other processes, while the figures are computed.

    Its attributes are there once it was told of the window and of the time account. Where pictures are not drawn by
    other processes (`reports.picture.drawn_beside`), they are drawn as it is told.

    Attributes:
        timeline: of a few steps.
        straggler: of one batch.
        learning: the section on the course of the reward, as `reports.learning` has it.
        units: the time account, unit by unit; None without an account.
        bounds: the lines on what would help, with the waterfall; none without an account.
    """

    timeline: Picture
    straggler: Picture
    learning: list[str]
    units: Picture | None
    bounds: list[str]

    def __init__(self, run: RunTables, folder: Path) -> None:
        """`folder`: where the pictures go."""
        self._run = run
        self._folder = folder

    @classmethod
    def of(cls, case: Case, folder: Path) -> "Drawing":
        """That of a run whose figures are there."""
        made = cls(case.run, folder)
        made._steps(case.steps)
        made.account(case.figures.account)
        return made

    def window(self, window: Window | None) -> None:
        self._steps(steps_in(self._run, window))

    def _steps(self, steps: Sequence[int]) -> None:
        spans = figures.spans_shown(self._run)
        self.timeline = figures.timeline_picture(self._run, steps, self._folder, spans=spans)
        self.straggler = figures.straggler_picture(self._run, steps, self._folder, spans=spans)
        self.learning = learning_section([self._run.spec.placement.value], [self._run], self._folder)

    def account(self, account: Account | None) -> None:
        self.units, self.bounds = None, []
        if account is None:
            remove(figures.ACCOUNT, self._folder)
            remove(WATERFALL, self._folder)
            return
        self.units = figures.account_picture(self._run, account, self._folder)
        line = foot(self._run, f"n = {plural(account.steps, 'step')}")
        self.bounds = bounds_lines(bounds(self._run.spec, account), line, self._folder)
