"""Users' corpora: folders, JSONL and Parquet, and what is said of those that do not fit."""

import json
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.protocol.errors import SpecError
from workloads.deep_research.corpus.build import open_corpus
from workloads.deep_research.corpus.loaders import Columns, import_corpus, read_pages
from workloads.deep_research.corpus.skipped import Skipped

PAGE = (
    b"<html><head><title>The K&ouml;nig Bridge</title></head><body><nav><a href=/>home</a></nav>"
    b"<article><h1>Bridge</h1><p>The K\xf6nig bridge spans four hundred metres across a quiet bay. Opened in 1911.</p>"
    b"<p>Another paragraph tells of the lighthouse that stood here before it, and of its keeper.</p></article>"
    b"</body></html>"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "pages"
    (top / "sub dir").mkdir(parents=True)
    (top / ".git").mkdir()
    (top / ".git" / "hidden.html").write_text("hidden")
    (top / "bridge.html").write_bytes(PAGE)
    (top / "sub dir" / "notes.md").write_text(
        "# My notes #\n\nSee [the *bridge*](../bridge.html).\n\n- one\n- two & three\n"
    )
    (top / "plain.txt").write_bytes("Caf\xe9 notes <b>raw</b>".encode("cp1252"))
    (top / "image.png").write_bytes(b"\x89PNG")
    return top


def test_a_folder_of_pages(folder: Path, tmp_path: Path) -> None:
    facts = import_corpus(folder, tmp_path / "c")
    corpus = open_corpus(tmp_path / "c")
    assert (facts.pages, facts.questions, facts.seed, facts.version) == (3, 0, None, None)
    assert list(corpus.questions()) == []
    bridge = corpus.page("http://corpus.test/bridge.html")
    assert bridge is not None
    assert (bridge.html, bridge.title, bridge.content_type) == (PAGE, "The König Bridge", "text/html")
    [hit] = corpus.search("quiet bay")
    assert hit.url == bridge.url
    assert "four hundred metres" in hit.snippet
    notes = corpus.page("http://corpus.test/sub%20dir/notes.md")
    assert notes is not None
    assert notes.title == "My notes"
    assert b'<a href="../bridge.html">the *bridge*</a>' in notes.html
    assert b"<li>two &amp; three</li>" in notes.html
    [plain] = corpus.search("café")
    assert plain.title == "plain"
    page = corpus.page(plain.url)
    assert page is not None
    assert "Café notes &lt;b&gt;raw&lt;/b&gt;" in page.html.decode()


def test_a_source_that_changed_is_imported_again(folder: Path, tmp_path: Path) -> None:
    first = import_corpus(folder, tmp_path / "c")
    (folder / "more.txt").write_text("something new")
    second = import_corpus(folder, tmp_path / "c")
    assert (first.pages, second.pages) == (3, 4)
    assert first.digest != second.digest
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("a")
    with pytest.raises(SpecError, match="another corpus"):
        import_corpus(tmp_path / "other", tmp_path / "c")


def test_jsonl_with_columns_of_other_names(tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    rows = [
        {"address": "http://x.test/a#top", "head": "A", "body": "alpha words"},
        {"address": "b c", "head": None, "body": "beta words"},
        {"address": "https://x.test/c", "body": "gamma", "page": "<title>Cee</title><p>served</p>"},
    ]
    source.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    columns = {"url": "address", "title": "head", "text": "body", "html": "page"}
    import_corpus(source, tmp_path / "c", columns=columns)
    corpus = open_corpus(tmp_path / "c")
    assert [(hit.title, hit.url) for hit in corpus.search("alpha")] == [("A", "http://x.test/a")]
    assert [hit.url for hit in corpus.search("beta")] == ["http://corpus.test/b%20c"]
    [gamma] = corpus.search("gamma")
    assert gamma.title == "Cee"
    page = corpus.page("https://x.test/c")
    assert page is not None
    assert page.html == b"<title>Cee</title><p>served</p>"


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {"url": ["http://x.test/1", "http://x.test/2"], "title": ["One", None], "text": ["uno", "dos"], "n": [1, 2]}
    )
    pq.write_table(table, tmp_path / "p.parquet")
    assert import_corpus(tmp_path / "p.parquet", tmp_path / "c").pages == 2
    corpus = open_corpus(tmp_path / "c")
    assert corpus.search("uno")[0].title == "One"
    assert corpus.search("dos")[0].title == "http://x.test/2"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('{"url": "a", "text": "x"}\n{"url": 3, "text": "x"}', r"p\.jsonl:2, column 'url': text is needed, and it is"),
        ('{"url": "a"}', r"p\.jsonl:1: a page needs the column 'url' and 'text' or 'html', and there are 'url'"),
        ('{"url": "a", "text": null}', r"p\.jsonl:1, column 'text': the page is empty"),
        ('{"url": "", "text": "x"}', r"p\.jsonl:1, column 'url': the page's address is empty"),
        ('{"url": "ftp://x/y", "text": "x"}', r"p\.jsonl:1, column 'url': 'ftp://x/y' is no web address"),
        ('{"url": "http://[x", "text": "x"}', r"p\.jsonl:1, column 'url': 'http://\[x' is no address"),
        ("[1]", r"p\.jsonl:1: a page is an object"),
        ("\n{nope", r"p\.jsonl:2: not JSON"),
        ("", "no page"),
        ('{"url": "a", "text": "x"}\n{"url": "a", "text": "y"}', r"two pages have the address http://corpus\.test/a"),
    ],
)  # fmt: skip
def test_lines_that_do_not_fit_are_named(tmp_path: Path, lines: str, told: str) -> None:
    (tmp_path / "p.jsonl").write_text(lines)
    with pytest.raises(SpecError, match=told):
        import_corpus(tmp_path / "p.jsonl", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_parquet_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"address": ["a"], "text": ["x"]}), path)
    with pytest.raises(SpecError, match=r"p\.parquet: a page needs the column 'url'.*there are 'address', 'text'"):
        list(read_pages(path))
    pq.write_table(pa.table({"url": ["a", "b"], "text": ["x", None]}), path)
    with pytest.raises(SpecError, match=r"p\.parquet: row 2, column 'text': the page is empty"):
        list(read_pages(path))
    pq.write_table(pa.table({"url": ["a", "b"], "text": [1, 2]}), path)
    with pytest.raises(SpecError, match=r"row 1, column 'text': text is needed, and it is int 1"):
        list(read_pages(path))
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(SpecError, match=r"p\.parquet: can't be read as Parquet"):
        list(read_pages(path))


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such corpus"):
        list(read_pages(tmp_path / "missing"))
    with pytest.raises(SpecError, match="no page in it"):
        list(read_pages(tmp_path))
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    with pytest.raises(SpecError, match="not a corpus"):
        list(read_pages(tmp_path / "a.pdf"))
    with pytest.raises(SpecError, match="'body' is no field of a page"):
        import_corpus(tmp_path, tmp_path / "c", columns={"body": "x"})


def odd(top: Path) -> None:
    """What people's folders have beside pages."""
    (top / "paper.pdf").write_bytes(b"%PDF-1.7 words")
    (top / "sub dir" / "noise.html").write_bytes(Random(1).randbytes(5_000))
    (top / "sub dir" / "paper.html").write_bytes(b"%PDF-1.7 words and more words")
    (top / "sub dir" / "nothing.md").write_bytes(b" \n")
    (top / "broken.html").symlink_to(top / "nowhere.html")
    (top / "rows.jsonl").write_text('{"url": "a", "text": "x"}\n')
    (top / "rows.parquet").write_bytes(b"no table at all")


def test_what_is_left_out_of_a_folder_is_counted_and_named(folder: Path, tmp_path: Path) -> None:
    odd(folder)
    skipped = Skipped()
    assert import_corpus(folder, tmp_path / "c", skipped=skipped).pages == 3
    assert skipped.total == 9
    assert skipped.lines() == [
        "1 file: hidden: .git/hidden.html",
        "1 file: a link that leads to no file, or nothing that can be read: broken.html",
        "2 files: not .html, .md or .txt: image.png, paper.pdf",
        "2 files: a table among pages, which is a corpus of its own: rows.jsonl, rows.parquet",
        "2 files: no text, whatever its name says: sub dir/noise.html, sub dir/paper.html",
        "1 file: empty: sub dir/nothing.md",
    ]


def test_many_files_that_are_left_out_are_counted_and_the_first_of_them_named() -> None:
    skipped = Skipped()
    for number in range(1_200):
        skipped.add(f"{number}.pdf", "not .html, .md or .txt")
    skipped.add("a\n.pdf", "odd")
    assert skipped.total == 1_201
    first = "1,200 files: not .html, .md or .txt: 0.pdf, 1.pdf, 2.pdf, 3.pdf, 4.pdf and 1,195 more"
    assert skipped.lines() == [first, "1 file: odd: 'a\\n.pdf'"]


def test_a_folder_of_nothing_but_tables_is_read_table_by_table(tmp_path: Path) -> None:
    top = tmp_path / "tables"
    (top / "b").mkdir(parents=True)
    (top / "a.jsonl").write_text('{"url": "http://x.test/1", "text": "uno"}\n')
    pq.write_table(pa.table({"url": ["http://x.test/2"], "text": ["dos"]}), top / "b" / "part-0.parquet")
    (top / "LICENSE").write_text("free")
    skipped = Skipped()
    assert [page.url for page in read_pages(top, skipped=skipped)] == ["http://x.test/1", "http://x.test/2"]
    assert skipped.lines() == ["1 file: not .html, .md or .txt: LICENSE"]


def test_a_folder_of_which_everything_was_left_out_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "b.html").write_bytes(b"")
    said = r"no page in it; .*\(left out were 1 file: not .html, .md or .txt: a.pdf; 1 file: empty: b.html\)"
    with pytest.raises(SpecError, match=said):
        import_corpus(tmp_path, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_columns_are_of_tables(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"it has page files \(bridge.html\), and columns are those of tables"):
        list(read_pages(folder, Columns(url="address")))


@pytest.mark.parametrize("size", [64, 1_000, 20_000])
def test_random_bytes_are_no_page(tmp_path: Path, size: int) -> None:
    for seed in range(5):
        (tmp_path / f"{seed}.html").write_bytes(Random(seed).randbytes(size))
        (tmp_path / f"{seed}.txt").write_bytes(Random(seed).randbytes(size))
    (tmp_path / "page.txt").write_text("words")
    assert [page.title for page in read_pages(tmp_path)] == ["page"]


@pytest.mark.parametrize(
    "raw", [b"x", b"\xff\xfe<\0p\0>\0", b"<" * 100_000, b"<html>" + b"<div>" * 20_000, b"&#0;" * 50]
)
def test_html_of_any_kind_is_taken(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "odd.html").write_bytes(raw)
    assert import_corpus(tmp_path / "pages", tmp_path / "c").pages == 1


def test_a_page_without_a_name_that_can_be_written_is_left_out_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "good.txt").write_text("Harbours are deep.", encoding="utf-8")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("Of no use.", encoding="utf-8")
    skipped = Skipped()
    assert import_corpus(folder, tmp_path / "c", skipped=skipped).pages == 1
    assert skipped.lines() == ["1 file: the name is not valid UTF-8: '\\udcff.txt'"]
