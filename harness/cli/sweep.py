"""`bench sweep`: a matrix of runs, one after the other, and one report."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.output import fail, folder_named, save_traceback, table, writable
from harness.protocol.errors import BenchError, SpecError

if TYPE_CHECKING:
    from harness.live import Display
    from harness.progress import Progress
    from harness.sweep.execute import SweepResult
    from harness.sweep.folder import SweepFolder
    from harness.sweep.plan import Plan

_ELSEWHERE = "name another place with --runs-dir"


@click.command("sweep", short_help="Run a matrix of runs, and report it.")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file: [matrix] with lists, [common], [overrides.<framework>], [[include]], [[exclude]].",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Go on with this sweep, after any interruption.",
)
@click.option("--repeats", type=int, help="Rounds: each runs every cell once. Default: the file's, else 1.")
@click.option("--shuffle", type=int, metavar="SEED", help="Seed of each round's order. Default: the file's, else 1.")
@click.option("--no-shuffle", is_flag=True, help="Keep the file's order in every round.")
@click.option("--retry-failed", is_flag=True, help="With --resume: run the failed ones again, too.")
@click.option("--dry-run", is_flag=True, help="Print cells and order. Writes nothing.")
@click.option(
    "-o",
    "--out",
    metavar="DIRECTORY",
    callback=folder_named,
    help="Folder of the sweep; one that holds the same plan is resumed. Default: sweeps/<utc>-<digest>.",
)
@click.option(
    "--runs-dir",
    metavar="DIRECTORY",
    callback=folder_named,
    help="Where run folders lie. Default: runs, or where the resumed sweep has them.",
)
def command(
    config: Path | None,
    resume: Path | None,
    repeats: int | None,
    shuffle: int | None,
    no_shuffle: bool,
    retry_failed: bool,
    dry_run: bool,
    out: Path | None,
    runs_dir: Path | None,
) -> int:
    """Run frameworks x placements x splits x staleness x seeds, one after the other, and report them as one matrix.

    Example: bench sweep -c sweep.toml --repeats 3

    A run that fails is a row, not the end; a cell that a framework can't do is a row with the reason. Ctrl-C ends the
    current run cleanly; `bench sweep --resume FOLDER` goes on.
    Exit codes: 0 all finished or refused, 4 some failed, 130 interrupted.
    """
    if (config is None) == (resume is None):
        raise click.UsageError("give a sweep file (-c FILE), or a sweep to go on with (--resume FOLDER)")
    if no_shuffle and shuffle is not None:
        raise click.UsageError("--shuffle and --no-shuffle exclude each other")
    if resume is not None:
        if out is not None or repeats is not None or shuffle is not None or no_shuffle:
            raise click.UsageError("--resume goes on with the plan as it is: no --out, --repeats or --shuffle")
        folder = _open(resume, runs_dir)
        if dry_run:
            _show(folder.plan, folder)
            return 0
        return _run(folder, retry_failed)
    assert config is not None  # the check above
    from harness.specs import probe_machine
    from harness.sweep.config import read_config
    from harness.sweep.plan import make_plan

    plan = make_plan(
        read_config(config), repeats=repeats, shuffle=False if no_shuffle else shuffle, machine=probe_machine()
    )
    existing = _existing(out, plan, runs_dir)
    if dry_run:
        _show(plan, existing)
        return 0
    return _run(existing or _create(out, plan, runs_dir or Path("runs"), config), retry_failed)


def _open(path: Path, runs_dir: Path | None) -> "SweepFolder":
    from harness.sweep.folder import SweepFolder

    return SweepFolder.open(path, runs_dir)


def _existing(out: Path | None, plan: "Plan", runs_dir: Path | None) -> "SweepFolder | None":
    from harness.sweep.folder import is_sweep

    if out is None or not is_sweep(out):
        return None
    folder = _open(out, runs_dir)
    if folder.plan.digest != plan.digest:
        raise SpecError(
            f"{out}: holds another sweep (plan {folder.plan.digest}, this one is {plan.digest}); "
            f"`bench sweep --resume {out}` goes on with that one; give this one another --out"
        )
    return folder


def _create(out: Path | None, plan: "Plan", runs_dir: Path, config: Path) -> "SweepFolder":
    from importlib.metadata import version

    from harness.sweep.folder import SweepFolder, default_name

    text = config.read_text(encoding="utf-8")
    path = out or Path("sweeps") / default_name(plan)
    new = not runs_dir.exists()
    writable(runs_dir, _ELSEWHERE)
    try:
        return SweepFolder.create(path, plan, runs_dir, bench_version=version("agentic-rl-bench"), config=text)
    except BenchError:
        if new:
            with suppress(OSError):
                runs_dir.rmdir()  # made for nothing
        raise


def _show(plan: "Plan", folder: "SweepFolder | None") -> None:
    from harness.specs import check_machine, probe_machine
    from harness.sweep.words import plan_rows, state_rows, summary_line

    lines = ["dry run: nothing is started, nothing is written", "", *_head(plan), ""]
    lines.append(table(plan_rows(plan), ("cell", "what", "spec digest", "place in the order")))
    machine = probe_machine()
    unable: dict[str, list[str]] = {}
    for cell in plan.cells:
        try:
            if cell.spec is not None:
                check_machine(cell.spec, machine)
        except SpecError as error:
            unable.setdefault(str(error), []).append(cell.label)
    for reason, names in unable.items():
        some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"this machine can't start {some}: {reason}")
    if folder is not None:
        outcomes = folder.state()
        rows = state_rows(folder, outcomes)
        lines += ["", summary_line(folder, outcomes), table(rows, ("cell", "finished", "median", "else", "reason"))]
    click.echo("\n".join(lines))


def _head(plan: "Plan") -> list[str]:
    from harness.sweep.words import order_line

    count = f"{len(plan.cells)} cells, {len(plan.entries)} runs: {order_line(plan)}; plan {plan.digest}"
    return [count, *(f"note: {note}" for note in plan.notes)]


def _run(folder: "SweepFolder", retry_failed: bool) -> int:
    from harness.specs import probe_machine
    from harness.sweep.execute import left, sweep
    from harness.sweep.words import state_rows, summary_line

    if left(folder.plan, folder.state(), retry_failed):
        writable(folder.runs_dir, _ELSEWHERE)

    def say(text: str) -> None:
        click.echo(text, err=True)

    for line in (*_head(folder.plan), f"sweep: {folder.path}"):
        say(line)
    for cell in folder.plan.cells:
        if cell.refused:
            say(f"refused: {cell.label}: {cell.refused}")
    on = f"bench sweep --resume {folder.path}"
    try:
        result = sweep(
            folder,
            machine=probe_machine(),
            say=say,
            display=_display,
            retry_failed=retry_failed,
            after=_keep_figures,
        )
    except KeyboardInterrupt:
        return fail(f"interrupted; go on with: {on}", 130)
    click.echo(table(state_rows(folder, result.outcomes), ("cell", "finished", "median", "else", "reason")))
    click.echo(summary_line(folder, result.outcomes))
    if result.interrupted:
        return fail(f"interrupted; go on with: {on}", result.exit_code)
    _report(folder, result)
    if result.exit_code == 4:
        fail(f"some runs failed; run those again with: {on} --retry-failed", 4)
    elif result.exit_code:
        fail("no run could be started here", result.exit_code)
    return result.exit_code


def _report(folder: "SweepFolder", result: "SweepResult") -> None:
    try:
        from reports.matrix import write_matrix

        click.echo(f"report: {write_matrix(folder.path, folder.path)}")
    except BenchError as error:
        if not result.exit_code:
            raise
        fail(str(error), result.exit_code)  # the failure of the runs, said after this, tells more


def _keep_figures(run_dir: Path) -> None:
    """Figures of a run beside its tables, as `bench run` keeps them; its page is made by `bench report`."""
    from harness.cli.figures import keep_figures
    from results.store import load_run

    try:
        keep_figures(load_run(run_dir))
    except BenchError as error:
        click.echo(f"no figures of {run_dir.name}: {error}", err=True)
    except Exception as error:
        path = save_traceback(error, run_dir)
        text = f"no figures of {run_dir.name}: unexpected {type(error).__name__}: {error}; details in {path}"
        click.echo(text, err=True)


def _display() -> "Display":
    from harness.live import make_display

    return _CellDisplay(make_display(sys.stderr) if sys.stderr.isatty() else None)


class _CellDisplay:
    """A run inside a sweep: on a terminal its table while it goes on, and everywhere only what is unusual as lines."""

    UNUSUAL = ("stopping", "killing", "  open", "the telemetry")

    def __init__(self, terminal: "Display | None") -> None:
        self.terminal = terminal

    def stage(self, text: str) -> None:
        """Only what a person must know; the sweep's own lines say that runs start and end."""
        if not text.startswith(self.UNUSUAL):
            return
        if self.terminal is not None:
            self.terminal.stage(text)
        else:
            click.echo(text, err=True)

    def update(self, progress: "Progress", steps: int, watts: float | None) -> None:
        """The table, where there is a terminal."""
        if self.terminal is not None:
            self.terminal.update(progress, steps, watts)

    def close(self) -> None:
        """Gives the terminal back."""
        if self.terminal is not None:
            self.terminal.close()
