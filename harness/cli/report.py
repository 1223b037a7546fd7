"""`bench report RUN...`, or of a sweep: markdown tables and figures."""

import time
from contextlib import suppress
from pathlib import Path

import click

from harness.cli.output import file_problem, folder_named, traceback_into, writable
from harness.cli.page import tables, verdicts
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import BenchError, SpecError

_ELSEWHERE = "name another folder with -o"


@click.command("report", short_help="Write tables and figures of runs.")
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    metavar="DIRECTORY",
    callback=folder_named,
    help="Folder to write to. Default: the run's or sweep's own folder, or ./report-<utc> for several runs.",
)
@click.option("--print", "whole", is_flag=True, help="Print the whole report, not only its verdicts and first tables.")
@click.option("--price-per-gpu-hour", type=float, metavar="PRICE", help="Cost per step, trajectory and token.")
@click.option("--price-per-kwh", type=float, metavar="PRICE", help="Cost of the energy in them.")
@runs_dir_option
def command(
    runs: tuple[str, ...],
    out: Path | None,
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

    sweeps = [Path(run) for run in runs if is_sweep(Path(run))]
    if sweeps:
        if len(runs) > 1:
            raise SpecError(f"run = {sweeps[0]}: a sweep is reported alone, without other sweeps or runs")
        if price_per_gpu_hour is not None or price_per_kwh is not None:
            raise SpecError("price: a sweep's page has no cost; name the runs to be compared")
        from reports.matrix import write_matrix

        writable(out or sweeps[0], _ELSEWHERE)
        with traceback_into(sweeps[0], "writing the report", _ELSEWHERE):
            path = write_matrix(sweeps[0], out or sweeps[0])
        _show(path, whole)
        return
    folders = [find_run(run, runs_dir) for run in runs]
    from reports.report import write_report  # a second: pandas and matplotlib
    from results.cost import Prices

    prices = Prices(gpu_hour=price_per_gpu_hour, kwh=price_per_kwh).check()
    given = out or (folders[0] if len(folders) == 1 else None)
    existed = given is None or given.exists()
    out = given or _new_folder()
    writable(out, _ELSEWHERE)
    try:
        with traceback_into(folders[0], "writing the report", _ELSEWHERE):
            path = write_report(folders, out, prices)
    except BenchError:
        if given is None or not existed:
            with suppress(OSError):
                out.rmdir()  # made for nothing; one that holds something stays
        raise
    _show(path, whole)


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


def _show(path: Path, whole: bool) -> None:
    text = path.read_text(encoding="utf-8")
    if whole:
        click.echo(text)
    else:
        click.echo(verdicts(text))
        click.echo(tables(text))
        click.echo("--print shows all of it")
    click.echo(f"written: {path}")
