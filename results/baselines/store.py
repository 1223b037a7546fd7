"""A baseline folder: a small Parquet per cell, and the ledger; in version control, read from a folder or a git ref."""

import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from harness.protocol.errors import SpecError
from results.baselines import ledger
from results.baselines.check import cell_name
from results.baselines.fit import no_baseline
from results.baselines.ledger import ACCEPT, WITHDRAW, Entry, standing
from results.comparing.kept import load_baseline, read_measures, rows, write_measures
from results.comparing.measures import RunMeasures

DEFAULT = "baselines"  # the folder, and its place in a git ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Runs that count: taken in by someone trusted, and unchanged since. `ignored`: what does not, and why."""

    where: str
    runs: tuple[RunMeasures, ...]
    ignored: tuple[str, ...]
    trusted: frozenset[str]
    accepted: dict[str, Entry]


def read_baseline(folder: Path, where: str = "") -> Baseline:
    """The baseline in a folder; one without runs is empty, not an error.

    Raises:
        SpecError: no such folder, or its ledger or a file of it can't be read.
    """
    if not folder.is_dir():
        raise SpecError(f"baseline = {folder}: no such folder; `bench baseline accept RUN --why ...` makes one")
    told = standing(ledger.read(folder))
    found = load_baseline(folder) if any(folder.glob("*.parquet")) else []
    runs, ignored = [], list(told.ignored)
    for run in found:
        entry = told.accepted.get(run.run_id)
        if entry is None:
            ignored.append(f"{run.run_id}: the ledger does not have it as accepted")
        elif entry.digest != digest_of(run):
            ignored.append(f"{run.run_id}: its numbers are not those that {entry.who} accepted")
        else:
            runs.append(run)
    held = {run.run_id for run in found}
    ignored += [f"{name}: accepted, but no file has it" for name in sorted(set(told.accepted) - held)]
    return Baseline(
        where=where or str(folder),
        runs=tuple(runs),
        ignored=tuple(ignored),
        trusted=told.trusted,
        accepted=told.accepted,
    )


@contextmanager
def baseline_at(where: str, repository: Path = Path()) -> Iterator[Path]:
    """The folder that `where` means: itself, or the baseline of a git ref (`REF` or `REF:FOLDER`) in a temporary one.

    Raises:
        SpecError: neither a folder nor a ref that has such a folder.
    """
    if Path(where).is_dir():
        yield Path(where)
        return
    ref, _, inside = where.partition(":")
    inside = inside.strip("/") or DEFAULT
    if not ref or ref.startswith("-"):
        raise SpecError(f"baseline = {where}: neither a folder nor a git ref")
    archive = ["git", "-C", str(repository), "archive", "--format=tar", ref, "--", inside]
    try:
        made = subprocess.run(archive, capture_output=True, check=False)
    except OSError as error:
        raise SpecError(f"baseline = {where}: no such folder, and git can't be started ({error})") from None
    if made.returncode:
        said = made.stderr.decode(errors="replace").strip().splitlines()
        raise SpecError(
            f"baseline = {where}: no such folder, and as a git ref: {said[-1] if said else 'git archive failed'}"
        )
    with tempfile.TemporaryDirectory(prefix="bench-baseline-") as folder:
        with tarfile.open(fileobj=BytesIO(made.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder) / inside


def accept(folder: Path, runs: Sequence[RunMeasures], *, who: str, why: str, utc: str) -> list[str]:
    """Takes runs into the baseline; returns the cells' names. A run that is in it already is replaced.

    Raises:
        SpecError: no check could use a run (`fit.no_baseline`), there is no reason, or `who` is not trusted. Nothing is
            changed then.
        OSError: a file can't be written.
    """
    if not why.strip():
        raise SpecError("why: empty; say what makes these runs the new standard")
    for run in runs:
        if reason := no_baseline(run):
            raise SpecError(f"{run.run_id} can't be a baseline: {reason}")
    entries = [
        Entry(
            utc=utc, who=who, action=ACCEPT, what=run.run_id, why=why, cell=f"{cell_name(run)}", digest=digest_of(run)
        )
        for run in runs
    ]
    ledger.append(folder, entries)
    cells = sorted({cell_name(run) for run in runs})
    for cell in cells:
        path = folder / f"{cell}.parquet"
        new = {run.run_id: run for run in runs if cell_name(run) == cell}
        kept = [run for run in read_measures(path) if run.run_id not in new] if path.exists() else []
        write_measures(path, _in_order([*kept, *new.values()]))
    return cells


def withdraw(folder: Path, run_id: str, *, who: str, why: str, utc: str) -> None:
    """Takes a run out of the baseline.

    Raises:
        SpecError: it is not in it, there is no reason, or `who` is not trusted.
        OSError: a file can't be written.
    """
    if not why.strip():
        raise SpecError("why: empty; say what is wrong with the run")
    entry = standing(ledger.read(folder)).accepted.get(run_id)
    if entry is None:
        raise SpecError(f"{run_id} is not in {folder}; `bench baseline list` shows what is")
    ledger.append(folder, [Entry(utc=utc, who=who, action=WITHDRAW, what=run_id, why=why, cell=entry.cell)])
    path = folder / f"{entry.cell}.parquet"
    if not path.exists():
        return
    kept = [run for run in read_measures(path) if run.run_id != run_id]
    if kept:
        write_measures(path, kept)
    else:
        path.unlink()


def digest_of(run: RunMeasures) -> str:
    """SHA-256 of a run's numbers and of what a check reads beside them: its cell, machine, commit, start and state."""
    about: list[object] = [
        *(run.run_id, run.spec_digest, run.commit, sorted(run.machine.items(), key=str)),
        *(run.started_utc, run.granularity, run.problems),
    ]
    if run.lost or run.adherence not in (None, 1.0):  # no such word on whole runs, so that older entries hold
        about += [run.lost, run.adherence]
    text = json.dumps([about, rows([run]).to_pylist()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _in_order(runs: Sequence[RunMeasures]) -> list[RunMeasures]:
    return sorted(runs, key=lambda run: (run.started_utc or "", run.run_id))
