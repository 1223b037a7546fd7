"""`bench list [runs|frameworks]`."""

from pathlib import Path

import click

from harness.cli.output import table
from harness.cli.runs import runs_dir_option


@click.command("list", short_help="List runs and frameworks.")
@click.argument("what", type=click.Choice(["runs", "frameworks"]), required=False)
@runs_dir_option
def command(what: str | None, runs_dir: Path) -> None:
    """List runs with their status, and what each framework can do (both, unless one is named)."""
    parts = []
    if what in (None, "frameworks"):
        parts.append(frameworks_table())
    if what in (None, "runs"):
        parts.append(runs_table(runs_dir))
    click.echo("\n\n".join(parts))


def frameworks_table() -> str:
    """Frameworks x placements x devices: possible, or why not, and where each cell was last seen to work."""
    from adapters.base import load_adapters
    from harness.cli.announce import framework_line
    from harness.protocol.errors import SpecError
    from harness.protocol.spec import Device, Placement
    from harness.specs import default_spec

    rows = []
    adapters, broken = load_adapters()
    for one in broken:
        click.echo(f"left out: {one.problem}", err=True)
    for adapter in adapters:
        for placement in Placement:
            for device in Device:
                try:
                    reason = adapter.supports(default_spec(adapter.name, placement, device))
                except SpecError as error:  # another distribution's adapter failed
                    reason = str(error)
                seen = adapter.verified_on.get((placement.value, device.value), "never")
                rows.append(
                    (
                        framework_line(adapter),
                        placement.value,
                        device.value,
                        "yes" if reason is None else f"no: {reason}",
                        seen if reason is None else "-",
                    )
                )
    return table(rows, ("framework", "placement", "device", "possible", "verified on"))


def runs_table(runs_dir: Path) -> str:
    """Run folders, oldest first: name, status, model, device, steps asked for, time taken and what went wrong."""
    from harness.protocol.errors import SpecError
    from harness.protocol.spec import RunSpec
    from harness.run_folder import find_runs, read_status

    rows = []
    runs, closed = find_runs(runs_dir)
    for path, why in closed.items():
        click.echo(f"left out: {path}: {why}", err=True)
    for folder in runs:
        try:
            spec = RunSpec.load_file(folder / "spec.json")
            about = (spec.model, spec.device.value, str(spec.steps))
            damage = ""
        except SpecError as error:
            about = ("?", "?", "?")  # damaged, or written by another version: listed, not hidden
            damage = str(error).removeprefix(f"{folder}/")
        status = read_status(folder)
        wall = status.meta.get("wall_s")
        rows.append(
            (
                folder.name,
                status.status + (", imported, partial" if "imported" in status.meta else ""),
                *about,
                "-" if wall is None else f"{wall:.0f} s",
                _one_line(status.reason or damage),
            )
        )
    if not rows:
        return f"no runs under {runs_dir.absolute()}"
    return table(rows, ("run", "status", "model", "device", "steps", "wall", "reason"))


def _one_line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= 80 else first[:79] + "…"
