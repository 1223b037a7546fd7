"""`bench run`: resolve, show, run, report."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.output import fail, terminal_gone, traceback_into
from harness.cli.runs import runs_dir_option
from harness.protocol.errors import BenchError

if TYPE_CHECKING:
    from adapters.base import Adapter
    from harness.specs import Resolved

_NAME, _WHOLE, _NUMBER = str, int, float

# (flag, type, placeholder, help); the parameter's name is the spec's key. Values are checked by harness.specs, so that
# a flag and a line of TOML fail alike. Defaults: GPU node | CPU.
_GROUPS: tuple[tuple[str, type, str | None, str], ...] = (
    ("--framework", _NAME, "NAME", "Framework under test; `bench list frameworks` shows them."),
    ("--placement", _NAME, "colocated|disaggregated|async", "Who shares GPUs, and how old training data may be."),
    ("--gpus", _NAME, "T+R|N", "GPUs to train + roll out, e.g. 4+4; one number when colocated. Default: all, halved."),
    ("--device", _NAME, "auto|cuda|cpu", "auto: cuda where a GPU is visible. cpu is a functional check."),
    ("--model", _NAME, "NAME", "tiny, random:qwen3-{0.6b,1.7b,4b,8b,14b,32b}, a folder or a hub name."
     " Default: largest up to 14b that fits | tiny."),
    ("--steps", _WHOLE, None, "Policy updates. Default: 12 | 8."),
    ("--warmup-steps", _WHOLE, None, "Steps before the measured window. Default: max-staleness + 2."),
    ("--batch-size", _WHOLE, None, "Prompts a step. Default: 8 | 4."),
    ("--group-size", _WHOLE, None, "Trajectories a prompt. Default: 3 | 2."),
    ("--max-staleness", _WHOLE, None, "Policy versions a trajectory may lag. Default: 1 when async, else 0."),
    ("--preset", _NAME, "NAME|FILE", "Shape of the work: deep-research | deep-research-smoke, or a file that"
     " `bench tools fit` wrote."),
    ("--latency-scale", _NUMBER, None, "Factor on planned and replayed tool latencies. Default: 1."),
    ("--seed", _WHOLE, None, "Seed of the plans. Default: 1."),
    ("--context-tokens", _WHOLE, None, "Longest context. Default: 40960 | 2048 (live: 4096)."),
    ("--micro-batch-tokens", _WHOLE, None, "Tokens a training micro-batch. Default: 40960 | 2048."),
    ("--engine", _NAME, "NAME", "Inference engine. Default: the framework's usual one."),
    ("--rollout-tp", _WHOLE, None, "Tensor-parallel GPUs an engine. Default: 1."),
    ("--offload", _NAME, "none|optimizer|full", "Training state moved off the GPU between uses. Default: none."),
    ("--nodes", _WHOLE, None, "Machines. Default: 1."),
    ("--ray-address", _NAME, "HOST:PORT", "Ray cluster that is there, to run on. Every node of it is sampled."
     " Default: the framework starts its own, of this machine."),
    ("--workload", _NAME, "NAME", "Default: deep-research."),
    ("--load", _NAME, "fixed|live", "Who decides what a trajectory does. Default: fixed (the plan)."),
    ("--tools", _NAME, "NAME", "mock, local (a search engine and web of this machine), web[:PROVIDER,...],"
     " replay:FILE or record:FILE. Default: mock."),
    ("--record", _NAME, "FILE", "Write every tool call and its answer to this Parquet file."),
    ("--web-cache", _NAME, "off|read|write", "Whether answers of web tools are kept and used again. Default: write."),
    ("--corpus", _NAME, "generated:PAGES|DIR", "Pages of local tools. Default: generated:1000."),
    ("--dataset", _NAME, "NAME|FILE", "generated, corpus (the corpus's own questions), or a .parquet or .jsonl."),
    ("--reward", _NAME, "NAME", "Fixed load: plan | probe. Live load: exact | f1 | MODULE:FUNCTION."),
    ("--policy", _NAME, "model|scripted", "Who writes the replies of a live load. Default: model."),
    ("--thinking", _NAME, "keep|strip", "Whether <think> blocks stay in a live history. Default: keep."),
    ("--max-turns", _WHOLE, None, "Turns of a live trajectory. Default: 12."),
    ("--turn-tokens", _WHOLE, None, "Tokens of one live reply. Default: 2048 | 256."),
    ("--timeout", _NUMBER, "SECONDS", "End the run after this time. Default: no limit (a stall always ends it)."),
    ("--sample-hz", _NUMBER, None, "Telemetry samples a second. Default: 10."),
    ("--dcgm", _NAME, "URL|dmon|off|auto", "Where DCGM's profiling fields are read: a dcgm-exporter, `dcgmi dmon`."
     " Default: auto (an exporter on this machine, else dmon)."),
)  # fmt: skip


def _spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for flag, kind, metavar, text in reversed(_GROUPS):
        function = click.option(flag, type=kind, metavar=metavar, help=text)(function)
    return function


@click.command("run", short_help="Run a framework, measure and report it.")
@_spec_options
@click.option("--as-shipped/--no-as-shipped", default=None, help="Keep the framework's own loss and defaults.")
@click.option("--allow-private/--no-allow-private", default=None, help="Web tools may open pages of private networks.")
@click.option(
    "--unverified/--no-unverified", default=None, help="Run a cell that is refused until someone has checked it."
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='TOML file with the same keys (steps = 8, gpus = "4+4", [overrides.skyrl]). Flags win.',
)
@click.option(
    "-o",
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting passed to the framework verbatim and last; repeats. Recorded, and printed in the report.",
)
@click.option(
    "--columns", metavar="NAME=COLUMN,...", help="Columns of --dataset: prompt=question,answer=answer,extra=..."
)
@click.option("--dry-run", is_flag=True, help="Print what would be started, with every override. Writes nothing.")
@click.option("--fault", "faults", multiple=True, hidden=True)
@runs_dir_option
def command(
    config: Path | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    faults: tuple[str, ...],
    columns: str | None,
    runs_dir: Path,
    **flags: object,
) -> int:
    """Run one framework in one placement on the planned work; measure, store and report it.

    Example: bench run --framework skyrl --placement async

    Defaults are given as GPU node | CPU. The first run of a framework builds its environment, and says what that
    costs. Ctrl-C ends a run cleanly; what it recorded stays readable.

    Exit codes: see bench --help. A run that a signal ended has 128 + its number: 130 Ctrl-C, 143 TERM, 129 HUP.
    """
    from adapters.base import load_adapter
    from harness.specs import check_machine, probe_machine, resolve
    from harness.specs.inputs import parse_columns

    if faults:
        flags["faults"] = faults
    if columns is not None:
        flags["columns"] = parse_columns(columns)
    resolved = resolve(flags, config=config, overrides=overrides, dry_run=dry_run)
    adapter = load_adapter(resolved.spec.framework)
    if dry_run:
        from harness.cli.dry_run import describe

        click.echo(describe(resolved, adapter, runs_dir))
        return 0
    check_machine(resolved.spec, probe_machine())
    return _run(resolved, adapter, runs_dir)


def _run(resolved: "Resolved", adapter: "Adapter", runs_dir: Path) -> int:
    from harness.cli.announce import announcement
    from harness.cli.preflight import preflight
    from harness.live import make_display
    from harness.run import run

    click.echo(announcement(resolved, adapter), err=True)
    for unknown in preflight(resolved.spec, adapter):
        click.echo(f"bench: {unknown}", err=True)
    result = run(resolved.spec, adapter, runs_dir, display=make_display(sys.stderr))
    try:
        _tell(_report(result.run_dir))
    except BenchError as error:
        if not result.exit_code:
            raise
        fail(str(error), result.exit_code)  # the run's own failure, below, says more
    if result.exit_code:
        # "interrupted by Ctrl-C" says already that it was
        how = result.reason if result.reason.startswith(result.status) else f"{result.status}: {result.reason}"
        fail(f"{result.run_dir.name} {how} (bench logs {result.run_dir})", result.exit_code)
    return result.exit_code


def _tell(text: str) -> None:
    try:
        click.echo(text)
    except OSError as error:
        if not terminal_gone(error):  # closed while the run went on: the run's own code still says how it ended
            raise


def _report(run_dir: Path) -> str:
    with traceback_into(run_dir, "reporting"):
        from harness.cli.figures import keep_figures
        from harness.cli.summary import rows_of, summary
        from harness.protocol.spec import Device
        from reports.report import write_report
        from results.store import load_run

        run = load_run(run_dir)
        figures = keep_figures(run)
        report = write_report([run_dir], run_dir, beside=True)
        more = rows_of(run, planned_faults=figures.adherence.planned_faults)
        return summary(figures, report, gpus=run.spec.device is Device.CUDA, more=more)
