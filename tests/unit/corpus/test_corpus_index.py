"""The index: any text is a safe query, what is asked for is found first, and no query scores too many pages."""

import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workloads.deep_research.corpus import index as module
from workloads.deep_research.corpus.index import Index, IndexWriter, entry, snippet, terms


def _build(path: Path, pages: list[tuple[str, str]]) -> Index:
    writer = IndexWriter(path)
    writer.add(
        [
            entry(url=f"http://a.test/{n}", title=title, content_type="text/html", html=text.encode(), text=text)
            for n, (title, text) in enumerate(pages)
        ]
    )
    writer.finish()
    return Index(path)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    pages = [(f"Common page {n}", f"a common word and number{n} of the common things") for n in range(200)]
    pages += [
        ("Hal Bridge", "It crosses the river. The bridge is old and common."),
        ("Old Hal Bridge", "It crosses the river too. A common bridge."),
        ("Zürich", "Größe und Naïveté, 東京 and emoji 🙂 here, NEAR and AND and OR"),
    ]
    return _build(tmp_path_factory.mktemp("index") / "i.sqlite", pages)


@given(st.text(max_size=300))
@example('"')
@example("title:x")
@example("NEAR(a b, 2)")
@example("AND OR NOT")
@example("a* ^b {c d}: -e + f")
@example("\x00common\x00")
@example("\ud800common")
@example("🙂")
@example("common " * 1_500)
@example("x" * 10_000)
@example("number1 " + " ".join(f"w{n}" for n in range(3_000)))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_query(index: Index, query: str) -> None:
    hits = index.search(query, 5)
    assert len(hits) <= 5
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.url for hit in hits}) == len(hits)


def test_operators_are_words(index: Index) -> None:
    assert index.search("NEAR")[0].title == "Zürich"
    assert index.search("", 5) == index.search("!?", 5) == index.search("common", 0) == []


@pytest.mark.parametrize("query", ["zurich", "ZÜRICH", "Zu\u0308rich", "grosse OR größe", "naivete", "東京"])
def test_letters_with_marks_are_found_with_and_without(index: Index, query: str) -> None:
    assert index.search(query)[0].title == "Zürich"


def test_the_title_decides_among_similar_pages(index: Index) -> None:
    assert [hit.title for hit in index.search("old hal bridge", 2)] == ["Old Hal Bridge", "Hal Bridge"]
    assert index.search("hal bridge", 1)[0].title == "Hal Bridge"


def test_a_word_that_is_on_no_page_hides_no_other(index: Index) -> None:
    assert index.search("qqqq hal", 1)[0].title in ("Hal Bridge", "Old Hal Bridge")
    assert index.search("qqqq", 1) == []


def test_common_words_are_left_out_beside_rare_ones_and_answered_when_alone(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSTINGS", 100)
    assert index.choose("common number7") == (["number7"], ["common"])
    assert index.search("the common number7", 1)[0].title == "Common page 7"
    assert index.choose("common") == ([], ["common"])
    assert len(index.search("common", 10)) == 10
    assert len(index.search("qqqq common", 10)) == 10
    monkeypatch.setattr(module, "POSTINGS", 160)
    assert index.choose("common old hal bridge")[1] == ["common"]
    assert index.search("common old hal bridge", 1)[0].title == "Old Hal Bridge"


def test_left_out_words_still_count_in_a_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three have the rare word; only the title tells which is meant by the common ones."""
    monkeypatch.setattr(module, "POSTINGS", 60)
    pages = [(f"Old railway bridge {n}", "old railway bridge") for n in range(70)]
    pages += [(f"Other {n}", "something else") for n in range(500)]
    pages += [("Hal Bridge", "hal hal hal"), ("Hal Railway Bridge", "hal"), ("Old Hal Bridge", "hal hal")]
    index = _build(tmp_path / "i.sqlite", pages)
    assert index.choose("old hal bridge")[1] == ["old", "bridge"]
    for title in ("Hal Railway Bridge", "Old Hal Bridge"):
        assert index.search(title, 1)[0].title == title


def test_pages_beyond_the_small_index_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD", 10)
    monkeypatch.setattr(module, "POSTINGS", 60)
    index = _build(tmp_path / "i.sqlite", [(f"Page {n}", f"word x{n}") for n in range(100)])
    assert index.search("x99")[0].title == "Page 99"
    assert {hit.title for hit in index.search("word", 100)} == {f"Page {n}" for n in range(10)}


def test_ranking_is_bm25(tmp_path: Path) -> None:
    """More of a word, in a shorter text, and rarer words weigh more."""
    filler = "other things said at some length about nothing in particular "
    index = _build(
        tmp_path / "i.sqlite",
        [
            ("a", "apple " + filler),
            ("b", "apple apple " + filler),
            ("c", "apple " + filler * 5),
            ("d", "pear " + filler),
        ],
    )
    assert [hit.title for hit in index.search("apple")] == ["b", "a", "c"]
    assert index.search("apple pear")[0].title == "d"


def test_the_file_is_read_only_and_threads_may_share_an_index(index: Index) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        index._connection().execute("DELETE FROM pages")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(index.search("hal bridge", 1)[0].title)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["Hal Bridge"] * 8


def test_pages_come_back_as_they_were(index: Index) -> None:
    page = index.page("http://a.test/202")
    assert page is not None
    assert (page.title, page.content_type) == ("Zürich", "text/html")
    assert page.html.decode().startswith("Größe")
    assert index.page("http://a.test/999") is None


@given(st.text(max_size=2_000), st.lists(st.text(min_size=1, max_size=8), max_size=4))
@settings(max_examples=100, deadline=None)
def test_a_snippet_is_short_and_from_the_text(text: str, wanted: list[str]) -> None:
    cut = snippet(text, wanted)
    assert len(cut) <= 250
    assert cut.removeprefix("… ").removesuffix(" …").strip() in " ".join(text.split())


def test_a_snippet_shows_the_rarest_word() -> None:
    text = "common words " * 100 + "the needle is here " + "common words " * 100
    assert "needle" in snippet(text, ["needle", "common"])
    assert snippet(text, ["common"]).startswith("common")


def test_terms_are_what_the_index_has() -> None:
    assert terms("The Hal-Bridge's Größe, the 1,234 foo_bar") == [
        "the",
        "hal",
        "bridge",
        "s",
        "große",
        "1",
        "234",
        "foo",
        "bar",
    ]
