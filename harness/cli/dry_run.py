"""What `bench run --dry-run` prints. Reads nothing that a launch does not read, writes nothing."""

import shlex
from pathlib import Path

from adapters.base import Adapter
from harness.cli.announce import announcement
from harness.cli.output import table
from harness.cli.preflight import start_checks
from harness.prepare import corpus_place
from harness.protocol.errors import BenchError
from harness.protocol.spec import RunSpec
from harness.specs import Resolved
from harness.tool_server import check_tools, server_arguments


def describe(resolved: Resolved, adapter: Adapter, runs_dir: Path) -> str:
    """argv, environment, files and every override of the run, and whether this machine could start it."""
    spec = resolved.spec
    run_dir = runs_dir.resolve() / "RUN"
    launch = adapter.launch(spec, run_dir)
    problems, unchecked = start_checks(spec, adapter)
    try:
        check_tools(spec)
    except BenchError as error:
        problems.append(str(error))
    here = "this machine can't start it: " + "; ".join(problems) if problems else "this machine can start it"
    rows = [("work_digest", spec.work_digest), ("spec_digest", spec.spec_digest), ("here", here)]
    rows += [("not checked", one) for one in unchecked]
    parts = [
        "dry run: nothing is started, nothing is written; RUN stands for the run's folder",
        announcement(resolved, adapter) + "\n" + table(rows),
        "argv (PYTHON is the environment's interpreter)\n  " + " ".join(["PYTHON", *launch.arguments]),
        _listed("tool server", _tool_server(spec, run_dir)),
        _listed("environment variables", [f"{key}={value}" for key, value in sorted(launch.env.items())]),
        _listed("framework settings", list(launch.notes)),
        _listed("overrides asked for with -o or [overrides]", [f"{k}={v}" for k, v in spec.overrides.items()]),
        *(f"file {run_dir / name}\n{_indented(text)}" for name, text in sorted(launch.files.items())),
        f"file {run_dir / 'spec.json'}\n{_indented(spec.to_json())}",
    ]
    return "\n\n".join(parts)


def _tool_server(spec: RunSpec, run_dir: Path) -> list[str]:
    if spec.tools == "mock":
        return []
    corpus = corpus_place(spec.corpus, spec.seed) if spec.corpus else None
    return [shlex.join(server_arguments(run_dir, spec, corpus))]


def _listed(title: str, lines: list[str]) -> str:
    return f"{title}\n" + ("\n".join(f"  {line}" for line in lines) if lines else "  none")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip("\n").splitlines())
