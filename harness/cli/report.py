"""`bench report RUN...`: markdown tables and figures."""

from pathlib import Path

import click

from harness.cli.output import traceback_into
from harness.cli.runs import find_run, runs_dir_option


@click.command("report", short_help="Write tables and figures of runs.")
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to. Default: the run's own folder, or ./report for several runs.",
)
@runs_dir_option
def command(runs: tuple[str, ...], out: Path | None, runs_dir: Path) -> None:
    """Write report.md and figures of one run, or of several side by side.

    RUN is a run folder, a name under the runs folder, or `latest`. Runs of different work are not compared.
    """
    folders = [find_run(run, runs_dir) for run in runs]
    from reports.report import write_report  # a second: pandas and matplotlib

    out = out or (folders[0] if len(folders) == 1 else Path("report"))
    with traceback_into(folders[0], "writing the report"):
        path = write_report(folders, out)
    click.echo(path.read_text(encoding="utf-8"))
    click.echo(f"written: {path}")
