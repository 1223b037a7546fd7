"""A corpus that was cut, overwritten or half deleted: found before anything starts, said with what to do, rebuilt."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import call
from harness.live import SilentDisplay
from harness.prepare import corpus_folder, prepare
from harness.run_folder import RunFolder
from harness.specs import resolve
from workloads.deep_research.corpus import build, soundness
from workloads.deep_research.corpus.build import build_corpus, damage, open_corpus, read_facts
from workloads.deep_research.corpus.loaders import import_corpus


def cut(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:-8192])


def overwrite(database: Path) -> None:
    data = bytearray(database.read_bytes())
    data[100 : len(data) // 2] = b"\xa5" * (len(data) // 2 - 100)  # its size stays what the header says
    database.write_bytes(bytes(data))


def gone(database: Path) -> None:
    database.unlink()


def emptied(database: Path) -> None:
    database.write_bytes(b"")


def replaced(database: Path) -> None:
    database.write_bytes(b"a page of something else" * 1_000)


def of_another(database: Path) -> None:
    other = database.parent.parent / "other"
    build_corpus(other, pages=101, seed=1)
    database.write_bytes((other / build.DATABASE).read_bytes())


SPOILED = [cut, overwrite, gone, emptied, replaced]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A corpus of a user's pages."""
    source = tmp_path / "pages"
    source.mkdir()
    for number in range(60):
        (source / f"p{number}.md").write_text(f"# River {number}\n\n" + f"All about river {number}. " * 300)
    import_corpus(source, tmp_path / "own")
    return tmp_path / "own"


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("spoil", SPOILED)
def test_damage_is_found_and_a_sound_one_is_sound(
    own: Path, spoil: Callable[[Path], None], whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(soundness, "WHOLE_BYTES", 0)
    facts = read_facts(own)
    assert facts is not None
    assert damage(own, facts) is None
    spoil(own / build.DATABASE)
    found = damage(own, facts)
    assert found is not None
    assert "corpus.sqlite is damaged" in found
    assert f"bench tools build {own.parent / 'pages'} -o {own}" in found
    assert "\n" not in found


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
def test_another_corpuss_pages_are_damage_too(tmp_path: Path, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(soundness, "WHOLE_BYTES", 0)
    facts = build_corpus(tmp_path / "c", pages=100, seed=1)
    of_another(tmp_path / "c" / build.DATABASE)
    assert "it has 101 pages, and 100 were put there" in (damage(tmp_path / "c", facts) or "")


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_run_with_a_damaged_corpus_ends_before_it_starts(
    own: Path, tmp_path: Path, spoil: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    spoil(own / build.DATABASE)
    asked = ["--framework", "simulated", "--placement", "async", "--tools", "local", "--corpus", str(own)]
    for more in ([], ["--dry-run"]):
        assert call(["run", *asked, *more, "--runs-dir", str(runs)]) == 2
        said = capsys.readouterr().err
        assert "build it again (bench tools build " in said
        assert "Traceback" not in said
    assert not runs.exists()
    assert call(["tools", "show", str(own), "--search", "river"]) == 2
    assert "build it again (bench tools build " in capsys.readouterr().err


def test_what_is_said_to_do_helps(own: Path, tmp_path: Path) -> None:
    cut(own / build.DATABASE)
    assert call(["tools", "build", str(tmp_path / "pages"), "-o", str(own)]) == 0
    assert open_corpus(own).search("river 7")
    made = build_corpus(tmp_path / "made", pages=100, seed=1)
    (tmp_path / "made" / build.QUESTIONS).unlink()
    assert "questions.jsonl is missing" in (damage(tmp_path / "made", made) or "")
    assert build_corpus(tmp_path / "made", pages=100, seed=1) == made  # built again, and not found to be there
    assert damage(tmp_path / "made", made) is None


def test_a_damaged_one_in_the_cache_is_built_again_by_the_run_that_meets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("harness.specs.inputs.LEAST_PAGES", 100)
    said: list[str] = []
    folder = corpus_folder("generated:100", 1, said.append)
    assert not any("is damaged (" in each for each in said)
    digest = open_corpus(folder).facts.digest
    cut(folder / build.DATABASE)
    asked = {"framework": "simulated", "placement": "async", "tools": "local", "corpus": "generated:100"}
    spec = resolve(asked, dry_run=True).spec
    prepare(RunFolder.create(tmp_path / "runs", spec), spec, SilentDisplay())
    assert open_corpus(folder).facts.digest == digest
    assert open_corpus(folder).search("the")
    cut(folder / build.DATABASE)
    corpus_folder("generated:100", 1, said.append)
    assert any("corpus.sqlite is damaged (" in each for each in said)


def test_one_at_a_time_has_the_lock_and_the_last_takes_it_away(tmp_path: Path) -> None:
    inside, most = 0, 0
    count = threading.Lock()

    def build_it() -> None:
        nonlocal inside, most
        for _ in range(50):
            with build._alone(tmp_path / "c"):
                with count:
                    inside += 1
                    most = max(most, inside)
                with count:
                    inside -= 1

    threads = [threading.Thread(target=build_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 1
    assert list(tmp_path.iterdir()) == []
