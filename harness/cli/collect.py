"""`bench collect RUN`: Parquet tables from what a run recorded."""

from pathlib import Path

import click

from harness.cli.output import traceback_into
from harness.cli.runs import find_run, runs_dir_option


@click.command("collect", short_help="Write a run's tables again.")
@click.argument("run")
@runs_dir_option
def command(run: str, runs_dir: Path) -> None:
    """Write a run's tables again from its events and samples.

    RUN is a run folder, a name under the runs folder, or `latest`. Works for a killed run too, and as often as wanted.
    """
    folder = find_run(run, runs_dir)
    from harness.cli.figures import keep_figures
    from results.collect import collect

    with traceback_into(folder, "collecting", "copy the run to a folder that can be written, and collect it there"):
        collected = collect(folder)
        figures = keep_figures(collected)
    counts = [f"{name} {table.num_rows}" for name, table in collected.tables.items() if table.num_rows]
    known = sum(figure.value is not None for figure in figures.figures.values())
    click.echo(f"{folder / 'tables'}: {', '.join(counts)}, metrics {known} known of {len(figures.figures)}")
