"""`bench tools build WHAT`: a corpus, generated or of the user's own pages."""

import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.output import file_problem
from harness.protocol.errors import EnvError, SpecError
from reports.markdown import plural

if TYPE_CHECKING:
    from workloads.deep_research.corpus.build import Progress


PAGE_COLUMNS = ("url", "title", "text", "html")


@click.command("build", short_help="Build a corpus: generated, or of your own pages.")
@click.argument("what", metavar="generated:PAGES|SOURCE")
@click.option("-o", "--out", metavar="DIR", help="Where it goes. Default of generated ones: the cache folder.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of a generated corpus; a run's is its --seed.")
@click.option("--columns", metavar="NAME=COLUMN,...", help="Of your own table: url=..., title=..., text=..., html=...")
def command(what: str, out: str | None, seed: int, columns: str | None) -> None:
    """Build a corpus, for `bench run --tools local --corpus ...`.

    generated:PAGES makes linked pages with multi-hop questions, the same from the same seed (1,000 to 1,000,000
    pages). SOURCE is your own: a folder of .html, .md and .txt files, or a .jsonl or .parquet file, or a folder of
    nothing but such tables. What is left out of a folder is said.
    """
    from harness.cache import cache_folder
    from harness.specs.inputs import GENERATED_CORPUS, parse_columns, read_corpus
    from workloads.deep_research.corpus.build import build_corpus, generated_name
    from workloads.deep_research.corpus.skipped import Skipped

    skipped = Skipped()
    match = GENERATED_CORPUS.match(what)
    if match is None and what.startswith("generated"):
        raise SpecError(f"{what}: allowed is generated:PAGES with 1000 to 1000000 pages, e.g. generated:10000")
    try:
        if match is not None:
            read_corpus(what, seed)  # its limits
            if columns is not None:
                raise SpecError(f"--columns: allowed with a table of your own; {what} has none")
            pages = int(match[1])
            folder = Path(out) if out else cache_folder() / "corpora" / generated_name(pages, seed)
            facts = build_corpus(folder, pages=pages, seed=seed, progress=_progress())
        else:
            if out is None:
                raise SpecError(f"{what}: where does the corpus go? give -o DIR")
            from workloads.deep_research.corpus.loaders import import_corpus

            folder, named = Path(out), parse_columns(columns, PAGE_COLUMNS) if columns is not None else None
            shown = _progress()
            facts = import_corpus(Path(what), folder, columns=named, progress=shown, skipped=skipped)
            if shown is not None:
                click.echo(err=True)  # how many there are was not known before: the line of their number ends here
    except sqlite3.OperationalError as error:  # a full disk, as SQLite tells it
        raise EnvError(f"the corpus can't be built: {error}; free some space, or name another folder with -o") from None
    except OSError as error:
        raise file_problem(error, "the corpus can't be built", "name another folder with -o") from None
    made = f"{plural(facts.pages, 'page')}, {plural(facts.questions, 'question')}"
    click.echo(f"{folder.absolute()}: {made}, digest {facts.digest}")
    if skipped.total:
        click.echo("\n".join(["left out:", *(f"  {line}" for line in skipped.lines())]))
    if match is None or out is not None:
        click.echo(f"bench run --tools local --corpus {folder} ...")


def _progress() -> "Progress | None":
    """A line that counts, on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int | None) -> None:
        counted = plural(done, "page") if total is None else f"{done:,} of {plural(total, 'page')}"
        click.echo(f"\r{counted}" + ("\n" if done == total else ""), nl=False, err=True)

    return show
