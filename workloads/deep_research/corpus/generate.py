"""The world behind a generated corpus: its subjects, their titles and addresses, and every fact about them.

Nothing is stored: whatever is asked of a subject follows from (pages, seed, kind, index) by a hash. So a fact is the
same wherever it is mentioned, a world of a million pages takes no more memory than its list of invented words
(some 30 MB), and any process can make any page. Chronology is not kept: a bridge may be older than its designer.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from harness.protocol.errors import SpecError
from workloads.deep_research.corpus import names
from workloads.deep_research.question_grammar import KINDS, NUMBER, YEAR, Relation, relations_of

VERSION = 3  # of what is generated: another version has other pages for the same seed
LEAST_PAGES, MOST_PAGES = 100, 1_000_000

LIST, ARTICLE = "list", "article"  # pages that are about no subject of their own

# Shares of the pages, in percent.
_SHARES: Mapping[str, int] = {
    "person": 28, "town": 8, "institute": 8, "bridge": 8, "expedition": 8, "ship": 8, "company": 8, "book": 8,
    "museum": 4, "river": 2, LIST: 4, ARTICLE: 6,
}  # fmt: skip

# Ranges of the values: years uniform, numbers uniform on the log scale.
_RANGES: Mapping[str, tuple[int, int]] = {
    "birth_year": (1720, 1930), "death_year": (38, 91), "returned": (1, 4), "charter": (910, 1790),
    "institute_founded": (1540, 1960), "bridge_opened": (1770, 1995), "launched": (1760, 1960),
    "established": (1700, 1970), "published": (1750, 1990), "museum_opened": (1790, 1995),
    "population": (900, 900_000), "volumes": (2_000, 3_000_000), "bridge_length": (24, 4_200), "members": (6, 240),
    "tonnage": (60, 38_000), "employees": (12, 60_000), "book_pages": (64, 1_400), "visitors": (800, 900_000),
    "river_length": (9, 2_600),
}  # fmt: skip

_SITES: Mapping[str, tuple[str, str]] = {
    "person": ("lives", "biography"), "town": ("gazetteer", "town"), "institute": ("academia", "institute"),
    "bridge": ("bridges", "structure"), "expedition": ("voyages", "expedition"), "ship": ("ships", "vessel"),
    "company": ("trade", "company"), "book": ("library", "book"), "museum": ("museums", "museum"),
    "river": ("waters", "river"), LIST: ("registers", "sheet"), ARTICLE: ("clippings", "article"),
}  # fmt: skip
_PAGES_PER_SITE = 5_000


@dataclass(frozen=True, slots=True)
class Fact:
    """What one relation says of one subject: the value as pages write it, and the subject it names, if any."""

    relation: Relation
    value: str
    target: tuple[str, int] | None  # (kind, index)


class World:
    """All subjects of a corpus of `pages` pages drawn from `seed`.

    Raises SpecError where `pages` is not within LEAST_PAGES..MOST_PAGES.
    """

    def __init__(self, pages: int, seed: int) -> None:
        if not LEAST_PAGES <= pages <= MOST_PAGES:
            raise SpecError(
                f"corpus: {pages:,} pages can't be generated; choose between {LEAST_PAGES:,} and {MOST_PAGES:,}"
            )
        self.pages, self.seed = pages, seed
        self.counts: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        start = 0
        for kind, share in _SHARES.items():
            self._starts[kind] = start
            self.counts[kind] = pages * share // 100
            start += self.counts[kind]
        self.counts[ARTICLE] += pages - start
        self._key = struct.pack("<qq", pages, seed)
        self._code = {kind: number for number, kind in enumerate(_SHARES)}
        self._words = self._share_out_words(seed)
        self._persons = names.PersonNames(self._words["person"])
        self.facts = lru_cache(maxsize=4096)(self._facts)
        self.title = lru_cache(maxsize=16384)(self._title)

    def _share_out_words(self, seed: int) -> dict[str, list[str]]:
        """Words for the groups of each kind; no kind shares one with another."""
        needed = {kind: -(-self.counts[kind] // names.GROUP) for kind in KINDS}
        needed["person"] = 200 + needed["person"] // 40
        words = names.words(sum(needed.values()), seed, purpose="titles")
        self.words = frozenset(words)
        shared: dict[str, list[str]] = {}
        for kind, count in needed.items():
            shared[kind], words = words[:count], words[count:]
        return shared

    def locate(self, page: int) -> tuple[str, int]:
        """The kind and index of a page, 0 <= page < pages. Pages of all kinds lie mixed."""
        # A step that has no divisor in common with `pages` visits every page once.
        place = page * _coprime_near(self.pages) % self.pages
        for kind, start in self._starts.items():
            if place < start + self.counts[kind]:
                return kind, place - start
        raise IndexError(f"page {page} of {self.pages}")

    def draws(self, kind: str, index: int, purpose: bytes = b"") -> tuple[int, ...]:
        """Sixteen numbers below 2**32 that belong to this subject (and `purpose`) alone."""
        raw = blake2b(struct.pack("<Bq", self._code[kind], index) + purpose, digest_size=64, key=self._key).digest()
        return struct.unpack("<16I", raw)

    def _title(self, kind: str, index: int) -> str:
        """The title of a page; no two pages of a corpus share one."""
        if kind == "person":
            return self._persons.name(index)
        if kind == LIST:
            covered, sheet = self.covered(index)
            return f"Register of {plural(covered)}, sheet {sheet + 1}"
        if kind == ARTICLE:
            about = self.article_subjects(index)[0]
            return f"Gazette {index + 1}: {self.title(*about)}"
        word = self._words[kind][index // names.GROUP]
        return names.title(kind, index, word, self._sailing_year(index) if kind == "expedition" else 0)

    def _sailing_year(self, index: int) -> int:
        group, member = divmod(index, names.GROUP)
        draws = self.draws("expedition", group, b"year")
        return 1760 + draws[0] % 180 + member * (2 + draws[1] % 5)

    def url(self, kind: str, index: int) -> str:
        """The page's address, the same wherever and whenever the corpus is served."""
        site, folder = _SITES[kind]
        sites = 1 + self.counts[kind] // _PAGES_PER_SITE
        number = index // names.GROUP % sites + 1
        host = f"{site}.test" if number == 1 else f"{site}{number}.test"
        return f"http://{host}/{folder}/{names.slug(self.title(kind, index))}-{index}"

    def _facts(self, kind: str, index: int) -> tuple[Fact, ...]:
        """The facts of a subject, in the order of `relations_of(kind)`."""
        draws = self.draws(kind, index)
        found: list[Fact] = []
        for relation, draw in zip(relations_of(kind), draws, strict=False):
            if relation.leads_on:
                # The square makes some subjects much better known than others.
                target = int((draw / 2**32) ** 2 * self.counts[relation.target])
                if relation.target == kind and target == index:
                    target = (target + 1) % self.counts[kind]
                found.append(Fact(relation, self.title(relation.target, target), (relation.target, target)))
                continue
            least, most = _RANGES[relation.name]
            if relation.target == NUMBER:
                found.append(Fact(relation, f"{round(least * (most / least) ** (draw / 2**32)):,}", None))
                continue
            year = least + draw % (most - least)
            if relation.name == "death_year":
                year += int(found[0].value)
            elif relation.name == "returned":
                year += self._sailing_year(index)
            found.append(Fact(relation, str(year), None))
        return tuple(found)

    def fact(self, kind: str, index: int, relation: str) -> Fact:
        """One fact; raises KeyError where the kind has no such relation."""
        for fact in self.facts(kind, index):
            if fact.relation.name == relation:
                return fact
        raise KeyError(f"{kind} has no relation {relation}")

    def pronoun(self, index: int) -> str:
        """He or She, of a person."""
        return ("He", "She")[self.draws("person", index)[15] & 1]

    def siblings(self, kind: str, index: int) -> tuple[int, ...]:
        """The subjects whose titles are easily taken for this one's."""
        first = index - index % names.GROUP
        return tuple(i for i in range(first, min(first + names.GROUP, self.counts[kind])) if i != index)

    def covered(self, index: int) -> tuple[str, int]:
        """What list page `index` lists: the kind, and which sheet of the kind's register it is."""
        return KINDS[index % len(KINDS)], index // len(KINDS)

    def listed(self, index: int) -> list[tuple[str, int]]:
        """The subjects on list page `index`, at most 40 of the kind's consecutive ones."""
        kind, sheet = self.covered(index)
        sheets = -(-(self.counts[LIST] - KINDS.index(kind)) // len(KINDS))
        width = -(-self.counts[kind] // sheets)
        first = sheet * width
        return [(kind, i) for i in range(first, min(first + min(width, 40), self.counts[kind]))]

    def article_subjects(self, index: int) -> list[tuple[str, int]]:
        """The subjects that article `index` mentions, what it is about first."""
        draws = self.draws(ARTICLE, index)
        chosen = []
        for which, where in zip(draws[:6], draws[6:12], strict=True):
            kind = KINDS[which % len(KINDS)]
            chosen.append((kind, where % self.counts[kind]))
        return list(dict.fromkeys(chosen))[: 2 + draws[12] % 5]


def plural(kind: str) -> str:
    """The kind's name for many."""
    return {"company": "companies"}.get(kind, kind + "s")


@lru_cache
def _coprime_near(pages: int) -> int:
    from math import gcd

    step = int(pages * 0.6180339887) or 1
    while gcd(step, pages) != 1:
        step += 1
    return step


__all__ = ["ARTICLE", "LEAST_PAGES", "LIST", "MOST_PAGES", "VERSION", "YEAR", "Fact", "World", "plural"]
