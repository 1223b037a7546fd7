"""Text that says nothing a question asks about: sentences of invented clauses with words as unevenly used as real ones.

Clauses are made once per corpus and joined in pairs, so a page costs little, and no two pages read the same.
"""

import random
import re
from collections.abc import Container, Sequence

from workloads.deep_research.corpus import names

_CLAUSES = 3_000
_VOCABULARY = 20_000

_OPENINGS = (
    "In the spring of {year}", "After a long debate", "According to the {adjective} {noun} of {year}", "By {year}",
    "Much later", "For the better part of a decade", "In the {adjective} years that followed", "Until {year}",
    "Despite the {adjective} {noun}", "With some hesitation", "Two winters on", "From about {year}",
)  # fmt: skip
_MIDDLES = (
    "the {noun} {verb} the {adjective} {noun}", "a {adjective} {noun} {verb} what {rare} had called the {noun}",
    "the {noun} of {rare} {verb} several {nouns}", "no {noun} {verb} the {noun} as {rare} did",
    "each {noun} {verb} its own {adjective} {noun}", "the local {noun} {verb} a {noun} known as {rare}",
)  # fmt: skip
_ENDINGS = (
    "and the {noun} was largely {adjective}", "while the {adjective} {noun} remained in the hands of {rare}",
    "which the {noun} of {year} does not mention", "although the {noun} near {rare} tells another story",
    "as the {adjective} {noun} made plain", "and {number} {nouns} were counted", "so that the {noun} could be repaired",
    "to the surprise of the {adjective} {noun}", "where {rare} and the {noun} meet", "at a cost of {number} crowns",
)  # fmt: skip
_NOUNS = (
    "harbour", "council", "ledger", "survey", "archive", "market", "winter", "railway", "chapel", "orchard", "quarry",
    "mill", "parish", "lantern", "canal", "garden", "workshop", "letter", "treaty", "cargo", "station", "road",
    "tower", "granary", "school", "inquiry", "estate", "guild", "ferry", "lighthouse", "fire", "flood", "press",
    "census", "family", "debt", "collection", "drawing", "foundation", "tunnel", "embankment", "festival", "hospital",
    "theatre", "forest", "mine", "regiment", "court", "journal", "pasture", "wharf", "warehouse", "barge", "furnace",
    "loom", "vineyard", "square", "wall", "gate", "cellar", "bell", "clock", "organ",
)  # fmt: skip
_ADJECTIVES = (
    "old", "northern", "disputed", "costly", "modest", "grand", "former", "regional", "ordinary", "forgotten",
    "careful", "narrow", "public", "private", "late", "early", "considerable", "quiet", "stubborn", "wooden", "stone",
    "iron", "provincial", "distant", "reliable", "incomplete", "celebrated", "unlikely",
)  # fmt: skip
_VERBS = (
    "replaced", "carried", "supported", "followed", "described", "crossed", "served", "rebuilt", "preserved",
    "divided", "joined", "inspected", "outlived", "financed", "measured", "doubled", "neglected", "restored",
    "abandoned", "copied", "surrounded", "welcomed", "delayed", "defended",
)  # fmt: skip
_HEADINGS = (
    "History", "Background", "Later years", "In literature", "Surroundings", "Reception", "Sources",
    "Accounts and letters",
    "The great repair", "Local customs", "Present state", "Notes on the records", "Controversy", "Economy",
)  # fmt: skip


class Prose:
    """Sentences, headings and figures for the pages of one corpus."""

    def __init__(self, seed: int, without: Container[str]) -> None:
        """`without`: words that it must not use."""
        rng = random.Random(f"prose {seed}")
        rare = names.words(_VOCABULARY, seed, purpose="prose", without=without)
        self.words: Sequence[str] = [word.lower() for word in rare]
        self._first = [_fill(_OPENINGS, rng, rare) + ", " + _fill(_MIDDLES, rng, rare) for _ in range(_CLAUSES)]
        self._second = [" " + _fill(_ENDINGS, rng, rare) + ". " for _ in range(_CLAUSES)]

    def sentences(self, rng: random.Random, count: int) -> str:
        """`count` sentences, of some 125 characters each, with a space after the last."""
        draw, first, second = rng.random, self._first, self._second
        parts = []
        for _ in range(count):
            parts.append(first[int(draw() * _CLAUSES)])
            parts.append(second[int(draw() * _CLAUSES)])
        return "".join(parts)

    def heading(self, rng: random.Random) -> str:
        """A heading."""
        return _pick(_HEADINGS, rng.random())


def _pick(values: Sequence[str], u: float) -> str:
    return values[int(u * len(values))]


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def _fill(patterns: Sequence[str], rng: random.Random, rare: Sequence[str]) -> str:
    """A clause; rare words are drawn with the frequency of rank r near 1 / r."""
    filled = _pick(patterns, rng.random())
    while "{" in filled:
        slot = filled[filled.index("{") : filled.index("}") + 1]
        value = {
            "{nouns}": _plural(_pick(_NOUNS, rng.random())),
            "{noun}": _pick(_NOUNS, rng.random()),
            "{adjective}": _pick(_ADJECTIVES, rng.random()),
            "{verb}": _pick(_VERBS, rng.random()),
            "{year}": str(1700 + int(rng.random() * 290)),
            "{number}": f"{int(10 ** (1 + 4 * rng.random())):,}",
            "{rare}": rare[int(len(rare) ** rng.random()) - 1],
        }[slot]
        filled = filled.replace(slot, value, 1)
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", filled)
