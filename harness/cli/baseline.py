"""`bench baseline`: which runs new ones are held against, and who says so."""

import os
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from harness.cli.output import file_problem
from harness.cli.runs import check_name, find_run, runs_dir_option
from harness.protocol.errors import SpecError

_FOLDER = click.option(
    "--baseline",
    "folder",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False),
    default="baselines",
    show_default=True,
    help="The baseline's folder: one to keep in version control.",
)
_WHY = click.option("--why", required=True, metavar="TEXT", help="The reason, for the ledger.")
_WHO = click.option(
    "--who", metavar="NAME", help="Who does it. Default: GITHUB_ACTOR, else the name and address that git has."
)


@click.group("baseline", short_help="Choose the runs that new ones are held against.")
def command() -> None:
    """Keep the runs that `bench check` holds new ones against.

    A baseline is a folder for version control: a small Parquet per cell (framework, placement and settings), and
    ledger.jsonl, which says who took which run in, when and why. Whoever accepts the first run is trusted, and names
    the others who are; what anyone else writes into the folder is not used.
    """


@command.command("accept", short_help="Take runs into the baseline.")
@click.argument("runs", nargs=-1, required=True)
@_WHY
@_WHO
@_FOLDER
@click.option(
    "--series",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False),
    help="Take the RUNs' measures from a series that `bench history` keeps: their folders need not be there any more.",
)
@runs_dir_option
def accept_runs(
    runs: tuple[str, ...], why: str, who: str | None, folder: Path, series: Path | None, runs_dir: Path
) -> None:
    """Take RUNs (folders, names under the runs folder, or `latest`; or ids of a series) into the baseline."""
    check_name("baseline", folder)
    folders = [] if series is not None else [find_run(run, runs_dir) for run in runs]
    from results.baselines.store import accept
    from results.comparing.kept import load_baseline, measures_of

    if series is None:
        found = [measures_of(each) for each in folders]
    else:
        held = {run.run_id: run for run in load_baseline(series)}
        found = [held[_one(name, held, f"series {series}")] for name in runs]
    try:
        cells = accept(folder, found, who=who or _me(), why=why, utc=_now())
    except OSError as error:
        raise file_problem(error, "the baseline can't be written", "name another folder with --baseline") from None
    click.echo(f"{len(found)} run{'' if len(found) == 1 else 's'} accepted into {folder}: {', '.join(cells)}")


@command.command("withdraw", short_help="Take a run out of the baseline.")
@click.argument("run_id")
@_WHY
@_WHO
@_FOLDER
def withdraw_run(run_id: str, why: str, who: str | None, folder: Path) -> None:
    """Take the run RUN_ID (or the beginning of one) out of the baseline; the ledger keeps both entries."""
    from results.baselines import ledger
    from results.baselines.store import withdraw

    run_id = _one(run_id, ledger.standing(ledger.read(folder)).accepted, str(folder))
    try:
        withdraw(folder, run_id, who=who or _me(), why=why, utc=_now())
    except OSError as error:
        raise file_problem(error, "the baseline can't be written", "name another folder with --baseline") from None
    click.echo(f"{run_id} withdrawn from {folder}")


@command.command("trust", short_help="Let someone change the baseline.")
@click.argument("person")
@click.option("--no-longer", is_flag=True, help="Take the trust back.")
@_WHY
@_WHO
@_FOLDER
def trust_person(person: str, no_longer: bool, why: str, who: str | None, folder: Path) -> None:
    """Let PERSON accept and withdraw runs; or, with --no-longer, no more."""
    from results.baselines.ledger import DISTRUST, TRUST, Entry, append, read, standing

    action = DISTRUST if no_longer else TRUST
    if no_longer and standing(read(folder)).trusted == {person}:
        raise SpecError(f"{person} is the only one trusted in {folder}: let someone else be trusted first")
    try:
        append(folder, [Entry(utc=_now(), who=who or _me(), action=action, what=person, why=why)])
    except OSError as error:
        raise file_problem(error, "the baseline can't be written", "name another folder with --baseline") from None
    click.echo(f"{person} is {'no longer ' if no_longer else ''}trusted in {folder}")


@command.command("list", short_help="Show the baseline's runs, and who is trusted.")
@_FOLDER
def list_runs(folder: Path) -> None:
    """Show the runs of the baseline by cell, who accepted them and why, and who is trusted."""
    from reports.checked.baselines import lines
    from results.baselines.store import read_baseline

    for line in lines(read_baseline(folder)):
        click.echo(line)


def _one(name: str, ids: Iterable[str], where: str) -> str:
    """The id that is meant: itself, or the only one that begins with it (a run's folder is named by its beginning)."""
    name = Path(name).name
    found = [each for each in ids if each == name] or [each for each in ids if name and each.startswith(name)]
    if len(found) == 1:
        return found[0]
    said = f"means {len(found)} runs: {', '.join(found)}" if found else "no such run"
    raise SpecError(f"{name or 'run'} in {where}: {said}; `bench baseline list` shows a baseline's")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _me() -> str:
    if actor := os.environ.get("GITHUB_ACTOR"):
        return actor
    told = {}
    for key in ("name", "email"):
        try:
            asked = subprocess.run(["git", "config", f"user.{key}"], capture_output=True, text=True, check=False)
        except OSError:
            break
        told[key] = asked.stdout.strip()
    if not told.get("name"):
        raise SpecError("who: git has no user.name here; say who accepts with --who NAME")
    return f"{told['name']} <{told['email']}>" if told.get("email") else told["name"]
