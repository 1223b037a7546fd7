"""What a model reads."""

from hypothesis import given
from hypothesis import strategies as st

from workloads.deep_research.serving.rendering import (
    Hit,
    Page,
    failed_observation,
    one_line,
    page_observation,
    search_observation,
)
from workloads.deep_research.tools import STATUSES


def test_results() -> None:
    hits = [
        Hit(title="A\n title", url="http://a.test/", snippet="some\twords"),
        Hit(title="B", url="http://b.test/", snippet=""),
    ]
    found = search_observation("q", hits, http_status=200, size=5)
    assert found.text == "[1] A title\nhttp://a.test/\nsome words\n\n[2] B\nhttp://b.test/"
    assert found.links == (("A title", "http://a.test/"), ("B", "http://b.test/"))
    assert (found.status, found.http_status, found.size, found.detail) == ("ok", 200, 5, None)


def test_no_results() -> None:
    found = search_observation("q", [])
    assert (found.status, found.text, found.detail) == ("empty", "No results for: q", "no results")


def test_page() -> None:
    page = Page(
        title="T", url="http://a.test/", text=" words \n", links=(("B", "http://b.test/"), ("", "http://c.test/"))
    )
    found = page_observation(page, size=9)
    assert found.text == "T\nhttp://a.test/\n\nwords\n\nLinks:\n- B: http://b.test/\n- http://c.test/"
    assert found.status == "ok"


def test_page_without_text_lists_its_links() -> None:
    found = page_observation(Page(title="", url="http://a.test/", text=" ", links=(("B", "http://b.test/"),)))
    assert (found.status, found.detail) == ("empty", "the page has no text")
    assert "- B: http://b.test/" in found.text


def test_cut() -> None:
    found = page_observation(Page(title="T", url="u", text="abcdef" * 10), characters=6)
    assert "\n\nabcdef\n\n[cut: the first 6 of 60 characters]" in found.text


@given(st.text(), st.integers(1, 400))
def test_one_line_is_one_line_of_at_most_so_many_characters(text: str, characters: int) -> None:
    line = one_line(text, characters)
    assert len(line) <= characters
    assert len(line.splitlines()) <= 1


@given(st.text(), st.sampled_from(STATUSES), st.text())
def test_a_failure_says_what_and_why(what: str, status: str, detail: str) -> None:
    found = failed_observation(what, status, detail)
    assert found.status == status
    assert found.text.endswith(one_line(detail))
    assert found.detail == one_line(detail)


@given(
    st.text(max_size=50),
    st.text(max_size=3_000),
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=50),
)
def test_a_page_is_bounded_whatever_it_holds(title: str, text: str, links: list[tuple[str, str]]) -> None:
    found = page_observation(Page(title=title, url="u", text=text, links=tuple(links)), characters=100, links=5)
    assert len(found.links) <= 5
    assert len(found.text) < 100 + 600
