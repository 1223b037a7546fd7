"""`bench logs RUN`: the ends of a run's logs, and what follows."""

import time
from pathlib import Path

import click

from harness.cli.runs import find_run, runs_dir_option

_POLL_S = 0.5


@click.command("logs")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run ends (or Ctrl-C).")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=40, show_default=True, help="Last lines per file.")
@runs_dir_option
def command(run: str, follow: bool, lines: int, runs_dir: Path) -> None:
    """Show the logs of a run.

    RUN is a run folder, a name under the runs folder, or `latest`.
    """
    from harness.run_folder import run_status

    folder = find_run(run, runs_dir)
    logs = folder / "logs"
    offsets: dict[Path, int] = {}
    shown: Path | None = None
    for path in _files(logs):
        data = path.read_bytes()
        offsets[path] = len(data)
        click.echo(f"==> {path.relative_to(folder)} <==")
        shown = path
        click.echo("\n".join(data.decode(errors="replace").splitlines()[-lines:] if lines else []))
    if shown is None and not follow:
        click.echo(f"{folder.name}: no logs (yet) in {logs}")
    while follow:
        # Asked before reading: what was written before the end is still printed.
        running = run_status(folder) == "running"
        for path in _files(logs):
            with path.open("rb") as file:
                file.seek(offsets.get(path, 0))
                new = file.read()
            if new:
                offsets[path] = offsets.get(path, 0) + len(new)
                if path != shown:
                    click.echo(f"==> {path.relative_to(folder)} <==")
                    shown = path
                click.echo(new.decode(errors="replace"), nl=False)
        if not running:
            return
        time.sleep(_POLL_S)


def _files(logs: Path) -> list[Path]:
    return sorted(path for path in logs.rglob("*") if path.is_file()) if logs.is_dir() else []
