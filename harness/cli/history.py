"""`bench history`: a series of nights, and where it changed."""

from pathlib import Path

import click

from harness.cli.counted import counted
from harness.cli.output import file_problem, folder_named, writable
from harness.cli.runs import check_name, find_run, runs_dir_option

_ELSEWHERE = "name another folder with -o"


@click.command("history", short_help="Find where a series of nightly runs changed.")
@click.argument("folder", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False))
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--framework", metavar="NAME", help="Only cells of this framework.")
@click.option("--placement", metavar="NAME", help="Only cells of this placement.")
@click.option("--measure", "measures", multiple=True, metavar="NAME", help="Measures to look at, instead of the usual.")
@click.option(
    "--repository",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The checkout that the runs' commits are of: the page lists those between two nights.",
)
@click.option("-o", "--out", metavar="DIRECTORY", callback=folder_named, help="Folder for history.md and pictures.")
@runs_dir_option
def command(
    folder: Path,
    runs: tuple[str, ...],
    framework: str | None,
    placement: str | None,
    measures: tuple[str, ...],
    repository: Path | None,
    out: Path | None,
    runs_dir: Path,
) -> None:
    """Show the series of runs that DIRECTORY keeps, and where it changed; RUNs are added to it first.

    DIRECTORY holds a small Parquet per cell, as a baseline does: `bench history baselines` works too. A point is an
    occasion (runs within six hours, for a day at most); a change is named with the commits it lies between.
    """
    check_name("series", folder)
    folders = [find_run(run, runs_dir) for run in dict.fromkeys(runs)]
    from reports.histories import write_history
    from results.baselines import history
    from results.comparing.kept import measures_of

    if folders:
        try:
            new = history.add(folder, [measures_of(each) for each in folders])
        except OSError as error:
            raise file_problem(error, "the series can't be written", "name another folder") from None
        click.echo(f"{new} new run{'' if new == 1 else 's'} in {folder}")
    loaded = history.load(folder, framework, placement)
    tell = counted("cells looked at")
    cells = {}
    for cell, held in loaded.items():
        cells[cell] = [history.series(cell, held, name) for name in measures or history.SHOWN]
        if tell is not None:
            tell(len(cells), len(loaded))
    target = out or folder
    writable(target, _ELSEWHERE)
    try:
        path = write_history(cells, target, repository, counted("cells drawn"))
    except OSError as error:
        raise file_problem(error, "the page can't be written", _ELSEWHERE) from None
    click.echo(path.read_text(encoding="utf-8"))
    click.echo(f"written to {path}")
