"""`bench lint WHAT...`: identities that must hold, in runs of ours and in what others published."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import SpecError

if TYPE_CHECKING:
    from results.lint.findings import Linted
    from results.lint.given import Given

FOUND = 1  # exit code: an identity is broken
_KINDS = ("table", "verl-console", "areal-console", "areal-tracer", "mlperf")
_FORMATS = ("markdown", "json", "github")


@click.command("lint", short_help="Check that figures agree with each other.")
@click.argument("what", nargs=-1, required=True, metavar="WHAT...")
@click.option(
    "--map",
    "columns",
    multiple=True,
    metavar="COLUMN=NAME[:UNIT]",
    help="What a column of a table is, e.g. 'Avg step=step_s' or 'Power=watts:kW'. Names: docs/lint.md.",
)
@click.option("--from", "kind", type=click.Choice(_KINDS), help="What the files are. Default: told from their content.")
@click.option("--gpu", metavar="MODEL", help="The GPU that figures are of, e.g. H100, for its dense peak.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="All GPUs of the run, the rollout side's too.")
@click.option("--limit-watts", type=click.FloatRange(min=0, min_open=True), metavar="W", help="Power limit of a GPU.")
@click.option("--max-staleness", type=click.IntRange(min=0), metavar="N", help="Bound on staleness, policy versions.")
@click.option(
    "--slack",
    type=click.FloatRange(min=0, max=1),
    default=0.0,
    show_default=True,
    metavar="RATIO",
    help="Relative difference of two sides to let pass beside the rounding.",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), default="markdown", show_default=True)
@click.option("--all", "unchecked", is_flag=True, help="Also list what could not be checked, and why.")
@click.option("--strict", is_flag=True, help="Exit 1 for what figures imply, too.")
@runs_dir_option
@click.pass_context
def command(
    ctx: click.Context,
    what: tuple[str, ...],
    columns: tuple[str, ...],
    kind: str | None,
    gpu: str | None,
    gpus: int | None,
    limit_watts: float | None,
    max_staleness: int | None,
    slack: float,
    form: str,
    unchecked: bool,
    strict: bool,
    runs_dir: Path,
) -> int:
    """Check identities: tokens = tokens/s/GPU x GPUs x time, phases <= step, power <= limit, ledgers close ...

    WHAT is a run (folder, name under the runs folder, `latest`), a sweep, a folder of runs, or a file of others: a
    table (CSV, TSV, JSON, Markdown, text with tabs), a console log of verl or AReaL, AReaL's session trace, an MLPerf
    log. Printed numbers are allowed their rounding. Exit code 0: nothing broken, 1: something is, 2: bad input.
    """
    from reports.linted import render  # a second: pandas
    from results.lint.findings import Severity
    from results.lint.given import Given

    given = Given(
        columns=dict(_pair(text) for text in columns),
        gpu=gpu,
        gpus=gpus,
        limit_watts=limit_watts,
        max_staleness=max_staleness,
        slack=slack,
    )
    if gpu is not None and given.peak is None:
        from results.throughput import PEAK_BF16_FLOPS

        raise SpecError(
            f"--gpu {gpu}: its dense peak is not known; known are {', '.join(n for n, _ in PEAK_BF16_FLOPS)}"
        )
    found: list[Linted] = []
    unread: list[str] = []
    sources = [lint for name in what for lint in _sources(name, given, kind, runs_dir)]
    for lint in sources:
        try:
            found.append(lint())
        except SpecError as error:  # the others are linted all the same
            unread.append(str(error))
    text = render(found, form, unchecked=unchecked)
    if text and (found or not unread):
        click.echo(text)
    if unread:
        more = f" (and {len(unread) - 1} more that could not be linted)" if len(unread) > 1 else ""
        raise SpecError(unread[0] + more)
    for one in found:
        if not one.checks:
            more = f" (and {len(one.notes) - 1} more notes above)" if len(one.notes) > 1 else ""
            why = one.notes[0] + more if one.notes else "nothing that its identities need is in it"
            raise SpecError(f"{one.source}: nothing could be checked: {why}")
    broken = any(one.of(Severity.VIOLATION) or (strict and one.of(Severity.IMPLIED)) for one in found)
    return FOUND if broken else 0


def _pair(text: str) -> tuple[str, str]:
    column, equals, name = text.rpartition("=")
    if not equals or not column.strip() or not name.strip():
        raise SpecError(f"--map {text}: allowed is COLUMN=NAME or COLUMN=NAME:UNIT, e.g. --map 'Avg step=step_s'")
    return column, name


def _sources(name: str, given: "Given", kind: str | None, runs_dir: Path) -> "Iterator[Callable[[], Linted]]":
    """What lints each source that a name means."""
    from harness.run_folder import find_runs
    from harness.sweep.folder import SweepFolder, is_sweep
    from results.lint.runs import lint_run
    from results.lint.source import lint_file
    from results.store import is_run_folder

    path = Path(name)
    if path.is_file():
        yield lambda: lint_file(path, given, kind)
    elif path.is_dir() and not is_run_folder(path):
        if is_sweep(path):
            runs = [one.run_dir for one in SweepFolder.open(path).state() if one.run_dir is not None]
        else:
            runs, closed = find_runs(path)
            for folder, why in closed.items():
                click.echo(f"left out: {folder}: {why}", err=True)
        if not runs:
            raise SpecError(f"{name}: a folder that is no run and holds none; name a run, a folder of runs, or a file")
        for run in runs:
            yield partial(lint_run, run)
    elif not path.exists() and path.suffix:
        raise SpecError(f"{name}: no such file, and no such run; name a run, a folder of runs, or a file")
    else:
        yield lambda: lint_run(find_run(name, runs_dir))
