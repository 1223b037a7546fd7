"""A report: one page of Markdown and its pictures, from one run or from several that were offered the same work."""

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from harness.protocol.errors import SpecError
from harness.protocol.unfinished import made_whole
from reports.picture import FOLDER, drawn_beside, left_out, placed_together
from results.prices import NO_PRICES, Prices

if TYPE_CHECKING:
    from reports.case import Case
    from results.store import RunTables


def write_report(
    run_dirs: Sequence[Path],
    out: Path,
    prices: Prices = NO_PRICES,
    *,
    html: Path | None = None,
    draw: bool = True,
    beside: bool = False,
) -> Path:
    """Writes `report.md` and `figures/` under `out`; the same runs give the same bytes.

    What an earlier report left there stays until this one is made, and for good where making it raises. A run that was
    not collected yet is collected first. `html`: a file that the same is written to as one page, with timelines and
    charts in place of the pictures; where only that is wanted, `draw` False leaves those pictures out. `beside`:
    pictures are drawn by processes of their own meanwhile, for which the caller's main module is imported again there
    (so it must be one that does nothing when it is imported).

    Returns:
        The path of `report.md`.

    Raises:
        SpecError: no run, a run twice, not a run folder, or runs that were offered different work (names the fields),
            or that were imported.
        OSError: `out` cannot be written.
    """
    if not run_dirs:
        raise SpecError("no run given: give one run folder, or several to compare, as `bench list` shows them")
    places = [path.resolve() for path in run_dirs]
    for place in places:
        if places.count(place) > 1:
            raise SpecError(f"{place}: given twice; give each run once")
    path = out / "report.md"
    with ExitStack() as making, placed_together(out / FOLDER):
        elsewhere = drawn_beside() if beside else nullcontext()
        with elsewhere, left_out(lambda name: not draw and _drawn_by_the_page(name)):
            from results.memory import small_pages  # with Arrow: imported while the processes that draw start

            with small_pages():
                cases, lines = _page(run_dirs, out / FOLDER, prices)
        from reports.places import without_places

        lines = without_places(lines, {case.run.run_id: place for case, place in zip(cases, places, strict=True)})
        out.mkdir(parents=True, exist_ok=True)
        making.enter_context(made_whole(path)).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if html is not None:
        from reports.html.page import write_html  # with a library of templates that no other report needs

        write_html(lines, out, html, cases)
    return path


def _page(run_dirs: Sequence[Path], folder: Path, prices: Prices) -> "tuple[list[Case], list[str]]":
    """The runs and the page's lines."""
    from reports.case import Case

    if len(run_dirs) == 1:
        from reports.drawing import Drawing
        from reports.run_page import single
        from results.importing.imported import is_imported

        drawn: list[Drawing] = []

        def watch(run: "RunTables") -> Drawing | None:
            if not is_imported(run.spec):  # its page has no picture
                drawn.append(Drawing(run, folder))
            return drawn[0] if drawn else None

        case = Case.load(run_dirs[0], watch)
        return [case], single(case, folder, prices, *drawn)
    from reports.comparable import refuse_imported
    from reports.compare import comparison

    cases = [Case.load(path) for path in run_dirs]
    refuse_imported(cases)
    return cases, comparison(cases, folder, prices)


def _drawn_by_the_page(picture: str) -> bool:
    from reports.html.page import draws

    return draws(picture)
