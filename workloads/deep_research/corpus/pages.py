"""What stands on each page of a generated world, before it becomes HTML: facts among prose, tables, lists, links.

A subject's page states each of its facts once, in the sentences that question_grammar finds; what any page says of
another subject it says in other words, and truly: "The designer given for Old Hal Bridge is ...".
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from workloads.deep_research.corpus.generate import ARTICLE, LIST, Fact, World, plural
from workloads.deep_research.corpus.prose import Prose
from workloads.deep_research.question_grammar import sentence

MOST_TEXT = 150_000  # characters of a page's text; with all that surrounds it a page stays below 200 kB
_SENTENCE = 125  # characters, about


@dataclass(frozen=True, slots=True)
class Link:
    """Words that lead to another page."""

    text: str
    url: str


Inline = str | Link


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text; `pieces` follow one another without anything between."""

    pieces: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of the second rank."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its first row as head; `side`: the box of facts beside a text."""

    rows: tuple[tuple[Inline, ...], ...]
    side: bool = False


Block = Paragraph | Heading | Bullets | Table


@dataclass(slots=True)
class Draft:
    """A page without its HTML."""

    title: str
    url: str
    site: str
    blocks: list[Block] = field(default_factory=list)
    navigation: list[Link] = field(default_factory=list)
    facts_ascii: bool = True  # whether all that a question may ask for is plain ASCII here

    def text(self) -> str:
        """What a reader sees, for the index."""
        parts: list[str] = []
        for block in self.blocks:
            match block:
                case Paragraph(pieces):
                    parts.append("".join(words(piece) for piece in pieces))
                case Heading(text):
                    parts.append(text)
                case Bullets(items):
                    parts.extend("".join(words(piece) for piece in item) for item in items)
                case Table(rows):
                    parts.extend(" | ".join(words(cell) for cell in row) for row in rows)
        return "\n".join(parts)


def words(piece: Inline) -> str:
    """The text of a piece."""
    return piece if isinstance(piece, str) else piece.text


class Writer:
    """Drafts of a world's pages, each from (world, page) alone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.prose = Prose(world.seed, world.words)

    def draft(self, page: int) -> tuple[Draft, random.Random]:
        """The draft of page 0 <= page < world.pages, and its own random numbers for what is left to decide."""
        kind, index = self.world.locate(page)
        draws = self.world.draws(kind, index, b"page")
        rng = random.Random(draws[0] | draws[1] << 32)
        url = self.world.url(kind, index)
        draft = Draft(title=self.world.title(kind, index), url=url, site=url.split("/")[2])
        draft.navigation = self._navigation(kind, index)
        # Log-normal lengths: median 2,000 characters, one page in a hundred above 26,000.
        budget = min(2_000 * pow(2.718281828, 1.1 * rng.gauss(0.0, 1.0)), MOST_TEXT)
        if kind == LIST:
            self._list(draft, index)
        elif kind == ARTICLE:
            self._article(draft, index, rng)
        else:
            self._subject(draft, kind, index, rng)
        self._fill(draft, budget, rng)
        return draft, rng

    def _link(self, kind: str, index: int) -> Link:
        return Link(self.world.title(kind, index), self.world.url(kind, index))

    def _navigation(self, kind: str, index: int) -> list[Link]:
        registers = min(8, self.world.counts[LIST])
        links = [
            Link(plural(self.world.covered(number)[0]).capitalize(), self.world.url(LIST, number))
            for number in range(registers)
        ]
        count = self.world.counts[kind]
        return [
            *links,
            Link("Previous", self.world.url(kind, (index - 1) % count)),
            Link("Next", self.world.url(kind, (index + 1) % count)),
        ]

    def _subject(self, draft: Draft, kind: str, index: int, rng: random.Random) -> None:
        world, prose = self.world, self.prose
        facts = list(world.facts(kind, index))
        draft.facts_ascii = draft.title.isascii() and all(fact.value.isascii() for fact in facts)
        if rng.random() < 0.6:
            rows: list[tuple[Inline, ...]] = [(draft.title, "")]
            rows += [(fact.relation.label.capitalize(), self._value(fact)) for fact in facts]
            draft.blocks.append(Table(tuple(rows), side=True))
        pronoun = world.pronoun(index) if kind == "person" else ""
        rng.shuffle(facts)
        pieces: list[Inline] = [
            f"{draft.title} is {'one of the' if rng.random() < 0.5 else 'among the'} {plural(kind)} "
        ]
        pieces.append("recorded in this register. ")
        for position, fact in enumerate(facts):
            pieces.append(prose.sentences(rng, 1 + int(rng.random() * 2)))
            wording = int(rng.random() * 4)
            before, after = sentence(fact.relation, "\0", wording=wording, pronoun=pronoun).split("\0")
            pieces += (before, self._value(fact), after + " ")
            if rng.random() < 0.6 or position == len(facts) - 1:
                pieces.append(prose.sentences(rng, 1))
                draft.blocks.append(Paragraph(tuple(pieces)))
                pieces = []
                if rng.random() < 0.3:
                    draft.blocks.append(Heading(prose.heading(rng)))
        siblings = world.siblings(kind, index)
        if siblings:
            mentions: list[Inline] = ["Not to be confused with its namesakes. "]
            for sibling in siblings:
                mentions += self._mention(kind, sibling, rng)
            draft.blocks.append(Paragraph((*mentions, prose.sentences(rng, 2))))
        seen = [fact.target for fact in facts if fact.target is not None] + [(kind, sibling) for sibling in siblings]
        draft.blocks.append(Heading("See also"))
        draft.blocks.append(Bullets(tuple((self._link(*other),) for other in dict.fromkeys(seen))))

    def _value(self, fact: Fact) -> Inline:
        return fact.value if fact.target is None else Link(fact.value, self.world.url(*fact.target))

    def _mention(self, kind: str, index: int, rng: random.Random) -> Sequence[Inline]:
        """One fact about a subject, on another's page."""
        facts = self.world.facts(kind, index)
        fact = facts[int(rng.random() * len(facts))]
        return (f"The {fact.relation.label} given for ", self._link(kind, index), " is ", self._value(fact), ". ")

    def _list(self, draft: Draft, index: int) -> None:
        listed = self.world.listed(index)
        facts = [self.world.facts(*subject) for subject in listed]
        draft.blocks.append(Paragraph((f"{len(listed)} {plural(listed[0][0])} are entered on this sheet.",)))
        head: tuple[Inline, ...] = ("Name", *(fact.relation.label.capitalize() for fact in facts[0][:3]))
        rows = [
            (self._link(*subject), *(self._value(fact) for fact in found[:3]))
            for subject, found in zip(listed, facts, strict=True)
        ]
        draft.blocks.append(Table((head, *rows)))

    def _article(self, draft: Draft, index: int, rng: random.Random) -> None:
        for subject in self.world.article_subjects(index):
            pieces: list[Inline] = [self.prose.sentences(rng, 1 + int(rng.random() * 3)), *self._mention(*subject, rng)]
            draft.blocks.append(Paragraph((*pieces, self.prose.sentences(rng, 2))))

    def _fill(self, draft: Draft, budget: float, rng: random.Random) -> None:
        """More prose, headings, tables and lists, up to `budget` characters in all."""
        prose = self.prose
        left = budget - len(draft.text())
        while left > _SENTENCE:
            u = rng.random()
            if u < 0.12:
                block: Block = Heading(prose.heading(rng))
                left -= 20
            elif u < 0.20:
                year, rows = 1700 + int(rng.random() * 200), 3 + int(rng.random() * 12)
                body = tuple(
                    (
                        str(year + 5 * row),
                        f"{int(10 ** (1 + 4 * rng.random())):,}",
                        prose.words[int(rng.random() * 500)],
                    )
                    for row in range(rows)
                )
                block = Table((("Year", "Count", "Remark"), *body))
                left -= 22 * rows
            elif u < 0.27:
                items = tuple((prose.sentences(rng, 1),) for _ in range(2 + int(rng.random() * 5)))
                block = Bullets(items)
                left -= _SENTENCE * len(items)
            else:
                count = min(2 + int(rng.random() * 5), 1 + int(left / _SENTENCE))
                block = Paragraph((prose.sentences(rng, count),))
                left -= _SENTENCE * count
            draft.blocks.append(block)
