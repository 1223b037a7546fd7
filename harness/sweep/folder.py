"""The folder of a sweep: the plan, the journal and a lock; and the state of every run of it, read from disk alone."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.protocol.errors import NO_SPACE, EnvError, SpecError
from harness.protocol.unfinished import made_whole, remove_left
from harness.run_folder import read_status
from harness.sweep.journal import NAME, Journal, Line, read_journal
from harness.sweep.plan import Plan

PLAN = "sweep.json"
PENDING, REFUSED, FINISHED, INTERRUPTED = "pending", "refused", "finished", "interrupted"
FAILED = ("failed", "stalled", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one entry of the plan stands: pending | running | refused | or the status of its latest run.

    `took_s` is the time from its start to its end, environment and tables included.
    """

    status: str = PENDING
    reason: str = ""
    exit_code: int | None = None
    run_dir: Path | None = None
    took_s: float | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """A sweep on disk. `runs_dir` is where its runs lie."""

    path: Path
    plan: Plan
    runs_dir: Path

    @classmethod
    def create(cls, path: Path, plan: Plan, runs_dir: Path, **about: object) -> "SweepFolder":
        """Makes the folder with its plan.

        Raises:
            SpecError: there is something at `path` already, or it can't be a folder.
            EnvError: there is no room.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            remove_left(path)
            if any(path.iterdir()):
                raise SpecError(f"{path}: not empty, and no sweep; give another --out")
            path = path.resolve()
            text = plan.to_json(created_utc=utc_now(), runs_dir=relative(runs_dir, path), **about)
            with made_whole(path / PLAN, durable=True) as temporary:
                temporary.write_text(text, encoding="utf-8")
        except OSError as error:
            what = f"no sweep folder can be made at {path}: {error}; "
            if error.errno in NO_SPACE:
                raise EnvError(what + "free some space, or name another folder with --out") from error
            raise SpecError(what + "name another folder with --out") from error
        return cls(path, plan, runs_dir.resolve())

    @classmethod
    def open(cls, path: Path, runs_dir: Path | None = None) -> "SweepFolder":
        """A sweep that exists; `runs_dir` where its runs were moved.

        Raises:
            SpecError: not a sweep folder, or its plan cannot be read.
        """
        file = path / PLAN
        try:
            text = file.read_text(encoding="utf-8")
            plan = Plan.from_json(text)
            kept = str(json.loads(text)["runs_dir"])
        except OSError as error:
            raise SpecError(f"{path}: not a sweep folder ({file.name}: {error.strerror})") from None
        except (SpecError, KeyError) as error:
            raise SpecError(f"{file}: {error}") from None
        path = path.resolve()
        return cls(path, plan, (runs_dir or path / kept).resolve())

    @property
    def journal(self) -> Journal:
        """For the holder of the lock."""
        return Journal(self.path / NAME)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The block in which this process runs the sweep; the lock is free after it, as it is after a kill.

        Raises:
            SpecError: another process runs it.
        """
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SpecError(f"{self.path}: another `bench sweep` is running it") from None
            yield
        finally:
            os.close(lock)

    def state(self) -> list[Outcome]:
        """How each entry of the plan stands, in the plan's order; a run cut off by a kill is asked for its status."""
        lines, _ = read_journal(self.path / NAME)
        found = [Outcome() for _ in self.plan.entries]
        for line in lines:
            place = line.data.get("entry")
            if not isinstance(place, int) or not 1 <= place <= len(found):
                continue
            found[place - 1] = self._after(found[place - 1], line)
        return [self._looked_at(outcome) if outcome.status == "running" else outcome for outcome in found]

    def cut_off(self) -> list[int]:
        """Entries whose run the journal saw begin and not end."""
        open_: dict[int, bool] = {}
        for line in read_journal(self.path / NAME)[0]:
            if line.kind in ("cell_started", "cell_ended") and isinstance(line.data.get("entry"), int):
                open_[line.data["entry"]] = line.kind == "cell_started"
        return [number for number, still in open_.items() if still and 1 <= number <= len(self.plan.entries)]

    def damaged_lines(self) -> int:
        """Lines of the journal that a kill cut."""
        return read_journal(self.path / NAME)[1]

    def _after(self, before: Outcome, line: Line) -> Outcome:
        data: dict[str, Any] = dict(line.data)
        named = data.get("run")
        run_dir = (self.path / named).resolve() if isinstance(named, str) else None
        if run_dir is not None and not run_dir.is_dir():
            run_dir = self.runs_dir / run_dir.name  # the runs were moved
        if line.kind == "cell_started":
            return Outcome(status="running", run_dir=run_dir, attempts=before.attempts + 1)
        if line.kind != "cell_ended":
            return before
        return replace(
            before,
            status=str(data.get("status")),
            reason=str(data.get("reason") or ""),
            exit_code=data.get("exit_code"),
            run_dir=run_dir,
            took_s=data.get("took_s"),
        )

    def _looked_at(self, outcome: Outcome) -> Outcome:
        """A run that the journal saw begin and not end: its own folder knows how it went."""
        if outcome.run_dir is None or not outcome.run_dir.is_dir():
            return replace(outcome, status=INTERRUPTED, reason="the sweep was killed before its run began")
        try:
            status = read_status(outcome.run_dir)
        except SpecError as error:
            return replace(outcome, status=INTERRUPTED, reason=str(error))
        return replace(outcome, status=status.status, reason=status.reason, exit_code=status.exit_code)


def is_sweep(path: Path) -> bool:
    """Whether there is a sweep at `path`."""
    return (path / PLAN).is_file()


def default_name(plan: Plan) -> str:
    """`<utc>-<digest6>`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{plan.digest[:6]}"


def relative(path: Path, base: Path) -> str:
    """`path` as seen from `base`, so that both can be moved together."""
    return os.path.relpath(path.resolve(), base.resolve())


def utc_now() -> str:
    """ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
