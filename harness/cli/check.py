"""`bench check`: are the new runs worse than the baseline's?"""

import json
from pathlib import Path

import click

from harness.cli.output import file_problem
from harness.cli.runs import find_run, runs_dir_option

UNDERPOWERED = 5  # the exit code


@click.command("check", short_help="Check new runs against a baseline, for a CI.")
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "--baseline",
    required=True,
    metavar="DIR|REF",
    help="A baseline's folder; or a git ref that has one: REF (its `baselines`) or REF:FOLDER.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="NAME[=PERCENT%]",
    help="A measure that gates, and its tolerance (10%). At most 5. Default: step_time_s, phase_train_s, goodput.",
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML to this file.")
@click.option("--comment", type=click.Path(path_type=Path, dir_okay=False), help="Write the page as markdown.")
@click.option("--summary", type=click.Path(path_type=Path, dir_okay=False), help="Append the page to this file.")
@click.option("--format", "form", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True)
@runs_dir_option
def command(
    runs: tuple[str, ...],
    baseline: str,
    gates: tuple[str, ...],
    junit: Path | None,
    comment: Path | None,
    summary: Path | None,
    form: str,
    runs_dir: Path,
) -> int:
    """Check RUNs (folders, names under the runs folder, or `latest`) against a baseline, cell by cell.

    A run fails the check when it stopped early, did other work than planned, lost its samples or lacks a gating
    measure; the runs of a cell fail it when their work differs from the baseline's, or when a measure is worse by more
    than its tolerance and a test over runs says that this is no accident. Better never fails.

    Exit codes: 0 passed, 1 failed, 5 underpowered: a worsening of 15 % could have been missed.
    """
    from results.baselines.check import gates_named

    named = gates_named(gates) if gates else None
    folders = [find_run(run, runs_dir) for run in dict.fromkeys(runs)]
    from reports.checked.document import document
    from reports.checked.junit import write_junit
    from reports.checked.page import outcome, page
    from results.baselines.check import Outcome, check
    from results.baselines.store import baseline_at, read_baseline
    from results.comparing.kept import measures_of

    with baseline_at(baseline) as folder:
        held = read_baseline(folder, baseline)
    found = check([measures_of(each) for each in folders], held.runs, named)
    text = page(found, held)
    click.echo(json.dumps(document(found), indent=2) if form == "json" else text, nl=form == "json")
    try:
        if junit is not None:
            write_junit(junit, found)
        if comment is not None:
            comment.parent.mkdir(parents=True, exist_ok=True)
            comment.write_text(text, encoding="utf-8")
        if summary is not None:
            with summary.open("a", encoding="utf-8") as file:
                file.write(text + "\n")
    except OSError as error:
        raise file_problem(error, "the check's result can't be written", "name another file") from None
    return {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.UNDERPOWERED: UNDERPOWERED}[outcome(found)]
