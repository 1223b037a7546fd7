"""A comparison as one HTML file: what its Markdown page says, with charts, in the form of the HTML report."""

from collections.abc import Sequence
from dataclasses import dataclass

from reports.compared.charts import Changes, Waterfall, changes_of, waterfall_of
from reports.compared.page import letters_of, pages
from reports.html.document import Block, Line, Section, inline, read
from reports.html.page import anchor_of, banner_of, fill
from reports.markdown import escape, plural
from results.comparing.comparison import Comparison, Pair

CHARTED = ("headline", "parts of a step")  # the families that are drawn; the others are in their tables


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A section: what it says, and the charts that stand before it."""

    anchor: str
    title: str
    changes: tuple[Changes, ...]
    waterfall: Waterfall | None
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """One comparison of the page."""

    anchor: str
    title: str
    banner: tuple[Line, ...]
    parts: tuple[_Part, ...]


def html(found: Sequence[Comparison]) -> str:
    """The page of one or several comparisons: it needs no network; the same runs give the same bytes."""
    texts, notes = pages(found)
    views = [_view(one, lines, place) for place, (one, lines) in enumerate(zip(found, texts, strict=True), start=1)]
    alone = len(views) == 1
    return fill(
        "compared.html.j2",
        over="bench compare",
        title=views[0].title if alone else f"{plural(len(views), 'comparison')}, cell by cell",
        banner=views[0].banner if alone else (),
        notes={number: inline(escape(reason)) for number, reason in enumerate(notes.reasons, start=1)},
        views=views,
    )


def _view(found: Comparison, lines: Sequence[str], place: int) -> _View:
    document = read(lines)
    sections = [section for section in document.sections if section.title]
    pairs: list[Pair | None] = [None, *found.pairs]  # the first section is of the sides, the last of differences
    pairs += [None] * (len(sections) - len(pairs))
    return _View(
        anchor=f"c-{place}",
        title=document.title,
        banner=banner_of(document),
        parts=tuple(_part(section, pair, found, place) for section, pair in zip(sections, pairs, strict=True)),
    )


def _part(section: Section, pair: Pair | None, found: Comparison, place: int) -> _Part:
    charts: list[Changes] = []
    waterfall = None
    if pair is not None:
        a, b = letters_of(pair, found)
        for family in CHARTED:
            charts += changes_of(family, pair.claims[family], found.rule, a, b)
        waterfall = waterfall_of(pair.blame, a, b)
    return _Part(
        anchor=f"{anchor_of(section.title)}-{place}",
        title=section.title,
        changes=tuple(charts),
        waterfall=waterfall,
        blocks=section.blocks,
    )
