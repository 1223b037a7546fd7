"""What agents read of tools that fail is what they read of its replay, over HTTP as in a run."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from workloads.deep_research.corpus.loaders import import_corpus
from workloads.deep_research.remote import FILE, RemoteTools
from workloads.deep_research.serving.app import served, write_private
from workloads.deep_research.serving.backends import Wanted, make_backend, make_recorder
from workloads.deep_research.serving.gateway import Gateway
from workloads.deep_research.tools import Observation, ToolRequest

LIMIT_S = 2.0  # of the server for a call: shorter than the tools' own, so that it is the server that gives up


async def answered(folder: Path, wanted: Wanted, requests: list[ToolRequest]) -> list[Observation]:
    """What agents are answered by a server of these tools."""
    backend, facts = make_backend(wanted)
    gateway = Gateway(backend, limit_s=LIMIT_S, recorder=make_recorder(wanted, facts))
    async with served(gateway, facts) as server:
        write_private(folder / FILE, {"url": server.url, "token": server.token})
        tools = RemoteTools(folder)
        found = [await tools.call(request) for request in requests]
        await tools.close()
    return found


def seen(answers: list[Observation]) -> list[tuple[object, ...]]:
    return [(a.text, a.status, a.detail, a.http_status, a.size, a.links) for a in answers]


def test_failures_are_read_alike(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("gislur", "wuck"):
        (source / f"{name}.md").write_text(f"# {name.title()}\n\nAll about the river {name}. " + "Words follow. " * 30)
    corpus = tmp_path / "corpus"
    import_corpus(source, corpus)
    asked = [("search_engine", "river wuck"), ("web_browser", "http://corpus.test/wuck.md")] * 19 + [("no_tool", "x")]
    requests = [
        ToolRequest(tool=tool, argument=argument, trajectory_id=f"t{number}", call=0)
        for number, (tool, argument) in enumerate(asked)
    ]
    trace = tmp_path / "trace.parquet"
    faulty = Wanted(tools="local", corpus=corpus, faults="timeout=0.1,error=0.2", record=trace)
    first = asyncio.run(answered(tmp_path, faulty, requests))
    again = asyncio.run(answered(tmp_path, Wanted(tools="replay", trace=trace, scale=0.0), requests))
    assert seen(again) == seen(first)
    by_status: Mapping[str, list[str]] = {
        status: [answer.text for answer in first if answer.status == status] for status in ("ok", "error", "timeout")
    }
    assert all(by_status.values()), {status: len(texts) for status, texts in by_status.items()}
    assert f"Calling search_engine failed: no answer within {LIMIT_S:g} s" in by_status["timeout"]
    assert any(text.startswith("Calling no_tool failed") for text in by_status["error"])
