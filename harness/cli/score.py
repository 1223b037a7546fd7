"""`bench score`: a plan's prediction beside the run that followed."""

from pathlib import Path

import click

from harness.cli.runs import find_run, runs_dir_option


@click.command("score", short_help="Hold a plan against the run that followed.")
@click.argument("plan", type=click.Path(path_type=Path))
@click.argument("run")
@runs_dir_option
def command(plan: Path, run: str, runs_dir: Path) -> int:
    """Compare what PLAN (a folder of `bench plan -o`, or its plan.json) said with the RUN that followed it.

    The run's placement, split and bound choose the candidate. Another seed is the same work drawn anew.
    """
    from reports.planned.planned import score_page
    from results.comparing.kept import measures_of
    from results.planner.score import read_plan, score

    document = read_plan(plan)
    measured = measures_of(find_run(run, runs_dir))
    name, scored = score(document, measured)
    click.echo("\n".join(score_page(name, measured, scored, document["updates"])))
    return 0
