"""Generated worlds: one fact is one fact everywhere, titles and addresses are unique, and pages are real pages."""

import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from statistics import median

import pytest
import trafilatura
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.protocol.errors import SpecError
from workloads.deep_research.corpus.generate import ARTICLE, LIST, World
from workloads.deep_research.corpus.html import LEAST_BYTES, MOST_BYTES, Rendered, render
from workloads.deep_research.corpus.making import make
from workloads.deep_research.corpus.pages import Bullets, Draft, Heading, Link, Paragraph, Table, Writer
from workloads.deep_research.question_grammar import KINDS, RELATIONS, find_fact

PAGES = 600


@pytest.fixture(scope="module")
def writer() -> Writer:
    return Writer(World(PAGES, 7))


@pytest.fixture(scope="module")
def made(writer: Writer) -> list[tuple[Draft, Rendered]]:
    drafts = [writer.draft(page) for page in range(PAGES)]
    return [(draft, render(draft, rng)) for draft, rng in drafts]


@pytest.mark.parametrize("pages", [100, 101, 999, 12_345])
def test_every_page_is_there_once_with_a_title_and_an_address_of_its_own(pages: int) -> None:
    world = World(pages, 3)
    places = [world.locate(page) for page in range(pages)]
    assert len(set(places)) == pages
    assert len({world.title(*place) for place in places}) == pages
    assert len({world.url(*place) for place in places}) == pages


def test_titles_stay_unique_in_the_largest_world() -> None:
    world = World(1_000_000, 1)
    for kind in ("person", "town", "expedition"):
        last = world.counts[kind]
        sample = [*range(3_000), *range(last - 3_000, last)]
        assert len({world.title(kind, index) for index in sample}) == len(sample)
    persons = world._persons
    assert len({persons.name(index) for index in range(world.counts["person"])}) == world.counts["person"]


@given(st.integers(0, 2**40), st.integers(100, 5_000), st.data())
@settings(max_examples=25, deadline=None)
def test_facts_lead_to_subjects_that_are_there(seed: int, pages: int, data: st.DataObject) -> None:
    world = World(pages, seed)
    kind = data.draw(st.sampled_from(KINDS))
    index = data.draw(st.integers(0, world.counts[kind] - 1))
    for fact in world.facts(kind, index):
        if fact.target is None:
            assert fact.value.replace(",", "").isdigit()
            continue
        target_kind, target = fact.target
        assert target_kind == fact.relation.target
        assert 0 <= target < world.counts[target_kind]
        assert fact.target != (kind, index)
        assert fact.value == world.title(target_kind, target)


@pytest.mark.parametrize("pages", [0, 99, 1_000_001])
def test_a_size_that_can_not_be_made_is_refused(pages: int) -> None:
    with pytest.raises(SpecError, match=f"{pages:,} pages"):
        World(pages, 1)


def test_pages_depend_on_the_seed_and_size_alone() -> None:
    """Made in another process, with another hash seed, in another order: the same bytes."""
    code = (
        "from workloads.deep_research.corpus.generate import World\n"
        "from workloads.deep_research.corpus.making import make\n"
        "from workloads.deep_research.corpus.pages import Writer\n"
        "print(make(Writer(World(400, 5)), 120, 150)[-1][1].hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"},
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    here = Writer(World(400, 5))
    assert make(here, 149, 150)[0][1].hex() == done.stdout.strip()
    assert make(Writer(World(400, 6)), 149, 150)[0][1] != make(here, 149, 150)[0][1]
    assert make(Writer(World(401, 5)), 149, 150)[0][1] != make(here, 149, 150)[0][1]


def test_pages_have_the_sizes_of_the_web(made: list[tuple[Draft, Rendered]]) -> None:
    sizes = sorted(len(page.body) for _, page in made)
    assert LEAST_BYTES <= sizes[0] < 4_000
    assert sizes[-1] <= MOST_BYTES
    assert sizes[len(sizes) * 99 // 100] > 3 * median(sizes)


def test_the_largest_page_stays_within_its_limit(writer: Writer) -> None:
    draft, rng = writer.draft(11)
    draft.blocks.append(Paragraph((writer.prose.sentences(rng, 2_000)[:150_000],)))
    for _ in range(20):
        assert len(render(draft, rng).body) <= MOST_BYTES


def test_own_facts_are_found_on_the_extracted_page_and_only_there(
    made: list[tuple[Draft, Rendered]], writer: Writer
) -> None:
    """Each fact of a subject, from the page's bytes as the extractor reads them; of list and article pages none."""
    kinds = set()
    for page, (draft, rendered) in enumerate(made[:250]):
        kind, index = writer.world.locate(page)
        kinds.add(kind)
        text = trafilatura.extract(rendered.body, url=draft.url) or ""
        wanted = {} if kind in (LIST, ARTICLE) else {f.relation.name: f.value for f in writer.world.facts(kind, index)}
        found = {name: value for name in RELATIONS if (value := find_fact(text, name)) is not None}
        assert found == wanted, draft.url
    assert kinds == {*KINDS, LIST, ARTICLE}


def test_what_pages_say_of_other_subjects_is_true(made: list[tuple[Draft, Rendered]], writer: Writer) -> None:
    world = writer.world
    by_title = {world.title(*world.locate(page)): world.locate(page) for page in range(PAGES)}
    labels = {(r.kind, r.label): r.name for r in RELATIONS.values()}
    checked = 0
    for draft, _ in made:
        for block in draft.blocks:
            if not isinstance(block, Paragraph):
                continue
            for before, subject, _, value in zip(
                block.pieces, block.pieces[1:], block.pieces[2:], block.pieces[3:], strict=False
            ):
                if isinstance(before, str) and before.startswith("The ") and before.endswith(" given for "):
                    assert isinstance(subject, Link)
                    kind, index = by_title[subject.text]
                    name = labels[kind, before[4 : -len(" given for ")]]
                    stated = value.text if isinstance(value, Link) else value
                    assert stated == world.fact(kind, index, name).value
                    checked += 1
    assert checked > PAGES


def _links(draft: Draft) -> Iterator[Link]:
    yield from draft.navigation
    for block in draft.blocks:
        match block:
            case Paragraph(pieces):
                rows = (pieces,)
            case Bullets(items):
                rows = items
            case Table(lines):
                rows = lines
            case Heading():
                rows = ()
        yield from (piece for row in rows for piece in row if isinstance(piece, Link))


def test_links_lead_to_pages_that_are_there(made: list[tuple[Draft, Rendered]]) -> None:
    there = {draft.url: draft.title for draft, _ in made}
    for draft, _ in made:
        for link in _links(draft):
            assert link.url in there
            assert link.text in (there[link.url], "Previous", "Next") or link in draft.navigation


def test_pages_have_what_makes_the_web_hard(made: list[tuple[Draft, Rendered]]) -> None:
    bodies = [rendered.body for _, rendered in made]
    for mark in (b"<nav", b"<footer", b"<table", b"<ul>", b"<script", b"<style>", b"<!--", b"&unknown;", b"&copy 2024",
                 b"application/json", b"href=\"/", b"href=\"http://"):  # fmt: skip
        share = sum(mark in body for body in bodies) / len(bodies)
        assert share > 0.02, mark
    unclosed = sum(body.count(b"<p>") > body.count(b"</p>") + 1 for body in bodies)
    assert 0.1 < unclosed / len(bodies) < 0.95
    wrong = 0
    for draft, rendered in made:
        declared = (
            "utf-8"
            if b"charset=utf-8" in rendered.body[:300] or b'charset="utf-8' in rendered.body[:300]
            else "latin-1"
        )
        try:
            text = rendered.body.decode(declared)
        except UnicodeDecodeError:
            wrong += 1
            assert draft.facts_ascii
            continue
        if "Ã" in text:
            wrong += 1
            assert draft.facts_ascii
        else:
            assert draft.title in unescape(text)
    assert 0 < wrong < len(made) / 10


def test_neighbours_are_easily_mixed_up(writer: Writer) -> None:
    world = writer.world
    for kind in KINDS:
        title = world.title(kind, 3)
        for sibling in world.siblings(kind, 3):
            assert set(world.title(kind, sibling).split()) & set(title.split()), kind
