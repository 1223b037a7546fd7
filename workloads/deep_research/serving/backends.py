"""From what is asked for to the backend that does it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.protocol.errors import SpecError
from workloads.deep_research.serving.backend import Backend
from workloads.deep_research.serving.gateway import Finding, Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which tools are to be served."""

    tools: str  # local | web | web:NAME,NAME | replay
    corpus: Path | None = None  # folder, of local tools
    trace: Path | None = None  # file that replay plays
    scale: float = 1.0  # factor on its latencies
    record: Path | None = None  # file that every call and its answer are written into
    faults: str = ""  # of local tools: KIND=RATE,...
    work: Mapping[str, object] = field(default_factory=dict)  # what a replay of the record must know of its questions
    cache: Literal["off", "read", "write"] = "write"  # of web tools: off | read | write
    allow_private: bool = False  # of web tools: whether pages of private networks may be opened


def make_backend(wanted: Wanted) -> tuple[Backend, dict[str, object]]:
    """The backend, not yet started, and what `/health` says of it.

    Raises:
        SpecError: something that the tools need is not given or not right.
        EnvError: a library is missing.
    """
    kind, _, names = wanted.tools.partition(":")
    facts: dict[str, object] = {"tools": wanted.tools}
    if wanted.faults and kind != "local":
        raise SpecError(f"faults = {wanted.faults!r}: allowed with local tools")
    if kind == "local":
        backend, more = _local(wanted)
        facts |= more
    elif kind == "web":
        from workloads.deep_research.serving.web.backend import web_tools

        backend = Finding(
            web_tools(
                [name for name in names.split(",") if name], cache=wanted.cache, allow_private=wanted.allow_private
            )
        )
    elif kind == "replay":
        if wanted.trace is None:
            raise SpecError("tools = replay: no trace is given")
        from workloads.deep_research.serving.replay import ReplayBackend
        from workloads.deep_research.trace import read_trace

        backend = ReplayBackend(read_trace(wanted.trace), wanted.scale)
    else:
        raise SpecError(f"tools = {wanted.tools!r}: a tool server has local, web or replay")
    return backend, facts


def make_recorder(wanted: Wanted, facts: Mapping[str, object]) -> Recorder | None:
    """What records the calls, if that is wanted; `facts` are the backend's.

    Raises:
        SpecError: the file can't be made, or there is one.
    """
    if wanted.record is None:
        return None
    from workloads.deep_research.serving.recording import CallRecorder
    from workloads.deep_research.trace import TraceWriter

    return CallRecorder(TraceWriter(wanted.record, {**facts, "work": dict(wanted.work)}))


def _local(wanted: Wanted) -> tuple[Backend, Mapping[str, object]]:
    if wanted.corpus is None:
        raise SpecError("tools = local: no corpus is given")
    from workloads.deep_research.corpus.build import open_corpus
    from workloads.deep_research.serving.local import LocalTools
    from workloads.deep_research.serving.local_faults import LocalFaults, parse_faults

    try:
        faults = LocalFaults(parse_faults(wanted.faults))
    except ValueError as error:
        raise SpecError(str(error)) from None
    corpus = open_corpus(wanted.corpus)
    return Finding(LocalTools(corpus, faults=faults)), {"pages": corpus.facts.pages, "corpus": corpus.facts.digest}
