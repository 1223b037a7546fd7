"""How generated questions and the facts on generated pages are worded, so that both can be read back by a script.

A relation leads from a page's subject to one value: another subject's title, a year or a number. Worded in three ways:

- on the subject's own page, as a sentence about "the bridge", "the town", ... (of a person: "He" or "She"), with one
  of `sentences`: "The bridge was designed by {}." `find_fact` looks for these; pages about other subjects never use
  them, they say "The designer given for Old Hal Bridge is ...";
- inside a question, as a noun phrase around the phrase for its subject: ("the designer of ", "");
- at the end of the chain, as the question itself around that phrase: ("In which year was ", " opened?").

Grammar of a question (a title never starts with a lower-case letter, so it is what no phrase fits):

    question := asked-prefix phrase asked-suffix         phrase := prefix phrase suffix | title

Parsing from outside in has one outcome because no prefix of the phrases begins another, and among phrases with the
same prefix no suffix ends another; likewise among what is asked. A test checks this for the table below. A chain of n
relations is a question of n hops: n pages are read, and the last has the answer.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

YEAR = "year"
NUMBER = "number"

Affixes = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation; `target` is a kind of subject, YEAR or NUMBER; `unit` follows a number in an accepted answer."""

    name: str
    kind: str
    target: str
    label: str
    sentences: tuple[str, ...]
    phrases: tuple[Affixes, ...] = ()
    asked: tuple[Affixes, ...] = ()
    unit: str = ""

    @property
    def leads_on(self) -> bool:
        """Whether its value is a subject with a page of its own."""
        return self.target not in (YEAR, NUMBER)


def _link(
    name: str, kind: str, target: str, label: str, sentences: tuple[str, ...], *phrases: Affixes, asked: Affixes
) -> Relation:
    return Relation(name, kind, target, label, sentences, phrases=phrases, asked=(asked,))


def _year(name: str, kind: str, label: str, sentences: tuple[str, ...], asked: Affixes) -> Relation:
    return Relation(name, kind, YEAR, label, sentences, asked=(asked,))


def _number(name: str, kind: str, label: str, unit: str, sentences: tuple[str, ...], asked: Affixes) -> Relation:
    return Relation(name, kind, NUMBER, label, sentences, asked=(asked,), unit=unit)


_ALL = (
    _year("birth_year", "person", "year of birth", ("{} was born in the year {}.",), ("In which year was ", " born?")),
    _year("death_year", "person", "year of death", ("{} died in the year {}.",), ("In which year did ", " die?")),
    _link(
        "birthplace", "person", "town", "birthplace",
        ("{} was born in the town of {}.", "{} came into the world at {}."),
        ("the town where ", " was born"), ("the birthplace of ", ""), asked=("In which town was ", " born?"),
    ),
    _link(
        "alma_mater", "person", "institute", "alma mater",
        ("{} studied at {}.", "{} received a degree from {}."),
        ("the institute at which ", " studied"), ("the alma mater of ", ""),
        asked=("At which institute did ", " study?"),
    ),
    _link(
        "teacher", "person", "person", "teacher",
        ("{} was taught by {}.", "{} learned the trade from {}."),
        ("the teacher of ", ""), ("the person who taught ", ""), asked=("Who taught ", "?"),
    ),
    _link(
        "employer", "person", "company", "employer", ("{} worked for {}.",),
        ("the company that employed ", ""), asked=("Which company employed ", "?"),
    ),
    _year(
        "charter", "town", "year of the charter", ("The town was chartered in {}.",),
        ("In which year was ", " chartered?"),
    ),
    _number(
        "population", "town", "number of inhabitants", "inhabitants", ("The town has {} inhabitants.",),
        ("How many inhabitants does ", " have?"),
    ),
    _link(
        "town_river", "town", "river", "river", ("The town lies on the {}.", "The town grew up along the {}."),
        ("the river on which ", " lies"), ("the river that runs through ", ""), asked=("On which river does ", " lie?"),
    ),
    _link(
        "mayor", "town", "person", "mayor", ("The mayor of the town is {}.", "The town elected as its mayor {}."),
        ("the mayor of ", ""), asked=("Who is the mayor of ", "?"),
    ),
    _year(
        "institute_founded", "institute", "year of foundation", ("The institute was founded in {}.",),
        ("In which year was ", " founded?"),
    ),
    _number(
        "volumes", "institute", "number of volumes in the library", "volumes",
        ("The institute keeps a library of {} volumes.",),
        ("How many volumes does the library of ", " hold?"),
    ),
    _link(
        "institute_founder", "institute", "person", "founder",
        ("The institute was founded by {}.", "The institute owes its foundation to {}."),
        ("the scholar who founded ", ""), asked=("Which scholar founded ", "?"),
    ),
    _link(
        "institute_town", "institute", "town", "seat", ("The institute has its seat in {}.",),
        ("the town where ", " has its lecture halls"), ("the seat of ", ""),
        asked=("In which town does ", " have its lecture halls?"),
    ),
    _year(
        "bridge_opened", "bridge", "year of opening", ("The bridge was opened in {}.",),
        ("In which year was ", " opened to traffic?"),
    ),
    _number(
        "bridge_length", "bridge", "length in metres", "metres", ("The bridge is {} metres long.",),
        ("How many metres long is ", "?"),
    ),
    _link(
        "designer", "bridge", "person", "designer",
        ("The bridge was designed by {}.", "The bridge is the work of the engineer {}."),
        ("the designer of ", ""), ("the engineer who designed ", ""), asked=("Who designed ", "?"),
    ),
    _link(
        "crosses", "bridge", "river", "river crossed", ("The bridge crosses the {}.",),
        ("the river crossed by ", ""), asked=("Which river is crossed by ", "?"),
    ),
    _link(
        "builder", "bridge", "company", "builder",
        ("The bridge was built by {}.", "The bridge was erected by the crews of {}."),
        ("the company that built ", ""), asked=("Which company built ", "?"),
    ),
    _number(
        "members", "expedition", "number of members", "members", ("The expedition had {} members.",),
        ("How many members did ", " have?"),
    ),
    _year(
        "returned", "expedition", "year of return", ("The expedition returned in {}.",),
        ("In which year did ", " return?"),
    ),
    _link(
        "leader", "expedition", "person", "leader",
        ("The expedition was led by {}.", "The expedition followed its leader {}."),
        ("the leader of ", ""), asked=("Who led ", "?"),
    ),
    _link(
        "vessel", "expedition", "ship", "vessel", ("The expedition sailed on the {}.",),
        ("the ship on which ", " sailed"), ("the vessel of ", ""), asked=("On which ship did ", " sail?"),
    ),
    _link(
        "sponsor", "expedition", "institute", "sponsor",
        ("The expedition was paid for by {}.", "The expedition was sponsored by {}."),
        ("the institute that sponsored ", ""), asked=("Which institute sponsored ", "?"),
    ),
    _link(
        "departure", "expedition", "town", "port of departure", ("The expedition set out from {}.",),
        ("the town from which ", " set out"), asked=("From which town did ", " set out?"),
    ),
    _year(
        "launched", "ship", "year of launch", ("The ship was launched in {}.",),
        ("In which year was ", " launched?"),
    ),
    _number(
        "tonnage", "ship", "tonnage", "tons", ("The ship displaces {} tons.",),
        ("How many tons does ", " displace?"),
    ),
    _link(
        "shipyard", "ship", "company", "shipyard", ("The ship was built by {}.", "The ship left the yard of {}."),
        ("the shipyard of ", ""), ("the company that laid down ", ""), asked=("Which company laid down ", "?"),
    ),
    _link(
        "captain", "ship", "person", "captain", ("The ship was commanded by {}.", "The captain of the ship was {}."),
        ("the captain of ", ""), asked=("Who was the captain of ", "?"),
    ),
    _link(
        "home_port", "ship", "town", "home port", ("The ship is registered in {}.",),
        ("the town where ", " is registered"), ("the home port of ", ""), asked=("In which town is ", " registered?"),
    ),
    _year(
        "established", "company", "year of establishment", ("The company was established in {}.",),
        ("In which year was ", " established?"),
    ),
    _number(
        "employees", "company", "number of employees", "employees", ("The company employs {} people.",),
        ("How many people does ", " employ?"),
    ),
    _link(
        "owner", "company", "person", "owner", ("The company belongs to {}.", "The company is owned by {}."),
        ("the owner of ", ""), asked=("Who owns ", "?"),
    ),
    _link(
        "headquarters", "company", "town", "headquarters", ("The company has its headquarters in {}.",),
        ("the town where ", " is based"), ("the headquarters of ", ""), asked=("In which town is ", " based?"),
    ),
    _year(
        "published", "book", "year of publication", ("The book was published in {}.",),
        ("In which year was ", " published?"),
    ),
    _number(
        "book_pages", "book", "number of pages", "pages", ("The book has {} pages.",),
        ("How many pages does ", " run to?"),
    ),
    _link(
        "author", "book", "person", "author", ("The book was written by {}.", "The author of the book is {}."),
        ("the author of ", ""), asked=("Who wrote ", "?"),
    ),
    _link(
        "publisher", "book", "company", "publisher",
        ("The book was published by {}.", "The book was brought out by {}."),
        ("the publisher of ", ""), asked=("Which company published ", "?"),
    ),
    _link(
        "topic", "book", "expedition", "topic", ("The book tells the story of the {}.",),
        ("the expedition described in ", ""), asked=("Which expedition is described in ", "?"),
    ),
    _year(
        "museum_opened", "museum", "year of inauguration", ("The museum was inaugurated in {}.",),
        ("In which year was ", " inaugurated?"),
    ),
    _number(
        "visitors", "museum", "number of visitors a year", "visitors", ("The museum counts {} visitors a year.",),
        ("How many visitors a year does ", " count?"),
    ),
    _link(
        "architect", "museum", "person", "architect", ("The museum was planned by the architect {}.",),
        ("the architect of ", ""), asked=("Which architect planned ", "?"),
    ),
    _link(
        "museum_town", "museum", "town", "location",
        ("The museum is located in {}.", "The museum opens its doors in {}."),
        ("the town where ", " is located"), asked=("In which town is ", " located?"),
    ),
    _link(
        "treasure", "museum", "book", "finest holding", ("The finest holding of the museum is {}.",),
        ("the book treasured by ", ""), asked=("Which book is treasured by ", "?"),
    ),
    _number(
        "river_length", "river", "length in kilometres", "kilometres", ("The river is {} kilometres long.",),
        ("How many kilometres long is ", "?"),
    ),
    _link(
        "mouth", "river", "town", "mouth", ("The river reaches the sea at {}.",),
        ("the town at the mouth of ", ""), asked=("Which town lies at the mouth of ", "?"),
    ),
    _link(
        "surveyed", "river", "expedition", "first survey", ("The river was first surveyed by the {}.",),
        ("the expedition that first surveyed ", ""), asked=("Which expedition first surveyed ", "?"),
    ),
)  # fmt: skip

RELATIONS: Mapping[str, Relation] = {relation.name: relation for relation in _ALL}

KINDS: tuple[str, ...] = tuple(dict.fromkeys(relation.kind for relation in _ALL))


@cache
def relations_of(kind: str) -> tuple[Relation, ...]:
    """The relations of one kind of subject, in a fixed order."""
    return tuple(relation for relation in _ALL if relation.kind == kind)


def sentence(relation: Relation, value: str, *, wording: int, pronoun: str = "") -> str:
    """The fact's sentence on the subject's own page; `pronoun` (He, She) where the subject is a person."""
    words = relation.sentences[wording % len(relation.sentences)]
    return words.format(pronoun, value) if relation.kind == "person" else words.format(value)


def render_question(title: str, relations: Sequence[str], wordings: Iterable[int] = ()) -> str:
    """The question that asks along `relations` from the page called `title`; `wordings` choose among synonyms.

    Raises ValueError where the chain does not hold together.
    """
    if not relations:
        raise ValueError("a question needs at least one relation")
    chosen = iter(wordings)
    phrase, kind = title, RELATIONS[relations[0]].kind
    for position, name in enumerate(relations):
        relation = RELATIONS[name]
        if relation.kind != kind:
            raise ValueError(f"{name} is a relation of a {relation.kind}, not of a {kind}")
        last = position == len(relations) - 1
        affixes = relation.asked if last else relation.phrases
        if not affixes:
            raise ValueError(f"{name} leads to no page, so it can only end a question")
        prefix, suffix = affixes[next(chosen, 0) % len(affixes)]
        phrase, kind = prefix + phrase + suffix, relation.target
    return phrase


def parse_question(text: str) -> tuple[str, tuple[str, ...]]:
    """The start page's title and the relations to follow from it, first one first.

    Raises ValueError where the text is no question of this grammar.
    """
    names: list[str] = []
    inner = _strip(text.strip(), "asked", names)
    if inner is None:
        raise ValueError(f"not a question of this grammar: {text[:200]!r}")
    while (rest := _strip(inner, "phrases", names)) is not None:
        inner = rest
    if not inner or inner[0].islower():
        raise ValueError(f"no title where one is expected, at {inner[:100]!r}")
    relations = tuple(reversed(names))
    for before, after in pairwise(relations):
        if RELATIONS[before].target != RELATIONS[after].kind:
            raise ValueError(f"{before} does not lead to a {RELATIONS[after].kind}")
    return inner, relations


@cache
def _by_length(which: str) -> tuple[tuple[str, str, str], ...]:
    """(prefix, suffix, relation) of all phrases, or of all that can be asked."""
    found = [
        (prefix, suffix, relation.name)
        for relation in _ALL
        for prefix, suffix in (relation.asked if which == "asked" else relation.phrases)
    ]
    return tuple(sorted(found, key=lambda affixes: (-len(affixes[0]), -len(affixes[1]))))


def _strip(text: str, which: str, names: list[str]) -> str | None:
    """What is inside the outermost phrase, its relation appended to `names`; None where none fits."""
    for prefix, suffix, name in _by_length(which):
        if text.startswith(prefix) and text.endswith(suffix) and len(text) > len(prefix) + len(suffix):
            names.append(name)
            return text[len(prefix) : len(text) - len(suffix)]
    return None


_MARKDOWN_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*\)")
_SPACE = re.compile(r"\s+")
_VALUE = {YEAR: r"(\d{3,4})", NUMBER: r"(\d{1,3}(?:,\d{3})*)"}
_TITLE = r"([^\W\d_][^.;:]{1,79})"


@cache
def fact_pattern(relation: str) -> re.Pattern[str]:
    """The pattern of the relation's sentences; the value is the only group that took part in the match."""
    asked = RELATIONS[relation]
    value = _VALUE.get(asked.target, _TITLE)
    found = []
    for words in asked.sentences:
        if asked.kind == "person":
            words = words.replace("{}", "(?:He|She)", 1)
        left, right = words.split("{}")
        left = left if asked.kind == "person" else re.escape(left)
        found.append(rf"\b{left}{value}{re.escape(right)}")
    return re.compile("|".join(found))


def find_fact(page_text: str, relation: str) -> str | None:
    """The value that the subject's own page states, as written there, or None.

    `page_text` is the page's text after extraction: plain, or with links as Markdown has them. Raises KeyError for a
    relation that does not exist.
    """
    plain = _SPACE.sub(" ", _MARKDOWN_LINK.sub(r"\1", page_text))
    found = fact_pattern(relation).search(plain)
    if found is None:
        return None
    return next(group for group in found.groups() if group is not None).strip()
