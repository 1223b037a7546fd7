"""The loop of a sweep: one run after the other, each written into the journal before and after, none of them fatal."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from adapters.base import Adapter, load_adapter
from harness.live import Display
from harness.protocol.errors import BenchError, SpecError, WorkerError
from harness.protocol.recorder import RUN_ID_VARIABLE
from harness.protocol.spec import RunSpec
from harness.run import RunResult, run
from harness.run_folder import read_status
from harness.specs import Machine, check_machine
from harness.supervisor.processes import all_processes, marked
from harness.sweep.eta import remaining
from harness.sweep.folder import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    PENDING,
    REFUSED,
    Outcome,
    SweepFolder,
    relative,
    utc_now,
)
from harness.sweep.plan import Entry, Plan
from harness.sweep.words import took

CTRL_C = 130
LEFTOVER_PATIENCE_S = 60.0  # for the processes of a killed run: its supervisor ends them within 30 s

Runner = Callable[[RunSpec, Adapter, Path, str], RunResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """How a sweep stands when its loop ends. `outcomes` follow the plan's order. `exit_code` is that of the command."""

    outcomes: tuple[Outcome, ...]
    exit_code: int
    interrupted: bool


def sweep(
    folder: SweepFolder,
    *,
    machine: Machine,
    say: Callable[[str], None],
    display: Callable[[], Display],
    retry_failed: bool = False,
    runner: Runner | None = None,
    after: Callable[[Path], None] | None = None,
) -> SweepResult:
    """Runs what is left of a sweep: entries that never ended, were interrupted or killed, or (if asked) failed.

    Args:
        folder: with its plan; locked while this runs.
        machine: what is here; a cell that takes more is refused.
        say: where one line per run goes.
        display: makes what shows a single run while it goes on.
        retry_failed: runs failed and here-refused entries again.
        runner: makes one run; `harness.run.run` when None.
        after: called with the folder of each run that ended, before the next one starts.

    Returns:
        Exit code 0: all finished or were refused; 2: all were refused; 4: some failed; 128 + signal (Ctrl-C: 130):
        ended early.

    Raises:
        SpecError: another process runs this sweep.
        OSError: the journal can't be written.
    """
    with folder.held():
        return _Loop(folder, machine, say, runner or _runner(display), after).go(retry_failed)


def left(plan: Plan, outcomes: Sequence[Outcome], retry_failed: bool) -> list[Entry]:
    """What a sweep that stands so has still to run, in the plan's order."""
    again = (PENDING, INTERRUPTED, "running", *((*FAILED, REFUSED) if retry_failed else ()))
    return [entry for entry in plan.entries if outcomes[entry.number - 1].status in again]


def _runner(display: Callable[[], Display]) -> Runner:
    def make(spec: RunSpec, adapter: Adapter, runs_dir: Path, name: str) -> RunResult:
        return run(spec, adapter, runs_dir, name=name, display=display())

    return make


@dataclass(slots=True)
class _Loop:
    folder: SweepFolder
    machine: Machine
    say: Callable[[str], None]
    runner: Runner
    after: Callable[[Path], None] | None

    def go(self, retry_failed: bool) -> SweepResult:
        plan, journal = self.folder.plan, self.folder.journal
        outcomes = self.folder.state()
        journal.add("sweep_started", utc=utc_now(), digest=plan.digest)
        self._settle(outcomes)
        todo = left(plan, outcomes, retry_failed)
        done = len(outcomes) - len(todo)
        if done:
            self.say(f"{done} of {len(outcomes)} runs are done; {len(todo)} to go")
        stopped: int | None = None
        for place, entry in enumerate(todo):
            self.say(f"{self._head(entry)}: starting · left: {remaining(plan, outcomes, todo[place:])}")
            outcome, stopped = self._one(entry, outcomes[entry.number - 1])
            outcomes[entry.number - 1] = outcome
            if stopped:
                break
        code = stopped or _exit_code(outcomes)
        journal.add("sweep_ended", utc=utc_now(), exit_code=code)
        return SweepResult(outcomes=tuple(outcomes), exit_code=code, interrupted=stopped is not None)

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Writes down how the run went that a kill cut off, and waits for what it left running."""
        for number in self.folder.cut_off():
            outcome = outcomes[number - 1]
            if outcome.run_dir is not None and outcome.run_dir.is_dir():
                self._wait_for_leftovers(outcome.run_dir)
            self._end(number, outcome)

    def _wait_for_leftovers(self, run_dir: Path) -> None:
        """A killed harness leaves its supervisor to end the run's processes; the next run waits for it."""
        run_id = read_status(run_dir).meta.get("run_id")
        if not isinstance(run_id, str):
            return
        end = time.monotonic() + LEFTOVER_PATIENCE_S
        while left := marked(RUN_ID_VARIABLE, run_id, all_processes()):
            if time.monotonic() > end:
                names = ", ".join(f"{process.name} ({pid})" for pid, process in sorted(left.items()))
                raise WorkerError(f"processes of {run_dir.name} are still running: {names}; end them, then resume")
            time.sleep(0.2)

    def _one(self, entry: Entry, before: Outcome) -> tuple[Outcome, int | None]:
        """One entry, and the exit code to stop with when a person or the machine asked to."""
        cell = self.folder.plan.cells[entry.cell]
        spec = cell.spec
        if spec is None:  # never planned
            raise AssertionError(f"entry {entry.number} is of a refused cell")
        name = _new_name(self.folder.runs_dir, spec)
        run_dir = self.folder.runs_dir / name
        attempts = before.attempts + 1
        self.folder.journal.add(
            "cell_started",
            entry=entry.number,
            cell=cell.number,
            round=entry.round,
            attempt=attempts,
            run=relative(run_dir, self.folder.path),
            utc=utc_now(),
        )
        began = time.monotonic()
        outcome, stopped = self._run(spec, name)
        outcome = replace(
            outcome,
            attempts=attempts,
            run_dir=run_dir if run_dir.is_dir() else None,
            took_s=round(time.monotonic() - began, 3),
        )
        self._end(entry.number, outcome)
        self.say(f"{self._head(entry)}: {_how(outcome)}")
        if self.after is not None and outcome.run_dir is not None and stopped is None:
            self.after(outcome.run_dir)
        return outcome, stopped

    def _run(self, spec: RunSpec, name: str) -> tuple[Outcome, int | None]:
        """One run; whatever becomes of it is an outcome."""
        run_dir = self.folder.runs_dir / name
        try:
            check_machine(spec, self.machine)
            result = self.runner(spec, load_adapter(spec.framework), self.folder.runs_dir, name)
        except KeyboardInterrupt:  # before the worker started, or while its tables were made
            if run_dir.is_dir() and (kept := read_status(run_dir)).status == FINISHED:
                return Outcome(status=FINISHED, exit_code=kept.exit_code), CTRL_C
            return Outcome(status=INTERRUPTED, reason="interrupted by Ctrl-C", exit_code=CTRL_C), CTRL_C
        except SpecError as error:
            return Outcome(status=REFUSED, reason=str(error), exit_code=error.exit_code), None
        except BenchError as error:
            return Outcome(status="failed", reason=str(error), exit_code=error.exit_code), None
        except Exception as error:
            path = self.folder.path / f"traceback-{name}.txt"
            path.write_text(traceback.format_exc(), encoding="utf-8")
            reason = f"unexpected {type(error).__name__}: {error}; this is a defect of bench, details in {path}"
            return Outcome(status="failed", reason=reason, exit_code=1), None
        stopped = (result.exit_code or CTRL_C) if result.status == INTERRUPTED else None
        return Outcome(status=result.status, reason=result.reason, exit_code=result.exit_code), stopped

    def _end(self, number: int, outcome: Outcome) -> None:
        self.folder.journal.add(
            "cell_ended",
            entry=number,
            run=outcome.run_dir and relative(outcome.run_dir, self.folder.path),
            status=INTERRUPTED if outcome.status == "running" else outcome.status,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            took_s=outcome.took_s,
            utc=utc_now(),
        )

    def _head(self, entry: Entry) -> str:
        plan = self.folder.plan
        width = len(str(len(plan.entries)))
        turn = f", round {entry.round} of {plan.repeats}" if plan.repeats > 1 else ""
        return f"[{entry.number:>{width}}/{len(plan.entries)}{turn}] {plan.cells[entry.cell].label}"


def _how(outcome: Outcome) -> str:
    text = outcome.status + (f" in {took(outcome.took_s)}" if outcome.took_s is not None else "")
    if outcome.status != FINISHED and outcome.reason:
        text += f": {outcome.reason.splitlines()[0]}"
    return text + (f" · {outcome.run_dir.name}" if outcome.run_dir else "")


def _exit_code(outcomes: Sequence[Outcome]) -> int:
    if all(outcome.status == REFUSED for outcome in outcomes):
        return SpecError.exit_code  # nothing ran at all: no success
    return 0 if all(outcome.status in (FINISHED, REFUSED) for outcome in outcomes) else WorkerError.exit_code


def _new_name(runs_dir: Path, spec: RunSpec) -> str:
    """As a run names its folder itself; known before it starts, so that the journal can say it."""
    stem = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{spec.framework}-{spec.placement.value}-{spec.spec_digest[:6]}"
    name, number = stem, 1
    while (runs_dir / name).exists():
        number += 1
        name = f"{stem}-{number}"
    return name
