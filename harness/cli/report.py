"""`bench report RUN...`, or of a sweep: markdown tables and figures, or one HTML page."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from harness.cli.output import file_problem, folder_named, traceback_into, writable
from harness.cli.page import tables, verdicts
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import BenchError, SpecError

_ELSEWHERE = "name another folder with -o"
_PAGE = "report.html"


def _out(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """A folder; or a file, where the name says that it is a page."""
    if value is None or not value.endswith(".html") or Path(value).is_dir():
        return folder_named(ctx, parameter, value)
    folder_named(ctx, parameter, str(Path(value).parent))
    return Path(value)


@click.command("report", short_help="Write tables and figures of runs.")
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    metavar="DIRECTORY",
    callback=_out,
    help="Folder to write to. Default: the run's or sweep's own folder, or ./report-<utc> for several runs. "
    "With --html, FILE.html writes that file and nothing else.",
)
@click.option("--html", is_flag=True, help=f"Write one page too ({_PAGE}): interactive, in a single file, no network.")
@click.option("--print", "whole", is_flag=True, help="Print the whole report, not only its verdicts and first tables.")
@click.option("--price-per-gpu-hour", type=float, metavar="PRICE", help="Cost per step, trajectory and token.")
@click.option("--price-per-kwh", type=float, metavar="PRICE", help="Cost of the energy in them.")
@runs_dir_option
def command(
    runs: tuple[str, ...],
    out: Path | None,
    html: bool,
    whole: bool,
    price_per_gpu_hour: float | None,
    price_per_kwh: float | None,
    runs_dir: Path,
) -> None:
    """Write report.md and figures of one run, of several side by side, or of a sweep.

    RUN is a run folder, a name under the runs folder, or `latest`; or the folder of one sweep. Runs of different work
    are not compared.
    """
    from harness.sweep.folder import is_sweep

    page = out if out is not None and out.suffix == ".html" and not out.is_dir() else None
    if page is not None and not html:
        raise SpecError(f"-o = {page}: the name of a page, and --html is not given; add it, or name a folder")
    sweeps = [Path(run) for run in runs if is_sweep(Path(run))]
    if sweeps:
        if len(runs) > 1:
            raise SpecError(f"run = {sweeps[0]}: a sweep is reported alone, without other sweeps or runs")
        if price_per_gpu_hour is not None or price_per_kwh is not None:
            raise SpecError("price: a sweep's page has no cost; name the runs to be compared")
        from reports.html.page import write_html
        from reports.matrix import write_matrix

        with _folder(page, out or sweeps[0]) as folder:
            writable(folder, _ELSEWHERE)
            with traceback_into(sweeps[0], "writing the report", _ELSEWHERE):
                path = write_matrix(sweeps[0], folder)
                if html:
                    lines = path.read_text(encoding="utf-8").splitlines()
                    page = write_html(lines, folder, page or folder / _PAGE)
            _show(path, whole, page)
        return
    folders = [find_run(run, runs_dir) for run in runs]
    from reports.report import write_report
    from results.prices import Prices

    prices = Prices(gpu_hour=price_per_gpu_hour, kwh=price_per_kwh).check()
    given = out or (folders[0] if len(folders) == 1 else None)
    existed = given is None or given.exists()
    with _folder(page, given) as folder:
        writable(folder, _ELSEWHERE)
        if page is not None:
            writable(page.parent, _ELSEWHERE)
        elif html:
            page = folder / _PAGE
        try:
            with traceback_into(folders[0], "writing the report", _ELSEWHERE):
                whole_page = page is None or page.parent == folder
                path = write_report(folders, folder, prices, html=page, draw=whole_page, beside=True)
        except BenchError:
            if given is None or not existed:
                with suppress(OSError):
                    folder.rmdir()  # made for nothing; one that holds something stays
            raise
        _show(path, whole, page)


@contextmanager
def _folder(page: Path | None, given: Path | None) -> Iterator[Path]:
    """The folder to write to: the one given, else a new one; one that goes again where only the page is wanted."""
    if page is None:
        yield given or _new_folder()
        return
    with tempfile.TemporaryDirectory(prefix="bench-report-") as scratch:
        yield Path(scratch)


def _new_folder() -> Path:
    """A folder of its own for every comparison: none is written over another."""
    stem = f"report-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    number = 1
    while True:
        path = Path(stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise file_problem(error, "nothing can be written", _ELSEWHERE) from None
        return path


def _show(path: Path, whole: bool, page: Path | None) -> None:
    text = path.read_text(encoding="utf-8")
    if whole:
        click.echo(text)
    else:
        click.echo(verdicts(text))
        click.echo(tables(text))
        click.echo("--print shows all of it")
    alone = page is not None and page.parent != path.parent
    click.echo(f"written: {page if alone else path}")
    if page is not None and not alone:
        click.echo(f"written: {page}")
