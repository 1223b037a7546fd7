"""`bench calibrate`: what a plan is made from."""

import re
from pathlib import Path

import click

from harness.cli.output import file_problem
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import SpecError


@click.command("calibrate", short_help="Fit the planner's constants to a run, or to published phases.")
@click.argument("run", required=False)
@click.option("--phases", metavar="NAME=SECONDS,...", help="Published seconds of a synchronous colocated step instead:"
              " generate, train, logprob, weight_sync, offload, host.")  # fmt: skip
@click.option("--batch", type=int, help="With --phases: trajectories of a step.")
@click.option("--group", type=int, default=1, show_default=True, help="With --phases: trajectories of one prompt; the"
              " batch is whole groups, and one counts when its last trajectory ends.")  # fmt: skip
@click.option("--gpus", type=int, help="With --phases: GPUs of the step.")
@click.option(
    "--calls", default="1-8", show_default=True, help="With --phases: tool calls of a trajectory, LEAST-MOST."
)
@click.option("--tool-s", type=float, default=16.0, show_default=True, help="With --phases: seconds of a tool call.")
@click.option("--turn-tokens", type=float, default=600.0, show_default=True, help="With --phases: tokens of a turn.")
@click.option("--gpus-per-engine", type=int, default=1, show_default=True, help="With --phases.")
@click.option("--power", type=float, metavar="RATIO", help="With --phases: power utilisation, 0 to 1.")
@click.option("--watts-limit", type=float, metavar="W", help="With --phases: power limit of one GPU.")
@click.option("--model", default="", help="With --phases: the model, e.g. random:qwen3-14b: then splits that can't hold"
              " its training are left out of a plan.")  # fmt: skip
@click.option("--gpu-gib", type=float, metavar="GIB", help="With --phases: memory of one GPU.")
@click.option("--name", default="published", show_default=True, help="With --phases: what to call it.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the calibration to this file."
)
@runs_dir_option
def command(
    run: str | None,
    phases: str | None,
    batch: int | None,
    group: int,
    gpus: int | None,
    calls: str,
    tool_s: float,
    turn_tokens: float,
    gpus_per_engine: int,
    power: float | None,
    watts_limit: float | None,
    model: str,
    gpu_gib: float | None,
    name: str,
    out: Path | None,
    runs_dir: Path,
) -> int:
    """Fit the constants that `bench plan` works with, to one measured RUN or to a published table's row.

    Shows each constant with its interval and source, how well generation's speed against concurrency was fitted, and
    what can't be known from it.

    Example: bench calibrate --phases generate=385,logprob=24,train=33,weight_sync=9 --batch 24 --gpus 8 -o study.json
    """
    if (run is None) == (phases is None):
        raise SpecError("calibrate: give a RUN, or --phases")
    if run is not None and (unused := _given(click.get_current_context())):
        raise SpecError(f"{', '.join(unused)}: only with --phases; a run knows its own")
    from reports.planned.calibrated import calibration_page
    from results.planner.calibration.constants import write

    if power is not None and not 0 < power <= 1:
        raise SpecError(f"power = {power:g}: allowed is a share of the limit, above 0 to 1")
    if power is not None and watts_limit is None:
        raise SpecError(f"power = {power:g}: give --watts-limit too, the power limit of one GPU that it is a share of")
    if phases is not None:
        if batch is None or gpus is None:
            raise SpecError("--phases: needs --batch (trajectories of a step) and --gpus")
        from results.planner.calibration.from_phases import Published, calibrate_phases
        from results.planner.candidates import scaled_to_its_power

        row = calibrate_phases(
            Published(
                name=name,
                phases=_phases(phases),
                trajectories=batch,
                group_size=group,
                gpus=gpus,
                calls=_calls(calls),
                tool_s=tool_s,
                turn_tokens=turn_tokens,
                gpus_per_engine=gpus_per_engine,
                power_ratio=power,
                watts_limit=watts_limit,
                model=model,
                gpu_bytes=None if gpu_gib is None else round(gpu_gib * 2**30),
            )
        )
        found = scaled_to_its_power(row)
    else:
        from reports.case import Case
        from results.planner.calibration.from_run import calibrate_run

        assert run is not None
        case = Case.load(find_run(run, runs_dir))
        found = calibrate_run(case.run, case.figures)
    click.echo("\n".join(calibration_page(found)))
    if out is not None:
        try:
            write(found, out)
        except OSError as error:
            raise file_problem(error, "the calibration can't be written", "name another file with -o") from None
        click.echo(f"written to {out}")
    return 0


def _given(context: click.Context) -> list[str]:
    """Flags on the command line that say something of published phases."""
    own = {"run", "out", "runs_dir"}
    given = [one for one in context.command.params if one.name and one.name not in own]
    line = click.core.ParameterSource.COMMANDLINE
    return [one.opts[0] for one in given if context.get_parameter_source(str(one.name)) is line]


def _phases(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        if name.strip() in found:
            raise SpecError(f"phases: {name.strip()} is given twice")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise SpecError(f"phases = {word}: give NAME=SECONDS, e.g. generate=385") from None
    return found


def _calls(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match is None:
        raise SpecError(f"calls = {text}: give LEAST-MOST, e.g. 1-8")
    return int(match[1]), int(match[2])
