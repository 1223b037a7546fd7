"""`bench publish`: pages whose tables come from committed Parquet."""

from pathlib import Path

import click

from harness.cli.output import file_problem, folder_named, traceback_into, writable
from harness.cli.runs import find_run, runs_dir_option


@click.command("publish", short_help="Write tables of chosen runs into pages, from committed Parquet.")
@click.option(
    "--folder",
    metavar="DIRECTORY",
    callback=folder_named,
    default="published",
    show_default=True,
    help="Holds runs.parquet, the figures, and tables.toml, which names the tables and their pages.",
)
@click.option("--add", "added", metavar="RUN", multiple=True, help="Put this run's figures in first. Several times.")
@click.option("--drop", metavar="RUN_ID", multiple=True, help="Take this run's figures out first. Several times.")
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 where a page differs from its figures.")
@runs_dir_option
def command(folder: Path, added: tuple[str, ...], drop: tuple[str, ...], check: bool, runs_dir: Path) -> int:
    """Write the tables of published figures into their pages, between `<!-- published: NAME -->` markers.

    Figures of runs are kept in a small Parquet file that is committed with the pages; a page is written from that file
    alone, and `--check` (for CI) says whether it still is.
    """
    from reports.published import FILE, add, check_places, pages

    if check and (added or drop):
        raise click.UsageError("--check writes nothing: leave out --add and --drop")
    if added or drop:
        check_places(folder)  # figures that no page could show are not kept
        writable(folder, "name another folder with --folder")
        with traceback_into(folder, "publishing"):
            add(folder, [find_run(run, runs_dir) for run in added], drop)
        click.echo(f"written: {folder / FILE}")
    differ = 0
    for path, (before, now) in pages(folder).items():
        if before == now:
            click.echo(f"as published: {path}")
        elif check:
            differ += 1
            click.echo(f"differs: {path}; run `bench publish`", err=True)
        else:
            try:
                path.write_text(now, encoding="utf-8")
            except OSError as error:
                raise file_problem(error, "nothing can be written") from None
            click.echo(f"written: {path}")
    return 1 if differ else 0
