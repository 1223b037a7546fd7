"""The parent's side of a run's tool server: whether it can be served, how it is started, and what it counted."""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.protocol.errors import EnvError, SpecError
from harness.protocol.spec import RunSpec
from harness.recordings import free_recordings, keep_recordings, lost_records
from workloads.deep_research import remote

MODULE = "workloads.deep_research.serving"
LOG, STATS = "tool-server.log", "tool-server.json"  # in the run's logs
RECORDING_GRACE_S = 60.0  # to make its trace whole; what is not done by then is done after the run
INSTALL = "pip install 'agentic-rl-bench[tools]'"
LIBRARIES = {
    "aiohttp": "aiohttp",
    "trafilatura": "trafilatura",
    "lxml_html_clean": "lxml-html-clean",
}  # module: package


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """How a run's tool server is started, and where it leaves what it has to say. Paths are absolute."""

    arguments: tuple[str, ...]
    address: Path  # made by the server once it answers
    log: Path
    stats: Path
    facts: Mapping[str, object] = field(default_factory=dict)  # known before it starts
    withheld: tuple[str, ...] = ()  # environment variables for it alone
    recordings: tuple[Path, ...] = ()  # traces that it may make

    def orders(self) -> dict[str, Any]:
        """The supervisor's orders about it."""
        return {
            "service": self.arguments,
            "service_name": "tool server",
            "service_log": str(self.log),
            "service_ready": str(self.address),
            "withheld": self.withheld,
            **({"service_grace_s": RECORDING_GRACE_S} if self.recordings else {}),
        }

    def over(self, say: Callable[[str], None]) -> tuple[dict[str, object], list[str]]:
        """After the run: makes its recordings whole, and tells what it did.

        Returns:
            What meta.json holds of it (`counters` is None where it left none), and notes for the run.
        """
        self.address.unlink(missing_ok=True)  # a killed one could not take it away
        try:
            counters = json.loads(self.stats.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            counters = None
        recorded, notes = keep_recordings(self.recordings, say)
        facts = {**self.facts, "counters": counters, "recorded": list(recorded)}
        return facts, [*notes, *lost_records(counters or {})]


def check_tools(spec: RunSpec) -> None:
    """Refuses tools that can't be served here, before anything is made.

    Raises:
        SpecError: they are impossible, or a provider's key is missing.
        EnvError: a library is missing.
    """
    if spec.tools == "mock":
        return
    if spec.nodes > 1 or spec.ray_address:
        where = f"nodes = {spec.nodes}" if spec.nodes > 1 else f"ray_address = {spec.ray_address}"
        raise SpecError(
            f"tools = {spec.tools}: allowed on one machine, with a Ray of its own, and {where}; the tool server is"
            " reached on its own machine only, by its address in the run's folder"
        )
    require_libraries()
    if spec.tools.partition(":")[0] == "web":
        from workloads.deep_research.serving.web.providers import chosen

        chosen(_names(spec.tools))


def require_libraries() -> None:
    """Checks that the optional libraries of the tool server are there.

    Raises:
        EnvError: names what is missing, and how to get it.
    """
    missing = [package for module, package in LIBRARIES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise EnvError(f"the tool server needs {', '.join(missing)}: {INSTALL}")


def tool_server(folder: Path, spec: RunSpec, corpus: Path | None, facts: Mapping[str, object]) -> ToolServer:
    """The tool server of the run in `folder`; `corpus` is that of local tools, `facts` what is known of it."""
    logs = folder / "logs"
    kind = spec.tools.partition(":")[0]
    known = {"kind": spec.tools, "versions": library_versions(), "record": spec.record, **facts}
    return ToolServer(
        arguments=server_arguments(folder, spec, corpus),
        address=folder / remote.FILE,
        log=logs / LOG,
        stats=logs / STATS,
        facts=known,
        withheld=_key_variables() if kind == "web" else (),
        recordings=free_recordings(spec.record),
    )


def server_arguments(folder: Path, spec: RunSpec, corpus: Path | None) -> tuple[str, ...]:
    """The command of the tool server of the run in `folder`. Keys are in its environment, never here."""
    address, stats = folder / remote.FILE, folder / "logs" / STATS
    arguments = [sys.executable, "-P", "-m", MODULE, "--tools", spec.tools, "--until-eof"]
    arguments += ["--address", str(address), "--stats", str(stats)]
    kind = spec.tools.partition(":")[0]
    if kind == "local":
        arguments += ["--corpus", str(corpus)]
    if kind == "replay":
        arguments += ["--trace", spec.trace, "--scale", repr(spec.latency_scale)]
    if spec.record is not None:
        arguments += ["--record", spec.record, "--work", json.dumps(work_of(spec))]
    if kind == "web":
        arguments += ["--cache", spec.web_cache]
        arguments += ["--allow-private"] if spec.allow_private else []
    return tuple(arguments)


def work_of(spec: RunSpec) -> dict[str, object]:
    """What a later run must have in common with this one to ask the tools the same."""
    return {"seed": spec.seed, "corpus": spec.corpus, "dataset": spec.dataset, "columns": dict(spec.columns)}


def library_versions() -> dict[str, str | None]:
    """Of what the tool server is made; None for what can't be told."""
    import sqlite3

    found: dict[str, str | None] = {"sqlite": sqlite3.sqlite_version}
    for package in LIBRARIES.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _names(tools: str) -> list[str]:
    return [name for name in tools.partition(":")[2].split(",") if name]


def _key_variables() -> tuple[str, ...]:
    from workloads.deep_research.serving.web.providers import types

    return tuple(kind.key_variable for kind in types().values())
