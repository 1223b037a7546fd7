"""Building a corpus: whole or not there, once for all who want it, the same whoever makes it."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.protocol.errors import SpecError
from workloads.deep_research.corpus import build
from workloads.deep_research.corpus.build import build_corpus, generated_name, import_entries, open_corpus, read_facts
from workloads.deep_research.corpus.index import entry
from workloads.deep_research.corpus.making import batches

TOP = Path(__file__).parents[3]


def test_a_corpus_is_built_once_and_opened(tmp_path: Path) -> None:
    out = tmp_path / generated_name(120, 4)
    seen: list[tuple[int, int | None]] = []
    facts = build_corpus(out, pages=120, seed=4, progress=lambda done, total: seen.append((done, total)))
    assert (facts.pages, facts.seed, facts.source) == (120, 4, "generated")
    assert seen[-1] == (120, 120)
    before = (out / "corpus.sqlite").stat()
    assert build_corpus(out, pages=120, seed=4) == facts
    assert (out / "corpus.sqlite").stat().st_mtime_ns == before.st_mtime_ns
    corpus = open_corpus(out)
    assert corpus.facts == facts
    row = next(corpus.questions())
    assert row.start_url is not None
    page = corpus.page(row.start_url)
    assert page is not None
    assert page.title == row.extra["start"]
    assert corpus.page(row.start_url.replace("http:", "https:") + "#part") == page
    assert corpus.page("http://nowhere.test/") is None
    assert sorted(path.name for path in out.iterdir()) == ["corpus.json", "corpus.sqlite", "questions.jsonl"]
    assert list(tmp_path.iterdir()) == [out]  # and nothing beside it


def test_several_processes_make_the_same_corpus() -> None:
    alone = [fingerprint for batch in batches(450, 2, 1) for _, fingerprint, _ in batch]
    together = [fingerprint for batch in batches(450, 2, 3) for _, fingerprint, _ in batch]
    assert len(alone) == 450
    assert alone == together


def test_the_digest_tells_corpora_apart(tmp_path: Path) -> None:
    digests = {
        build_corpus(tmp_path / f"{pages}-{seed}", pages=pages, seed=seed).digest
        for pages, seed in ((100, 1), (100, 2), (101, 1))
    }
    assert len(digests) == 3


def test_what_is_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(SpecError, match="no corpus"):
        build_corpus(tmp_path / "mine", pages=100, seed=1)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    build_corpus(tmp_path / "c", pages=100, seed=1)
    with pytest.raises(SpecError, match="another corpus"):
        build_corpus(tmp_path / "c", pages=100, seed=2)
    with pytest.raises(SpecError, match="99 pages"):
        build_corpus(tmp_path / "d", pages=99, seed=2)
    assert not (tmp_path / "d").exists()


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    assert build_corpus(tmp_path / "c", pages=100, seed=1).pages == 100


def test_opening_what_is_no_corpus_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="bench tools build"):
        open_corpus(tmp_path)
    assert read_facts(tmp_path) is None
    (tmp_path / "corpus.json").write_text("{")
    with pytest.raises(SpecError, match="build it again"):
        open_corpus(tmp_path)
    build_corpus(tmp_path / "c", pages=100, seed=1)
    raw = json.loads((tmp_path / "c" / "corpus.json").read_text())
    (tmp_path / "c" / "corpus.json").write_text(json.dumps({**raw, "format": 99}))
    with pytest.raises(SpecError, match="format 99"):
        open_corpus(tmp_path / "c")
    (tmp_path / "c" / "corpus.json").write_text(json.dumps(raw))
    (tmp_path / "c" / "corpus.sqlite").write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(SpecError, match=r"corpus\.sqlite: can't be read"):
        open_corpus(tmp_path / "c")


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    page = entry(url="http://a.test/1", title="a", content_type="text/html", html=b"a", text="a")
    with pytest.raises(SpecError, match=r"two pages have the address http://a\.test/1"):
        import_entries(tmp_path / "c", [page, page], source="somewhere")
    with pytest.raises(SpecError, match="no page"):
        import_entries(tmp_path / "c", [], source="somewhere")
    assert list(tmp_path.iterdir()) == []


def _build(out: str) -> str:
    return build_corpus(Path(out), pages=150, seed=9).digest


def test_builds_of_one_folder_wait_for_one_another(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        digests = pool.map(_build, [str(tmp_path / "c")] * 3)
    assert len(set(digests)) == 1
    assert open_corpus(tmp_path / "c").facts.digest == digests[0]
    assert not (tmp_path / ".c.building").exists()


def test_after_a_kill_the_corpus_is_built_again_and_no_process_stays(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom workloads.deep_research.corpus.build import build_corpus\n"
        f"build_corpus(Path({str(tmp_path / 'c')!r}), pages=20_000, seed=1, processes=2)"
    )
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=TOP, start_new_session=True)
    _wait(lambda: (tmp_path / ".c.building" / build.DATABASE).exists())
    children = _group(killed.pid)
    killed.send_signal(signal.SIGKILL)
    killed.wait(timeout=60)
    assert not (tmp_path / "c").exists()
    _wait(lambda: not _group(killed.pid))
    assert len(children) >= 1
    assert build_corpus(tmp_path / "c", pages=100, seed=1).pages == 100
    assert not (tmp_path / ".c.building").exists()


def _group(group: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry_ in Path("/proc").iterdir():
        if entry_.name.isdigit():
            try:
                fields = (entry_ / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry_.name))
    return found


def _wait(what: object, limit_s: float = 60.0) -> None:
    assert callable(what)
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_everything_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        real(descriptor)
        if path == tmp_path or tmp_path in path.parents:  # not what another thread of the process syncs
            synced.append(path.name)
            assert (tmp_path / "c").exists() == (path == tmp_path)

    monkeypatch.setattr(os, "fsync", fsync)
    build_corpus(tmp_path / "c", pages=100, seed=1)
    assert sorted(synced) == sorted([".c.building", "corpus.json", "corpus.sqlite", "questions.jsonl", tmp_path.name])
