"""`bench compare A B [C...]`: runs against runs, with intervals, verdicts and blame."""

import glob
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.output import file_problem
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import SpecError
from harness.protocol.unfinished import made_whole

if TYPE_CHECKING:
    from reports.compared.gather import Given
    from results.comparing.comparison import Comparison

EVERY_S = 10.0  # how far it is, with what takes long
_FORMATS = ("markdown", "html", "csv", "json", "parquet")


@click.command("compare", short_help="Compare runs with runs: intervals, verdicts, blame.")
@click.argument("sides", nargs=-1, required=True, metavar="A [B...]")
@click.option(
    "--allow-different",
    "allowed",
    multiple=True,
    metavar="WHAT",
    help="Compare all the same where WHAT differs: work, a field of it (seed, ...), machine, granularity.",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Output.  [default: markdown]")
@click.option("--html", "as_html", is_flag=True, help="The same as --format html: one file with charts, no network.")
@click.option("-o", "--out", metavar="FILE", type=click.Path(path_type=Path), help="File to write; default: stdout.")
@click.option(
    "--noise-from",
    metavar="BASELINE",
    help="Runs (a baseline, a sweep, a quoted glob) of the sides' own cells that tell how runs vary, for single runs.",
)
@runs_dir_option
def command(
    sides: tuple[str, ...],
    allowed: tuple[str, ...],
    form: str | None,
    as_html: bool,
    out: Path | None,
    noise_from: str | None,
    runs_dir: Path,
) -> None:
    """Compare each of B... with A by every measure: ratio or difference with an interval, a verdict, and blame.

    Each is a run folder or a name under the runs folder, a quoted glob of run folders, a folder of them, a sweep, or a
    baseline (a folder of *.parquet, or a git ref that has one: REF or REF:FOLDER). One sweep alone: its cells are
    compared with its first. The replicate is the run: give several a side. Runs of different work or machines are
    refused.
    """
    if as_html and form not in (None, "html"):
        raise SpecError(f"--html and --format {form}: give one of them")
    form = "html" if as_html else form or "markdown"
    if form == "parquet" and out is None:
        raise SpecError("--format parquet: it is no text; name a file with -o")
    from reports.compared.gather import cells_of, gather  # pandas and scipy: not for `bench --help`
    from results.comparing.comparison import compare_sides

    with ExitStack() as opened:  # baselines of git refs, unpacked while they are read
        given = _unlike([_given(side, runs_dir, opened) for side in sides])
        noise = None if noise_from is None else cells_of(_given(noise_from, runs_dir, opened), _Waiting())
        gathered = gather(given, _Waiting())
    found = [compare_sides(one, allowed=allowed, noise=noise, apart=gathered.apart) for one in gathered.sections]
    if form in ("csv", "parquet"):  # which have no place for it
        for text in gathered.apart:
            click.echo(f"not compared: {text}", err=True)
    if out is None:
        click.echo(_text(form, found), nl=False)
        return
    try:
        with made_whole(out) as temporary:
            if form == "parquet":
                from reports.compared.tabular import write_parquet

                write_parquet(found, temporary)
            else:
                temporary.write_text(_text(form, found), encoding="utf-8")
    except OSError as error:
        raise file_problem(error, f"{out} can't be written", "name another file with -o") from None
    click.echo(f"written: {out}")


class _Waiting:
    """Says on stderr what takes long: runs whose measures are computed anew."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int, total: int, workers: int) -> None:
        if done == 0:
            at_once = f", {workers} at a time" if workers > 1 else ""
            runs = "1 run" if total == 1 else f"{total} runs"
            click.echo(
                f"measuring {runs}{at_once}: what is kept of them is of other code or tables, or not there", err=True
            )
        elif done == total or time.monotonic() < self._next:
            return
        else:
            click.echo(f"measured {done} of {total}", err=True)
        self._next = time.monotonic() + EVERY_S


def _text(form: str, found: "Sequence[Comparison]") -> str:
    if form == "markdown":
        from reports.compared.page import markdown

        return markdown(found)
    if form == "html":
        from reports.compared.html import html

        return html(found)
    from reports.compared.tabular import as_csv, as_json

    return as_csv(found) if form == "csv" else as_json(found)


def _given(text: str, runs_dir: Path, opened: ExitStack) -> "Given":
    """What an argument means: a path, a quoted glob (here, or under the runs folder), a run's name, or a git ref that
    has a baseline, which stays unpacked as long as `opened`.

    Raises:
        SpecError: nothing is there.
    """
    from reports.compared.gather import Given

    if not text.strip():
        raise SpecError(f"side = {text!r}: empty; give a run, a sweep, a quoted glob or a baseline")
    if glob.has_magic(text) and not Path(text).exists():
        paths = sorted(glob.glob(text)) or sorted(glob.glob(str(runs_dir / text)))  # noqa: PTH207 (absolute ones too)
        if not paths:
            raise SpecError(f"side = {text}: nothing here or under {runs_dir.absolute()} is called so")
        return Given(label=Path(text).name, paths=tuple(Path(path) for path in paths))
    path = Path(text)
    if not path.exists() and (runs_dir / text).exists():
        path = runs_dir / text
    elif not path.exists():
        from results.baselines.store import baseline_at

        try:
            path = find_run(text, runs_dir)
        except SpecError as no_run:
            try:
                return Given(label=text, paths=(opened.enter_context(baseline_at(text)),))
            except SpecError as no_ref:
                raise (no_ref if ":" in text else no_run) from None
    return Given(label=path.resolve().name, paths=(path,))


def _unlike(given: "Sequence[Given]") -> "list[Given]":
    """With labels that tell them apart: the folder before it where a name comes twice, and a number where that does."""
    from reports.compared.gather import Given

    labels = [one.label for one in given]
    longer = [
        f"{one.paths[0].resolve().parent.name}/{one.label}"
        if labels.count(one.label) > 1 and one.label == one.paths[0].resolve().name
        else one.label
        for one in given
    ]
    return [
        Given(label=name if longer.count(name) == 1 else f"{name} ({place})", paths=one.paths)
        for place, (name, one) in enumerate(zip(longer, given, strict=True), start=1)
    ]
