"""One run, from a complete spec to a sealed folder: `run` reads like the straight line it is."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adapters.base import Adapter, Environment, Launch
from harness import machine
from harness.control import Control, Outcome
from harness.envs import ensure
from harness.envs.pins import digest
from harness.live import Display, make_display
from harness.power import LatestPower
from harness.prepare import prepare
from harness.protocol import PROTOCOL_VERSION
from harness.protocol.errors import BenchError, SpecError, WorkerError
from harness.protocol.recorder import DETAIL_VARIABLE, EVENTS_VARIABLE, Recorder, RecorderFullError, make_hello
from harness.protocol.spec import Device, Load, RunSpec
from harness.run_folder import RunFolder, list_runs, read_status, run_status
from harness.scorer import check_scorer, check_scorer_of
from harness.slurm_nodes import nodes_gathered, who_starts
from harness.supervisor.orders import Orders
from harness.supervisor.scratch import clear_scratch, make_scratch
from harness.tool_server import ToolServer, check_tools
from harness.watchdog import Limits
from results.collect import collect
from workloads.deep_research.plan import slowest_plan
from workloads.deep_research.presets import preset_of

__all__ = ["RunResult", "list_runs", "read_status", "run", "run_status"]

IDLE_S = 10.0  # of samples before the launch: the idle power that a report sets beside the run's
IDLE_VARIABLE = "BENCH_IDLE_S"  # replaces it, for tests and for who needs no idle power: a report knows none below 10
TAIL_S = 1.0  # of samples after the worker's end: a counter's refresh; two ticks come on top

MOST_PLANS = 4096  # looked at for the slowest one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Where a run lies and how it went. `exit_code` is that of `bench run`."""

    run_dir: Path
    status: str
    reason: str
    exit_code: int


def run(
    spec: RunSpec,
    adapter: Adapter,
    runs_dir: Path,
    *,
    name: str | None = None,
    display: Display | None = None,
    sampler: Sequence[str] | None = None,
) -> RunResult:
    """Runs `spec` and leaves a sealed run folder in `runs_dir`, whatever becomes of the worker.

    Args:
        spec: complete, as `harness.specs` makes it.
        adapter: the parent half for `spec.framework`.
        runs_dir: made when missing.
        name: the folder's name; made from time, framework, placement and digest when None.
        display: where the run is shown; on standard error when None.
        sampler: argv of the telemetry sampler; the project's own when None, none at all when empty.

    Raises:
        SpecError: the spec is impossible here, or a folder of that name exists.
        EnvError: the environment, the run folder or the corpus can't be made, or the tools' libraries are missing.
        WorkerError: the tables can't be written. What becomes of the worker itself is in the result, not raised.
    """
    display = display or make_display(sys.stderr)
    check(spec, adapter)
    limits = Limits.of(spec.timeout, longest_trajectory_s(spec))
    lead_s = idle_seconds() if spec.device is Device.CUDA else 0.0
    folder = RunFolder.create(runs_dir, spec, name=name)
    with folder.held(), closing(folder, display):
        folder.write_meta(**first_facts(folder, spec, adapter))
        tools = prepare(folder, spec, display)
        environment = adapter.environment(spec.device, spec.engine)
        python = ensure(environment)
        check_scorer_of(python, spec.reward)
        launch = adapter.launch(spec, folder.path)
        if launch.virtual_time:
            # What this machine does meanwhile, and how long it takes, says nothing of the run.
            limits, sampler, lead_s = limits.of_virtual_time(), (), 0.0
        folder.write_files(launch.files)
        folder.write_meta(
            environment=environment_facts(environment, python),
            note=list(launch.notes),
            fairness=dict(launch.fairness),
            clock="virtual" if launch.virtual_time else "monotonic",
        )
        outcome = supervise(folder, spec, launch, python, limits, display, sampler, lead_s, tools)
        make_tables(folder, display)
        folder.seal()
    return RunResult(run_dir=folder.path, status=outcome.status, reason=outcome.reason, exit_code=outcome.exit_code)


def check(spec: RunSpec, adapter: Adapter) -> None:
    """Refuses what cannot be run, before anything is made.

    Raises:
        SpecError: names the key, or the adapter's reason.
        EnvError: a library of the tools is missing.
    """
    spec.check()
    check_tools(spec)
    check_scorer(spec, adapter)
    who_starts(spec)
    reason = adapter.supports(spec)
    if reason is not None:
        raise SpecError(f"{spec.framework} cannot run placement = {spec.placement.value}: {reason}")


def supervise(
    folder: RunFolder,
    spec: RunSpec,
    launch: Launch,
    python: Path,
    limits: Limits,
    display: Display,
    sampler: Sequence[str] | None = None,
    lead_s: float = 0.0,
    tools: ToolServer | None = None,
) -> Outcome:
    """Runs the child to its end, writes how it went into meta.json, and leaves no process and no scratch folder.

    `lead_s`: seconds of samples of every GPU before the child is started. `tools`: a server that the child needs.
    """
    scratch = make_scratch()
    ready = scratch / "sampler-ready"
    on_gpus = spec.device is Device.CUDA
    logs = folder.path / "logs"
    try:
        orders = Orders(
            run_id=folder.run_id,
            # -P: what lies in the current folder never stands in for what is installed.
            arguments=(str(python), "-P", *launch.arguments),
            env={
                "PYTHONUNBUFFERED": "1",  # the last words of a killed worker reach its log
                "PYTHONFAULTHANDLER": "1",
                **launch.env,
                EVENTS_VARIABLE: str(folder.path / "events"),
            },
            log=str(logs / "worker.log"),
            logs=str(logs),
            scratch=str(scratch),
            sampler=sampler_arguments(folder, spec, ready) if sampler is None else tuple(sampler),
            sampler_log=str(logs / "sampler.log"),
            sampler_ready=str(ready) if sampler is None and on_gpus else "",
            **(tools.orders() if tools is not None else {}),
            lead_s=lead_s,
            tail_s=TAIL_S + 2 / spec.sample_hz if on_gpus else 0.0,
        )
        display.stage(f"starting {spec.framework}, {spec.placement.value}, in {folder.path}")
        if tools is not None:
            display.stage(f"the tool server is started first; its output is in {tools.log}")
        if lead_s:
            display.stage(f"the GPUs' idle power is sampled for {lead_s:g} s first")
        hello = make_hello(folder.run_id, "supervisor")
        recorder = Recorder(folder.path / "events" / f"supervisor-{hello.host}-{hello.pid}.jsonl", hello)
        control = Control(
            folder=folder,
            orders=orders,
            limits=limits,
            steps=spec.steps,
            display=display,
            recorder=recorder,
            watts=LatestPower(folder.path / "samples"),
        )
        with nodes_gathered(spec, folder.path, folder.run_id):
            outcome = control.run()
        with contextlib.suppress(RecorderFullError):
            recorder.bye()
    finally:
        clear_scratch(scratch, logs)
    notes = [*folder.meta["note"], *outcome.notes]
    if tools is not None:
        facts, more = tools.over(display.stage)
        folder.write_meta(tools=facts)
        notes += more
    folder.write_meta(**last_facts(outcome), versions=control.progress.versions, note=notes)
    return outcome


def make_tables(folder: RunFolder, display: Display) -> None:
    """Collects the tables. Where they can't be written the events stay, and the run has not finished.

    Raises:
        WorkerError: the disk is full, or the folder can't be written.
    """
    display.stage("collecting the tables")
    try:
        collect(folder.path)
    except OSError as error:
        reason = f"the tables can't be written: {error}; the events are kept: free some space, then `bench collect`"
        if folder.meta["status"] == "finished":
            folder.write_meta(status="failed", reason=reason, exit_code=WorkerError.exit_code)
        raise WorkerError(f"{reason} {folder.path}") from error


@contextlib.contextmanager
def closing(folder: RunFolder, display: Display) -> Iterator[None]:
    """The block of a run: an error that leaves it is written into meta.json first, unless an outcome is there."""
    try:
        yield
    except BaseException as error:
        if folder.meta.get("status", "running") == "running":
            status, reason, exit_code = "failed", f"{type(error).__name__}: {error}", 1
            if isinstance(error, BenchError):
                reason, exit_code = str(error), error.exit_code
            elif isinstance(error, KeyboardInterrupt):
                status, reason, exit_code = "interrupted", "interrupted by Ctrl-C before the worker started", 130
            folder.write_meta(status=status, reason=reason, exit_code=exit_code, ended_utc=utc_now())
        raise
    finally:
        display.close()


def sampler_arguments(folder: RunFolder, spec: RunSpec, ready: Path) -> tuple[str, ...]:
    """The argv of the project's own telemetry sampler, which makes the file `ready` once every GPU has given power."""
    module = ("-P", "-m", "harness.telemetry.sampler")
    places = ("--out", str(folder.path / "samples"), "--ready", str(ready))
    dcgm = spec.dcgm if spec.device is Device.CUDA else "off"
    what = ("--hz", f"{spec.sample_hz:g}", "--dcgm", dcgm)
    return (sys.executable, *module, "--run-id", folder.run_id, *places, *what)


def idle_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """How long idle GPUs are sampled before the launch: IDLE_S, or what BENCH_IDLE_S says (0: not at all).

    Raises:
        SpecError: the variable is not a number of seconds from 0 up.
    """
    text = environ.get(IDLE_VARIABLE)
    if not text:
        return IDLE_S
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise SpecError(f"{IDLE_VARIABLE} = {text}: allowed is a number of seconds from 0 up")
    return value


def longest_trajectory_s(spec: RunSpec) -> float | None:
    """Seconds of tool calls in the longest planned trajectory; None when nothing is planned (load = live).

    Of very long runs only the first MOST_PLANS trajectories are looked at.
    """
    if spec.load is not Load.FIXED:
        return None
    prompts = min(spec.prompts, max(1, MOST_PLANS // spec.group_size))
    plan = slowest_plan(preset_of(spec), spec.seed, prompts, spec.group_size, spec.latency_scale)
    return plan.tool_seconds


def first_facts(folder: RunFolder, spec: RunSpec, adapter: Adapter) -> dict[str, Any]:
    """What meta.json holds while the run goes on; None for what only its end will tell."""
    return {
        "run_id": folder.run_id,
        "status": "running",
        "reason": "",
        "exit_code": None,
        "started_utc": utc_now(),
        "ended_utc": None,
        "started_mono_ns": None,
        "ended_mono_ns": None,
        "wall_s": None,
        "harness_pid": os.getpid(),
        **machine.source(),
        "protocol": PROTOCOL_VERSION,
        "framework_version": adapter.framework_version,
        "machine": machine.machine(),
        "gpus": machine.gpus() if spec.device is Device.CUDA else [],
        "device": spec.device.value,
        "environment": None,
        "versions": {},
        "record_detail": "steps" if os.environ.get(DETAIL_VARIABLE) == "steps" else "all",
        "fairness": {},
        "note": [],
    }


def last_facts(outcome: Outcome) -> dict[str, Any]:
    """What the end of a run adds to meta.json. `wall_s` is the worker's life, from its start to its exit."""
    facts: dict[str, Any] = {
        "status": outcome.status,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "ended_utc": utc_of(outcome.ended_wall_ns),
        "ended_mono_ns": outcome.ended_ns,
    }
    if outcome.started_ns is not None and outcome.started_wall_ns is not None:
        facts["started_utc"] = utc_of(outcome.started_wall_ns)
        facts["started_mono_ns"] = outcome.started_ns
        facts["wall_s"] = (outcome.ended_ns - outcome.started_ns) / 1e9
    return facts


def environment_facts(environment: Environment | None, python: Path) -> dict[str, Any]:
    """Which Python the worker ran with, and the pins it was built from."""
    if environment is None:
        return {"name": "harness", "pins_digest": None, "python": str(python), "status": "the harness's own Python"}
    return {
        "name": environment.name,
        "pins_digest": digest(environment),
        "python": str(python),
        "status": environment.status,
    }


def utc_of(wall_ns: int) -> str:
    """ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def utc_now() -> str:
    """ISO 8601 with milliseconds."""
    return utc_of(time.time_ns())
