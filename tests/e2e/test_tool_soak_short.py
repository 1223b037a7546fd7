"""The soak of benchmarks/tool_soak.py, short: nothing is lost, nothing stays open, every fault is an answer."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.timeout(300)
def test_agents_lose_and_leak_nothing_while_the_web_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tool_servers
    import tool_soak

    corpus = tool_servers.corpus_of(1000)
    questions = ["Who is the mayor of a town on the river?", "In which year did the expedition return?"]
    arguments = ("--tools", "local", "--corpus", str(corpus), "--faults", tool_soak.FAULTS)
    with tool_servers.tool_server(tmp_path, *arguments) as server:
        figures = asyncio.run(tool_soak.soak(tmp_path, server.pid, questions, agents=32, seconds=6.0))
    stats: dict[str, Any] = json.loads((tmp_path / "stats.json").read_text())
    figures["growth"] = 1.0  # in so few seconds the server is still warming up
    assert tool_soak.judged(figures, stats), figures
    assert figures["calls_answered"] > 32
    assert sum(figures["planted"].values()) > 0
    for name in [name for name in sys.modules if name in ("tool_servers", "tool_soak", "tracked")]:
        monkeypatch.delitem(sys.modules, name)
