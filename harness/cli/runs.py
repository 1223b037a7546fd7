"""Finding run folders by path, name or `latest`."""

import difflib
from pathlib import Path

import click

from harness.cli.output import folder_named
from harness.protocol.errors import SpecError
from harness.protocol.names import NOT_UTF8, is_text, shown

runs_dir_option = click.option(
    "--runs-dir",
    metavar="DIRECTORY",
    callback=folder_named,
    default="runs",
    show_default=True,
    help="Where run folders lie.",
)


def find_run(name: str, runs_dir: Path) -> Path:
    """The folder that a path, a name under `runs_dir`, the unique beginning or end of one, or `latest` means.

    Raises:
        SpecError: nothing, or more than one folder, is meant; or it may not be read, or has no UTF-8 name.
    """
    from harness.run_folder import list_runs

    if not name.strip():
        raise SpecError(f"run = {name!r}: empty; `bench list runs` shows the runs")
    check_name("run", name)
    folders = list_runs(runs_dir)
    if name == "latest":
        if not folders:
            raise SpecError(f"run = latest: there is no run under {runs_dir.absolute()}; start one with `bench run`")
        return folders[-1]
    for path in (Path(name), runs_dir / name):
        try:
            if (path / "spec.json").is_file():
                return path
        except OSError as error:
            raise SpecError(f"run = {name}: {path} cannot be read: {error.strerror}") from None
    if Path(name).is_dir():
        raise SpecError(f"run = {name}: not a run folder (it has no spec.json)")
    names = [folder.name for folder in folders]
    matches = [folder for folder in folders if folder.name.startswith(name) or folder.name.endswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SpecError(f"run = {name}: means {len(matches)} runs: {', '.join(match.name for match in matches)}")
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; `bench list runs` shows them"
    raise SpecError(f"run = {name}: no such run folder here or under {runs_dir.absolute()}{hint}")


def check_name(what: str, name: str | Path) -> None:
    """Raises SpecError for a folder whose name is not valid UTF-8: before anything is written there, or read."""
    if not is_text(name):
        raise SpecError(f"{what} = {shown(name)}: {NOT_UTF8}; rename the folder, or give another")
