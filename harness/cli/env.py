"""`bench env create|list|check|share|remove`: the frameworks' environments."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from harness.cli.output import table

if TYPE_CHECKING:
    from adapters.base import Environment
    from harness.envs import ShareReport


@click.group("env", short_help="Build, check and remove environments.")
def command() -> None:
    """Build, check and remove the frameworks' own environments.

    `bench run` builds what it needs; these verbs are for doing it beforehand, and for finding out what is wrong.
    """


def _which(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--engine", metavar="NAME", help="Default: the framework's usual engine.")(function)
    function = click.option("--device", metavar="cuda|cpu", help="Default: cuda where a GPU is visible.")(function)
    return click.argument("framework")(function)


@command.command("create")
@_which
def create(framework: str, device: str | None, engine: str | None) -> None:
    """Build the environment of FRAMEWORK, or finish a build that was interrupted."""
    from harness import envs

    environment = _environment(framework, device, engine)
    if environment is None:
        click.echo(f"{framework} runs in bench's own Python: there is nothing to build")
        return
    with envs.Display() as display:
        python = envs.create(environment, progress=display)
    click.echo(f"{environment.name}: ready, {python}")


@command.command("list")
def list_() -> None:
    """List what is built, and what could be."""
    from adapters.base import load_adapters
    from harness import envs
    from harness.cache import cache_folder

    adapters, broken = load_adapters()
    for one in broken:
        click.echo(f"left out: {one.problem}", err=True)
    found = envs.list_environments(envs.known_environments(adapters))
    rows = [
        (
            row.name,
            row.status.value,
            _size(row.size_bytes, row.shared_bytes),
            row.created_utc or "-",
            row.note,
        )
        for row in found
    ]
    click.echo(f"environments in {cache_folder()}\n")
    click.echo(table(rows, ("environment", "status", "size", "built", "note")))
    if any(row.shared_bytes for row in found):
        click.echo(f"\ntogether {envs.bytes_on_disk() / 1e9:.1f} GB on disk")


@command.command("check")
@_which
def check(framework: str, device: str | None, engine: str | None) -> None:
    """Import everything in the environment of FRAMEWORK, and compare it with its pins."""
    from harness import envs
    from harness.protocol.errors import EnvError

    environment = _environment(framework, device, engine)
    if environment is None:
        click.echo(f"{framework} runs in bench's own Python: there is nothing to check")
        return
    found = envs.check(environment)
    click.echo(f"{found.name}: Python {found.python}, {found.packages} packages, {found.interpreter}")
    for one in found.imports:
        click.echo(f"  import {one.module}: {one.error or f'ok, {one.seconds:.1f} s'}")
    if not found.ok:
        raise EnvError(
            f"{found.name} is not as pinned: {'; '.join(found.problems)}; build it anew: bench env remove {found.name},"
            f" then bench env create {framework} --device {environment.device.value}"
        )
    click.echo("as pinned")


@command.command("share")
def share() -> None:
    """Store once what several environments have in common.

    A build does it at its end; this is for environments that were there before, and for a build that was interrupted.
    """
    from harness import envs

    before = envs.bytes_on_disk()
    for row in envs.share_environments():
        click.echo(f"{row.folder.name}: {_what_was_shared(row)}")
    after = envs.bytes_on_disk()
    click.echo(f"{before / 1e9:.2f} GB on disk before, {after / 1e9:.2f} GB now")


@command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Remove the environment NAME (as `bench env list` shows it)."""
    from harness import envs

    for folder in envs.remove(name):
        click.echo(f"removed {folder}")


def _size(size_bytes: int | None, shared_bytes: int | None) -> str:
    if size_bytes is None:
        return "-"
    shared = f", {shared_bytes / 1e9:.1f} GB of it shared" if shared_bytes else ""
    return f"{size_bytes / 1e9:.1f} GB{shared}"


def _what_was_shared(row: "ShareReport") -> str:
    if row.shared is None:
        return f"left as it is: {row.left}"
    done = row.shared
    said = "nothing more to share with the older ones"
    if done.files:
        said = f"{done.size_bytes / 1e9:.2f} GB in {done.files} files now shared with {', '.join(done.sources)}"
    return said if done.refused is None else f"{said}; stopped: {done.refused}"


def _environment(framework: str, device: str | None, engine: str | None) -> "Environment | None":
    """The environment that a run of these would use; None for bench's own Python."""
    from adapters.base import load_adapter
    from harness.protocol.errors import SpecError
    from harness.protocol.spec import Placement
    from harness.specs import Machine, probe_machine, resolve

    if device in (None, "auto"):
        device = "cuda" if probe_machine().gpus else "cpu"
    refused: SpecError | None = None
    for placement in Placement:  # any will do: environments are per framework, device and engine
        flags = {"framework": framework, "placement": placement.value, "device": device, "engine": engine}
        try:
            spec = resolve(flags, machine=Machine()).spec  # of a node: what it lacks is no reason not to build
        except SpecError as error:
            refused = refused or error
            continue
        return load_adapter(framework).environment(spec.device, spec.engine)
    assert refused is not None
    raise refused
