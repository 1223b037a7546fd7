"""`bench report RUN...`, or of a sweep: markdown tables and figures."""

from pathlib import Path

import click

from harness.cli.output import traceback_into
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import SpecError


@click.command("report", short_help="Write tables and figures of runs.")
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to. Default: the run's or sweep's own folder, or ./report for several runs.",
)
@runs_dir_option
def command(runs: tuple[str, ...], out: Path | None, runs_dir: Path) -> None:
    """Write report.md and figures of one run, of several side by side, or of a sweep.

    RUN is a run folder, a name under the runs folder, or `latest`; or the folder of one sweep. Runs of different work
    are not compared.
    """
    from harness.sweep.folder import is_sweep

    sweeps = [Path(run) for run in runs if is_sweep(Path(run))]
    if sweeps:
        if len(runs) > 1:
            raise SpecError(f"run = {sweeps[0]}: a sweep is reported alone, without other sweeps or runs")
        from reports.matrix import write_matrix

        with traceback_into(sweeps[0], "writing the report"):
            _show(write_matrix(sweeps[0], out or sweeps[0]))
        return
    folders = [find_run(run, runs_dir) for run in runs]
    from reports.report import write_report  # a second: pandas and matplotlib

    out = out or (folders[0] if len(folders) == 1 else Path("report"))
    with traceback_into(folders[0], "writing the report"):
        path = write_report(folders, out)
    _show(path)


def _show(path: Path) -> None:
    click.echo(path.read_text(encoding="utf-8"))
    click.echo(f"written: {path}")
