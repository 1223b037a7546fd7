"""`bench query SQL`: SQL over the tables of all runs."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.interrupts import interruptible
from harness.cli.output import INTERRUPTED, file_problem, table
from harness.cli.runs import runs_dir_option
from harness.protocol.errors import SpecError

if TYPE_CHECKING:
    from results.opening import Runs

SHOWN = 200  # rows of a table on a terminal


@click.command("query", short_help="SQL over the tables of all runs.")
@click.argument("sql", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    default="table",
    show_default=True,
    help="How rows are written; parquet needs -o.",
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write to, not the terminal."
)
@click.option("--tables", is_flag=True, help="Show the tables; with a table's name in place of SQL, its columns.")
@runs_dir_option
def command(sql: str | None, form: str, out: Path | None, tables: bool, runs_dir: Path) -> None:
    """Answer one SELECT over the tables of all collected runs, by DuckDB.

    Each table is a view of its name (turns, spans, samples, ...) whose `run_id` says which run a row is of. SQL `-` is
    read from stdin. Nothing but these tables can be read, and nothing written.
    """
    if tables:
        click.echo(_tables(sql))
        return
    if not sql:
        raise SpecError("query: no SQL; try: bench query 'SELECT run_id, status FROM runs', or --tables")
    if form == "parquet" and out is None:
        raise SpecError("--format parquet: needs -o FILE")
    from reports.rows_text import write_rows
    from results.opening import open_runs
    from results.querying import query

    runs = open_runs(runs_dir)
    _say_left_out(runs)
    wanted = sys.stdin.read() if sql == "-" else sql
    _say_not_computed(runs, wanted)
    with interruptible("interrupted", INTERRUPTED):
        answer = query(runs, wanted)
    if form != "table":
        _check_names(answer.column_names, form)
    try:
        if out is not None:
            with out.open("wb") as file:
                write_rows(answer, form, file)
            click.echo(f"written: {out}, {answer.num_rows:,} rows", err=True)
            return
    except OSError as error:
        raise file_problem(error, "writing the answer", "name another file with -o") from None
    cut = form == "table" and answer.num_rows > SHOWN
    shown = io.BytesIO()
    write_rows(answer.slice(0, SHOWN) if cut else answer, form, shown)
    click.echo(shown.getvalue(), nl=False)
    if cut:
        click.echo(f"{answer.num_rows - SHOWN:,} more rows: --format csv shows them, or -o FILE", err=True)


def _check_names(names: Sequence[str], form: str) -> None:
    """Whether each column can be found again by its name.

    Raises:
        SpecError: two have one name.
    """
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        named = ", ".join(map(repr, twice))
        raise SpecError(f"--format {form}: several columns are named {named}; give each its own name with AS")


def _tables(name: str | None) -> str:
    from results.opening import columns_of
    from results.schema import COLUMNS

    if name is None:
        return table([(one, str(len(columns_of(one)))) for one in COLUMNS], ("table", "columns"))
    rows = [(one.name, str(one.type), one.unit or "-", one.doc) for one in columns_of(name)]
    return table(rows, ("column", "type", "unit", "meaning"))


def _say_left_out(runs: "Runs") -> None:
    for path, why in runs.left_out.items():
        click.echo(f"left out: {path}: {why}", err=True)


def _say_not_computed(runs: "Runs", sql: str) -> None:
    """Tells of runs that have no rows in a table that the query names, for none were computed yet."""
    from results.store import COMPUTED, table_path

    named = [name for name in COMPUTED if name in sql.lower()]
    for folder in runs.folders.values():
        if lacks := [name for name in named if not table_path(folder, name).is_file()]:
            click.echo(
                f"no rows: {folder}: {', '.join(lacks)} not computed; run `bench report {folder}`",
                err=True,
            )
