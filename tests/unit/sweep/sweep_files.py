"""Small sweep files, plans and stand-in runs for the sweep tests."""

import json
from collections.abc import Callable
from pathlib import Path

from adapters.base import Adapter
from harness.live import SilentDisplay
from harness.protocol.spec import RunSpec
from harness.run import RunResult
from harness.specs import Machine
from harness.sweep.config import read_config
from harness.sweep.execute import SweepResult, sweep
from harness.sweep.folder import SweepFolder
from harness.sweep.plan import Plan, make_plan

COMMON = """
[common]
steps = 4
latency_scale = 0.05
"""
PAIR = (
    COMMON
    + """
[matrix]
framework = "simulated"
placement = ["colocated", "async"]
"""
)


def plan_of(folder: Path, text: str = PAIR, *, repeats: int | None = None, shuffle: int | bool | None = None) -> Plan:
    """The plan of a sweep file with that text."""
    path = folder / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return make_plan(read_config(path), repeats=repeats, shuffle=shuffle, machine=Machine())


def make_folder(tmp_path: Path, plan: Plan) -> SweepFolder:
    """A new sweep folder for it."""
    return SweepFolder.create(tmp_path / "sweep", plan, tmp_path / "runs")


class Runs:
    """Stands for `harness.run.run`: leaves a folder with the status asked for, or raises what is asked for."""

    def __init__(self, *answers: str | BaseException) -> None:
        self.answers = list(answers)
        self.made: list[str] = []

    def __call__(self, spec: RunSpec, adapter: Adapter, runs_dir: Path, name: str) -> RunResult:
        answer = self.answers.pop(0) if self.answers else "finished"
        self.made.append(f"{spec.framework} {spec.placement.value}")
        folder = leave_run(runs_dir / name, spec, answer if isinstance(answer, str) else "failed")
        if isinstance(answer, BaseException):
            raise answer
        code = {"finished": 0, "interrupted": 130}.get(answer, 4)
        return RunResult(run_dir=folder, status=answer, reason="" if code == 0 else f"it {answer}", exit_code=code)


def leave_run(folder: Path, spec: RunSpec, status: str) -> Path:
    """A run folder with nothing in it but what tells its status."""
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(spec.to_json(), encoding="utf-8")
    meta = {"run_id": f"{folder.name}-abc", "status": status, "reason": "", "exit_code": 0}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder


def go(
    folder: SweepFolder,
    runner: Runs,
    *,
    retry_failed: bool = False,
    say: Callable[[str], None] = lambda _: None,
    machine: Machine | None = None,
) -> SweepResult:
    """Runs the sweep with stand-in runs."""
    return sweep(
        folder,
        machine=machine or Machine(),
        say=say,
        display=SilentDisplay,
        retry_failed=retry_failed,
        runner=runner,
    )
