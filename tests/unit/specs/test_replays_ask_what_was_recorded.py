"""A replay's questions are those of its trace: without them nothing in it would be found."""

from pathlib import Path
from typing import Any

import pytest

from harness.protocol.errors import SpecError
from harness.specs import resolve
from harness.tool_server import work_of
from workloads.deep_research.trace import Call, write_trace


def recorded(folder: Path, work: dict[str, Any] | None) -> str:
    path = folder / "t.parquet"
    call = Call(
        tool="search_engine",
        argument="x",
        trajectory_id="p0-s0-a0",
        call=0,
        started_mono_ns=1,
        latency_s=0.1,
        status="ok",
    )
    write_trace(path, [call], {"tools": "local"} if work is None else {"tools": "local", "work": work})
    return f"replay:{path}"


def spec(tools: str, **more: Any) -> Any:
    return resolve({"framework": "simulated", "placement": "async", "tools": tools, **more})


def test_seed_and_corpus_are_the_traces(tmp_path: Path) -> None:
    source = spec("local", corpus="generated:2000", seed=9).spec
    found = spec(recorded(tmp_path, work_of(source)))
    assert (found.spec.seed, found.spec.corpus, found.spec.dataset) == (9, "generated:2000", "corpus")
    assert any("as in the trace" in note and "seed = 9" in note for note in found.notes)


def test_what_is_asked_for_wins(tmp_path: Path) -> None:
    tools = recorded(tmp_path, {"seed": 9, "corpus": "generated:2000", "dataset": "corpus", "columns": {}})
    found = spec(tools, seed=3, corpus="generated:1000").spec
    assert (found.seed, found.corpus, found.dataset) == (3, "generated:1000", "corpus")
    assert spec(tools, dataset="generated").spec.dataset == "generated"


def test_a_trace_that_does_not_know_leaves_the_defaults(tmp_path: Path) -> None:
    found = spec(recorded(tmp_path, None)).spec
    assert (found.seed, found.corpus, found.dataset) == (1, "", "generated")


def test_what_is_no_trace_is_a_wrong_request(tmp_path: Path) -> None:
    (tmp_path / "junk.parquet").write_bytes(b"PAR1")
    with pytest.raises(SpecError, match="cannot be read as a trace"):
        spec(f"replay:{tmp_path / 'junk.parquet'}")


def test_another_generator_makes_another_work(monkeypatch: pytest.MonkeyPatch) -> None:
    before = spec("local").spec.work_digest
    monkeypatch.setattr("workloads.deep_research.corpus.generate.VERSION", 10_000)
    assert spec("local").spec.work_digest != before
