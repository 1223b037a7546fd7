"""The data set as `prepare` leaves it for workers, and tools that can't be served where they would be asked."""

from pathlib import Path
from typing import Any

import pytest

from harness.live import SilentDisplay
from harness.prepare import corpus_place, prepare
from harness.protocol.errors import SpecError
from harness.run_folder import RunFolder
from harness.specs import Machine, resolve
from harness.tool_server import check_tools
from workloads.deep_research.corpus.build import import_entries
from workloads.deep_research.corpus.index import entry
from workloads.deep_research.dataset import FILE
from workloads.deep_research.work import rows_of

NONE = Machine(why="no NVIDIA GPU is visible")


def spec(**flags: Any) -> Any:
    return resolve({"framework": "simulated", "placement": "async", **flags}, machine=NONE).spec


def own_pages(folder: Path) -> str:
    page = entry(url="http://corpus.test/a", title="A", content_type="text/html", html=b"<p>words</p>", text="words")
    import_entries(folder, [page], source="/somewhere")
    return str(folder)


def test_pages_without_questions_are_a_data_set_without_rows(tmp_path: Path) -> None:
    asked = spec(tools="local", corpus=own_pages(tmp_path / "corpus"))
    folder = RunFolder.create(tmp_path / "runs", asked)
    prepare(folder, asked, SilentDisplay())
    assert (folder.path / FILE).read_text() == ""
    assert rows_of(asked, folder.path) == []
    live = spec(tools="local", load="live", policy="scripted", corpus=asked.corpus)
    with pytest.raises(SpecError, match="came without questions"):
        prepare(RunFolder.create(tmp_path / "live", live), live, SilentDisplay())


def test_a_generated_corpus_is_looked_for_and_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    place = corpus_place("generated:1000", 3)
    assert place.parent == tmp_path / "cache" / "corpora"
    assert place != corpus_place("generated:1000", 4)
    assert corpus_place("/my/own", 3) == Path("/my/own")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", [{"nodes": 2, "gpus": "2+2"}, {"ray_address": "10.0.0.1:6379"}])
@pytest.mark.parametrize("tools", ["local", "web:brave"])
def test_a_tool_server_is_reached_on_its_own_machine_only(tools: str, where: dict[str, Any]) -> None:
    asked = {"framework": "skyrl", "placement": "async", "device": "cuda", "tools": tools, "dataset": "generated"}
    found = resolve({**asked, **where}, machine=NONE).spec
    with pytest.raises(SpecError, match=rf"tools = {tools}: allowed on one machine, .*reached on its own machine only"):
        check_tools(found)
