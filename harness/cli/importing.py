"""`bench import FILE --from KIND`: a run made from what somebody else recorded, partial and labelled so."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.output import folder_named
from harness.protocol.errors import SpecError

if TYPE_CHECKING:
    from harness.protocol.spec import Gpus, Placement
    from results.importing.partial import Built, Facts

_KINDS = ("verl-console", "areal-tracer")
_SPLIT = re.compile(r"^\s*(\d{1,6})\s*(?:\+\s*(\d{1,6})\s*)?$")
_PLACEMENTS = ("colocated", "disaggregated", "async")


@click.command("import", short_help="Make a partial run of a log of verl or AReaL.")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@click.option("--from", "kind", type=click.Choice(_KINDS), required=True, help="What the file is.")
@click.option("--placement", type=click.Choice(_PLACEMENTS), required=True, help="Which placement the run had.")
@click.option(
    "--gpus", required=True, metavar="N|T+R", help="GPUs of the run: N shared, or T to train and R for rollouts."
)
@click.option("--max-staleness", type=click.IntRange(min=0), metavar="N", help="Bound on staleness; async needs it.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--model", default="unknown", show_default=True, help="Name of the model.")
@click.option(
    "-o",
    "--out",
    metavar="DIRECTORY",
    callback=folder_named,
    default="runs",
    show_default=True,
    help="Folder that the run's folder is made in.",
)
def command(
    files: tuple[Path, ...],
    kind: str,
    placement: str,
    gpus: str,
    max_staleness: int | None,
    device: str,
    model: str,
    out: Path,
) -> None:
    """Make a run folder of a log that somebody else's run left: verl's console, or AReaL's session tracer.

    FILE is one log of verl's, or the session files of all ranks of one run of AReaL's.

    Such a run is partial: `bench report` and `bench lint` work on it and say so, what the file does not tell is not
    known, and it is compared with no other run. The log says neither placement nor GPUs: you do.
    """
    from harness.cli.figures import keep_figures
    from harness.protocol.spec import Device, Placement
    from results.importing.imported import LABEL
    from results.importing.partial import Facts, write_partial

    where = Placement(placement)
    if where is Placement.ASYNC and max_staleness is None:
        raise SpecError("max_staleness: async needs its bound, which the log does not say: give --max-staleness N")
    facts = Facts(
        placement=where,
        gpus=_gpus(gpus, where),
        max_staleness=max_staleness or 0,
        device=Device(device),
        model=model,
    )
    built = _build(files, kind, facts)
    run = write_partial(out, files, facts, built)
    found = keep_figures(run)
    counts = [f"{name} {table.num_rows}" for name, table in run.tables.items() if table.num_rows]
    known = sum(figure.value is not None for figure in found.figures.values())
    click.echo(f"{LABEL}: {', '.join(counts)}; {known} figures known of {len(found.figures)}")
    click.echo("not in the file:")
    for lack in built.lacks:
        click.echo(f"  - {lack}")
    for note in built.notes:
        click.echo(f"note: {note}")
    click.echo(f"run: {run.run_dir}")


def _build(files: Sequence[Path], kind: str, facts: "Facts") -> "Built":
    from results.importing.areal_run import build_areal
    from results.importing.areal_tracer import read_sessions
    from results.importing.verl_console import read_steps
    from results.importing.verl_run import build_verl
    from results.lint.source import read_text

    if kind == "verl-console":
        if len(files) > 1:
            raise SpecError(f"{files[1]}: a run has one console log of verl's; import each alone")
        steps = read_steps(read_text(files[0]).splitlines())
        if not steps:
            raise SpecError(f"{files[0]}: no step of a verl console log in it (`step:3 - actor/loss:0.1 - ...`)")
        return build_verl(steps, facts)
    sessions, problems = [], []
    for file in files:
        found, unread = read_sessions(read_text(file).splitlines())
        if not found:
            first = f" ({unread[0]})" if unread else ""
            raise SpecError(f"{file}: no session of AReaL's tracer in it{first}; it writes sessions-r<rank>.jsonl")
        sessions += found
        problems += [f"{file.name}, {problem}" for problem in unread]
    return build_areal(sessions, problems, facts)


def _gpus(text: str, placement: "Placement") -> "Gpus":
    from harness.protocol.spec import Gpus, Placement

    match = _SPLIT.match(text)
    shared = placement is Placement.COLOCATED
    if match is None or (match[2] is None) is not shared:
        allowed = "one number of shared GPUs, e.g. 8" if shared else "the GPUs to train and to roll out, e.g. 4+4"
        raise SpecError(f"gpus = {text}: allowed is {allowed}")
    return Gpus(train=int(match[1]), rollout=int(match[2] or match[1]))
