"""What a page says of scripted runs, and of tools whose latencies nothing imposed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import played_folders as folders
import played_runs as played
import pytest

from harness.protocol.spec import Device, Gpus, Load, Policy, RunSpec, Thinking
from reports import style
from reports.consumed import Consumed, consumed_table, uneven_tools
from reports.markdown import Footnotes
from reports.provenance import SCRIPTED, SCRIPTED_KIND, foot, kind_of, provenance
from reports.report import write_report
from reports.served import cache_line, cache_use, imposed, served
from reports.sweep_words import claims, title
from reports.tool_table import tool_section
from results.store import RunTables
from results.tool_figures import Spread, ToolFigures

NONE = Spread(n=0, p50_ns=None, p99_ns=None, max_ns=None)
LIVE: dict[str, Any] = {"load": Load.LIVE, "tools": "web:one,two", "reward": "exact"}


def run(spec: RunSpec, **meta: Any) -> RunTables:
    return RunTables(spec=spec, meta=meta, run_dir=Path("run-1"), tables={})


def work(tool_s: float | None, trajectories: int = 8) -> Consumed:
    return Consumed(
        trajectories=trajectories, generated_tokens=10.0, observation_tokens=5.0, tool_calls=2.0, tool_s=tool_s
    )


def facts(mode: str, hits: int, misses: int) -> dict[str, Any]:
    backend = {
        "search": {"providers": {"one": {"requests": {"200": 7, "429": 1}}, "two": {"requests": {}}}},
        "cache": {"mode": mode, "hits": hits, "misses": misses},
    }
    return {"tools": "web:one,two", "counters": {"backend": backend}}


def test_a_scripted_run_is_named_under_every_picture_and_in_every_caption() -> None:
    spec = replace(played.make_spec(), **LIVE, policy=Policy.SCRIPTED)
    assert kind_of(spec) == f"functional check on CPU, {SCRIPTED_KIND}"
    assert kind_of(replace(spec, device=Device.CUDA)) == SCRIPTED_KIND
    assert SCRIPTED_KIND in foot(run(spec), "n = 3")
    assert kind_of(replace(spec, policy=Policy.MODEL, device=Device.CUDA)) is None


def test_the_provenance_has_all_that_decides_the_work() -> None:
    spec = replace(
        played.make_spec(),
        **LIVE,
        policy=Policy.SCRIPTED,
        thinking=Thinking.STRIP,
        max_turns=9,
        turn_tokens=1_234,
        dataset="/home/someone/own.jsonl",
        dataset_digest="d1d1",
        corpus="generated:800",
        corpus_digest="c2c2",
    )
    text = "\n".join(provenance(run(spec, tools=facts("read", 30, 12)), Footnotes()))
    for said in (
        "policy scripted", "thinking strip", "at most 9 turns of 1,234 generated tokens", "reward exact",
        "data set own.jsonl (d1d1)", "corpus generated:800 (c2c2)", "tools web:one,two", "web cache write",
        "providers in this order: one (8 requests), two (0 requests)", "cache read: 30 of 42 answers came from it",
    ):  # fmt: skip
        assert said in text, said
    assert "someone" not in text
    fixed = replace(played.make_spec(), tools="replay", trace="/home/someone/calls.jsonl.gz", trace_digest="t3t3")
    text = "\n".join(provenance(run(fixed), Footnotes()))
    assert "trace calls.jsonl.gz (t3t3)" in text
    assert "policy" not in text
    assert "someone" not in text


def test_the_tools_row_says_the_corpus_the_trace_and_where_calls_were_recorded() -> None:
    """With the facts that `harness.tool_server` writes."""
    spec = replace(played.make_spec(), tools="local", record="/home/someone/calls.parquet")
    known: dict[str, Any] = {"kind": "local", "corpus": {"path": "/home/someone/c", "pages": 1}}
    counters = {"recorded_calls": 307}
    one = {**known, "counters": counters, "recorded": ["/home/someone/calls.parquet"]}
    assert served(run(spec, tools=one)) == "local, corpus of 1 page, recorded into calls.parquet: 307 calls"
    two = {**one, "recorded": ["/x/calls.parquet", "/x/calls-restarted.parquet"]}
    assert str(served(run(spec, tools=two))).endswith("recorded into calls.parquet and calls-restarted.parquet")
    none = {**known, "counters": {}, "recorded": []}
    assert str(served(run(spec, tools=none))).endswith("not recorded into calls.parquet")
    replay = replace(played.make_spec(), tools="replay", trace="/home/someone/calls.parquet", trace_digest="t3")
    assert served(run(replay, tools={"counters": {}})) == "replay, played from calls.parquet"


def test_what_the_cache_had_stands_with_the_calls() -> None:
    spec = replace(played.make_spec(), **LIVE)
    cold, warm = facts("write", 0, 40), facts("write", 30, 10)
    warm["counters"]["backend"]["cache"]["hits_of_earlier_answers"] = 12
    said = cache_line(run(spec, tools=warm))
    assert said is not None
    assert said.startswith(
        "The tools' cache (write): 30 of 40 answers came from it (75.0%), 12 of them of earlier runs."
    )
    assert "in no digest" in said
    assert cache_line(run(spec, tools=cold)) == "The tools' cache (write): 0 of 40 answers came from it (0.0%)."
    assert cache_line(run(spec, tools=facts("read", 30, 10))) is not None  # of a run that did not count them apart
    for nothing in (facts("off", 0, 0), facts("write", 0, 0), {"counters": None}):
        assert cache_line(run(spec, tools=nothing)) is None
    calls = ToolFigures(
        why_none=None, calls=3, cancelled=0, outcomes=(), beyond_planned=NONE, beyond_served=NONE, processes=(),
        not_found=0, not_found_first=(),
    )  # fmt: skip
    assert said in "\n".join(tool_section(calls, Footnotes(), cache=said))
    assert "cache" not in "\n".join(tool_section(calls, Footnotes()))


def test_what_a_killed_server_left_is_told_as_unknown() -> None:
    spec = replace(played.make_spec(), **LIVE)
    assert (served(run(spec)), cache_use(run(spec))) == (None, None)
    assert "counters were not left" in str(served(run(spec, tools={"tools": "local", "counters": None})))


@pytest.mark.parametrize(("tools", "known"), [("mock", True), ("replay", True), ("local", False), ("web", False)])
def test_only_mock_tools_and_replays_impose_latencies(tools: str, known: bool) -> None:
    assert imposed(replace(played.make_spec(), tools=tools)) is known


def test_tools_are_uneven_by_their_seconds_or_their_cache() -> None:
    spec = replace(played.make_spec(), **LIVE)
    one = run(spec, tools=facts("write", 0, 100))
    other = run(spec, tools=facts("write", 90, 10))
    assert uneven_tools([(one, work(10.0)), (one, work(10.1))]) is None
    slow = uneven_tools([(one, work(10.25)), (one, work(10.75))])
    assert slow is not None
    assert "from 10.25 s to 10.75 s per trained trajectory" in slow
    warm = uneven_tools([(one, work(10.0)), (other, work(10.0))])
    assert warm is not None
    assert "0.0% to 90.0% of the answers came from the tools' cache" in warm
    assert "cache is not on record" in str(uneven_tools([(one, work(1.0)), (run(spec), work(1.0))]))
    assert "not on record" in str(uneven_tools([(one, work(1.0)), (one, work(None))]))
    mock = run(played.make_spec())
    assert uneven_tools([(mock, work(10.0)), (mock, work(20.0))]) is None


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, "offered the same plans and trained on different parts", "nothing imposed"),
        ({"tools": "local"}, "nothing imposed the latencies and answers of the tools (local)", "policy decided"),
        (LIVE, "The policy decided what was done", "different parts"),
    ],
)
def test_why_consumed_work_differs_depends_on_who_decides_it(changes: dict[str, Any], said: str, unsaid: str) -> None:
    spec = replace(played.make_spec(), **changes)
    text = "\n".join(consumed_table(spec, ["a", "b"], [work(10.0), work(20.0)], ["d", "d"], Footnotes()))
    assert said in text
    assert unsaid not in text


def test_a_comparison_of_scripted_runs_with_uneven_tools_says_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "save", lambda _, stem: [stem.with_suffix(".png"), stem.with_suffix(".svg")])
    runs = []
    for placement, hits in (("colocated", 0), ("async", 90)):
        split = Gpus(train=1, rollout=1) if placement == "async" else Gpus(train=2, rollout=2)
        spec = played.make_spec(
            placement, batch_size=2, group_size=2, steps=6, gpus=split, policy=Policy.SCRIPTED, **LIVE
        )
        runs.append(folders.write_run(tmp_path / placement, spec, tools=facts("write", hits, 100 - hits)))
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    assert SCRIPTED_KIND in text.splitlines()[0]
    assert f"**{SCRIPTED}** (`colocated`, `async`)" in text
    assert "**Tools took different times**: nothing imposed the latencies" in text
    assert "the ratio holds that difference too" in text
    assert "90.0%" in text


def test_a_sweep_of_scripted_runs_with_uneven_tools_says_both() -> None:
    spec = replace(played.make_spec(), **LIVE, policy=Policy.SCRIPTED)
    seen: list[Any] = [
        SimpleNamespace(run=run(spec, tools=facts("write", 0, 10)), work=work(tool_s), granularity=None)
        for tool_s in (10.0, 12.0)
    ]
    cell: Any = SimpleNamespace(
        label="skyrl colocated",
        framework="skyrl",
        placement="colocated",
        seen=seen,
        planned_seeds=[1, 1],
        missing_seeds=[],
    )
    assert SCRIPTED_KIND in title([cell], seen)
    text = "\n".join(claims([cell], seen))
    assert f"**{SCRIPTED}** (skyrl colocated)" in text
    assert "**Tools took different times**" in text
    plain = [SimpleNamespace(**{**vars(each), "run": run(played.make_spec())}) for each in seen]
    cell.seen = plain
    assert SCRIPTED_KIND not in title([cell], cast(Any, plain))
    assert "Tools took" not in "\n".join(claims([cell], cast(Any, plain)))
