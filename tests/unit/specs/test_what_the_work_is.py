"""Requests that mean the same work have one work digest, and requests that mean another have another."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import call
from harness.protocol.errors import EnvError, SpecError
from harness.protocol.spec import RunSpec
from harness.specs import Machine, Resolved, resolve
from harness.specs.defaults import MAX_TURNS
from reports.provenance import work_differences
from workloads.deep_research.corpus.build import build_corpus, import_entries
from workloads.deep_research.corpus.index import entry
from workloads.deep_research.presets import PRESETS, encode_preset
from workloads.deep_research.trace import Call, write_trace

NONE = Machine(why="no NVIDIA GPU is visible")
KEYS = ("SEARXNG_URL", "SERPER_API_KEY", "TAVILY_API_KEY", "BRAVE_API_KEY")
LIVE: dict[str, Any] = {"load": "live", "tools": "local", "policy": "scripted"}


@pytest.fixture(autouse=True)
def _without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def resolved(**flags: Any) -> Resolved:
    return resolve({"framework": "simulated", "placement": "async", **flags}, machine=NONE)


def spec(**flags: Any) -> RunSpec:
    return resolved(**flags).spec


def trace(folder: Path) -> str:
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
    write_trace(path, [call], {"tools": "local"})
    return f"replay:{path}"


def questions(folder: Path, name: str = "q.jsonl") -> str:
    (folder / name).write_text('{"question": "Who?", "answer": "Ada"}\n')
    return str(folder / name)


def test_other_questions_are_other_work(tmp_path: Path) -> None:
    for tools in ("mock", "local", trace(tmp_path)):
        own = {} if tools == "local" else {"corpus": "generated:1000"}
        asked = [
            {"dataset": "generated"},
            {"dataset": "corpus", **own},
            {"dataset": "corpus", "corpus": "generated:2000"},
            {"dataset": questions(tmp_path)},
        ]
        assert len({spec(tools=tools, **flags).work_digest for flags in asked}) == len(asked), tools
    named = spec(tools="local", dataset="generated"), spec(tools="local")
    assert [one.dataset_digest.partition(":")[0] for one in named] == ["generated", "corpus"]


def test_a_corpus_that_nobody_reads_is_no_part_of_the_work() -> None:
    plain = spec(dataset="generated").work_digest
    assert spec(dataset="generated", corpus="generated:2000").work_digest == plain
    assert spec(corpus="generated:2000").work_digest != plain  # its questions are asked


def test_a_corpus_is_named_by_its_pages(tmp_path: Path) -> None:
    def made(name: str, body: str) -> str:
        html = f"<p>{body}</p>".encode()
        page = entry(url="http://corpus.test/a", title="A", content_type="text/html", html=html, text=body)
        import_entries(tmp_path / name, [page], source=f"/somewhere/{name}")
        return spec(tools="local", corpus=str(tmp_path / name)).work_digest

    assert made("one", "same words") == made("two", "same words") != made("three", "other words")


def test_a_generated_corpus_is_the_same_by_recipe_and_by_folder(tmp_path: Path) -> None:
    build_corpus(tmp_path / "built", pages=1_000, seed=1, processes=1)
    by_folder = spec(tools="local", corpus=str(tmp_path / "built"))
    assert by_folder.work_digest == spec(tools="local").work_digest
    assert spec(tools="local", seed=2).corpus_digest != by_folder.corpus_digest


def test_the_format_of_the_index_is_part_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    before = spec(tools="local").work_digest
    monkeypatch.setattr("workloads.deep_research.corpus.build.FORMAT", 10_000)
    assert spec(tools="local").work_digest != before


def test_a_damaged_corpus_is_a_wrong_request(tmp_path: Path) -> None:
    (tmp_path / "corpus.json").write_text('{"format": 1}')
    with pytest.raises(SpecError, match=r"corpus = .*not the facts of a corpus"):
        spec(tools="local", corpus=str(tmp_path))


def test_plain_web_is_the_providers_whose_keys_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    without = spec(tools="web")
    assert without.tools == "web"  # to be looked at; it can't be started
    monkeypatch.setenv("BRAVE_API_KEY", "b")
    monkeypatch.setenv("TAVILY_API_KEY", "  ")
    one = spec(tools="web")
    monkeypatch.setenv("SERPER_API_KEY", "s")
    found = resolved(tools="web")
    assert (one.tools, found.spec.tools) == ("web:brave", "web:serper,brave")
    assert any(note.startswith("tools = web:serper,brave") for note in found.notes)
    assert len({each.work_digest for each in (without, one, found.spec)}) == 3
    assert spec(tools="web:serper,brave").work_digest == found.spec.work_digest
    assert spec(tools="web:brave,serper").work_digest != found.spec.work_digest  # asked in another order


def test_plain_web_without_the_libraries_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def types() -> dict[str, Any]:
        raise EnvError("--tools web needs aiohttp")

    monkeypatch.setattr("workloads.deep_research.serving.web.providers.types", types)
    monkeypatch.setenv("BRAVE_API_KEY", "b")
    assert spec(tools="web").tools == "web"


def test_a_warm_cache_and_private_pages_are_the_work_of_web_tools_alone() -> None:
    ways: list[dict[str, Any]] = [{}, {"web_cache": "off"}, {"web_cache": "read"}, {"allow_private": True}]
    assert len({spec(tools="web:brave", **flags).work_digest for flags in ways}) == 4
    assert len({spec(tools="local", **flags).work_digest for flags in ways}) == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max_turns": 5}, "max_turns = 5: allowed with load = live"),
        ({"turn_tokens": 64}, "turn_tokens = 64: allowed with load = live"),
        ({**LIVE, "preset": "deep-research"}, "preset = deep-research: allowed with load = fixed"),
        ({**LIVE, "latency_scale": 0.5}, "latency_scale = 0.5: allowed with tools = mock or replay"),
        ({"tools": "local", "latency_scale": 0.5}, "latency_scale = 0.5: allowed with tools = mock or replay"),
        ({"tools": "web:brave", "latency_scale": 2.0}, "a call to web tools takes what it takes"),
        ({"tools": "local", "preset": "deep-research-faulty-smoke"}, "which mock tools alone play, and tools = local"),
    ],
)
def test_what_would_change_nothing_is_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(**flags)
    assert said in str(caught.value)


def test_faults_of_a_file_are_mock_tools_too_and_a_live_load_takes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(encode_preset(PRESETS["deep-research-faulty-smoke"]))
    assert spec(preset=str(path)).preset == "deep-research-faulty-smoke"
    for tools in ("local", trace(tmp_path)):
        with pytest.raises(SpecError, match="it has faults"):
            spec(preset=str(path), tools=tools)
    path.write_text(json.dumps({**json.loads(encode_preset(PRESETS["deep-research-smoke"])), "most_calls": 3}))
    with pytest.raises(SpecError, match="preset = deep-research-smoke: allowed with load = fixed"):
        spec(**LIVE, preset=str(path))


def test_the_defaults_written_out_are_no_wish(tmp_path: Path) -> None:
    plain = spec()
    assert spec(max_turns=plain.max_turns, turn_tokens=plain.turn_tokens, thinking="keep", policy="model") == plain
    assert spec(**LIVE, preset=spec(**LIVE).preset, latency_scale=1.0) == spec(**LIVE)
    tools = trace(tmp_path)
    assert spec(tools=tools, latency_scale=0.5).work_digest != spec(tools=tools).work_digest


def test_a_reward_is_named_by_what_it_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "own_rewards_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('a package that must not be run to be named')")
    module = package / "sums.py"
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(text: str) -> RunSpec:
        module.write_text(text)
        return spec(**LIVE, reward=f"{package.name}.sums:score")

    one, again, other = (digest(f"raise RuntimeError\n# {word}") for word in ("a", "a", "b"))
    assert one.work_digest == again.work_digest != other.work_digest
    assert package.name not in sys.modules
    assert spec(**LIVE).reward_digest == ""


@pytest.mark.parametrize("name", ["no_such_module", "no_such.module", "json.no_such", "math", "sys"])
def test_a_reward_that_is_not_seen_from_here_is_said_to_be_unknown(name: str) -> None:
    found = resolved(**LIVE, reward=f"{name}:score")
    assert found.spec.reward_digest == "unknown"
    assert any(f"reward = {name}:score: its source is not found here" in note for note in found.notes)


def test_two_specs_differ_in_what_their_digests_differ_in() -> None:
    plain = spec()
    idle = replace(plain, corpus_digest="x", max_turns=3, web_cache="off")
    assert (work_differences(plain, idle), idle.work_digest) == ([], plain.work_digest)
    assert work_differences(plain, replace(idle, seed=2)) == ["seed (1 and 2)"]


def test_the_help_knows_the_default_number_of_turns(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--help"]) == 0
    assert f"Turns of a live trajectory. Default: {MAX_TURNS}." in " ".join(capsys.readouterr().out.split())
    assert spec(**LIVE).max_turns == MAX_TURNS


@pytest.mark.parametrize("where", [{"nodes": 2, "gpus": "2+2"}, {"ray_address": "10.0.0.1:6379"}])
@pytest.mark.parametrize("questions_of", ["corpus", "file"])
def test_rows_do_not_travel_to_other_machines(tmp_path: Path, where: dict[str, Any], questions_of: str) -> None:
    asked = {"corpus": "generated:1000"} if questions_of == "corpus" else {"dataset": questions(tmp_path)}
    with pytest.raises(SpecError, match=r"dataset = .*: allowed on one machine, .*workers on other machines don't see"):
        resolve({"framework": "skyrl", "placement": "async", "device": "cuda", **where, **asked}, machine=NONE)
