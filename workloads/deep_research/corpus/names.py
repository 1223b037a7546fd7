"""Invented names: unique words for subjects, and the titles made of them in groups that are easily mixed up.

Three neighbouring subjects of a kind share their word: "Old Hal Bridge", "Hal Bridge", "Hal Railway Bridge"; an
expedition's neighbours bear the same name and another year; persons share the first name and the surname.
"""

import math
import random
import unicodedata
from collections.abc import Container, Mapping, Sequence

GROUP = 3  # subjects that share a name

_ONSETS = (
    "b", "br", "ch", "d", "dr", "f", "fl", "g", "gl", "gr", "h", "hj", "j", "k", "kl", "kr", "l", "m", "n", "p", "pr",
    "r", "s", "sk", "sl", "st", "str", "sv", "t", "th", "tr", "tv", "v", "vr", "w", "z",
)  # fmt: skip
_VOWELS = ("a e i o u " * 7 + "a e o ae ei ia ø é ü å").split()
_CODAS = ("", "", "l", "n", "r", "s", "m", "nd", "rn", "lt", "sk", "th", "rg", "ck")
_ENDINGS = (
    "sund", "ford", "by", "holm", "wick", "vik", "berg", "stad", "dal", "mere", "more", "ley", "ham", "ton", "mouth",
    "haven", "garth", "stow", "thorpe", "beck", "fell", "nes", "rode", "hagen", "brück", "ach", "ino", "ona", "esta",
    "ova", "itz",
)  # fmt: skip

_GIVEN = (
    "Adela", "Alban", "Alma", "Amos", "Anton", "Astrid", "August", "Aurel", "Barbro", "Basil", "Beata", "Bruno",
    "Carl", "Cecily", "Clara", "Conrad", "Dagny", "Damian", "Dora", "Edmund", "Edna", "Elias", "Elin", "Emil",
    "Esther", "Fabian", "Felix", "Flora", "Frida", "Gerda", "Gideon", "Greta", "Gustav", "Hanna", "Harald", "Hedda",
    "Helmer", "Hilda", "Hugo", "Ida", "Igor", "Ingrid", "Irma", "Isak", "Iver", "Jakob", "Jelena", "Jonna", "Josef",
    "Judith", "Kaspar", "Katya", "Kilian", "Klara", "Knut", "Lars", "Laura", "Leopold", "Lida", "Linus", "Lovisa",
    "Lucan", "Magda", "Marek", "Marta", "Matthis", "Mikael", "Mina", "Moritz", "Nadia", "Nils", "Nora", "Olaf",
    "Olga", "Oscar", "Ottilie", "Pavel", "Petra", "Quentin", "Ragna", "Rasmus", "Rosa", "Rudolf", "Sabina", "Samuel",
    "Selma", "Sigrid", "Simon", "Stella", "Sven", "Tamar", "Tekla", "Tobias", "Ulrik", "Ursula", "Valdemar", "Vera",
    "Viktor", "Wanda", "Werner", "Yngve", "Yvonne", "Zelda",
)  # fmt: skip
_MIDDLE = (
    ("Johan", "Johannes", "Jonas"), ("Maria", "Marie", "Marian"), ("Erik", "Erich", "Edrik"), ("Anna", "Anne",
    "Antonia"),
    ("Karl", "Karel", "Kasimir"), ("Lena", "Leena", "Leonie"), ("Peter", "Per", "Petrus"), ("Sofia", "Sophie", "Sonja"),
    ("Henrik", "Heinrich", "Hendrik"), ("Elsa", "Else", "Elisa"), ("Nikolai", "Niklas", "Nikos"), ("Julia", "Julie",
    "Juliana"),
    ("Otto", "Otmar", "Ottokar"), ("Eva", "Evelyn", "Evita"), ("Stefan", "Steffen", "Stepan"), ("Kristina",
    "Kerstin", "Kirsten"),
)  # fmt: skip
_FIELDS = (
    ("Mining", "Minerals", "Metallurgy"),
    ("Navigation", "Naval Studies", "Natural History"),
    ("Geodesy", "Geology", "Geography"),
    ("Applied Optics", "Applied Arts", "Applied Mechanics"),
    ("Forestry", "Fisheries", "Forest Botany"),
    ("Hydraulics", "Hydrology", "Hydrography"),
)
_PATTERNS: Mapping[str, Sequence[str]] = {
    "town": ("{}", "Upper {}", "New {}"),
    "bridge": ("{} Bridge", "Old {} Bridge", "{} Railway Bridge"),
    "ship": ("Spirit of {}", "Pride of {}", "Star of {}"),
    "company": ("{} Works", "{} & Sons", "{} Brothers"),
    "book": ("Letters from {}", "Notes on {}", "A History of {}"),
    "river": ("{} River", "Little {} River", "{} Brook"),
}


def words(count: int, seed: int, *, purpose: str, without: Container[str] = ()) -> list[str]:
    """`count` different invented words, capitalised, none of them in `without`."""
    draw = random.Random(f"{purpose} {seed}").random
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = 1 + int(draw() * 2.2)
        parts: list[str] = []
        for _ in range(syllables):
            parts += (_pick(_ONSETS, draw()), _pick(_VOWELS, draw()))
        parts.append(_pick(_CODAS, draw()) if draw() < 0.4 else _pick(_ENDINGS, draw()))
        word = "".join(parts)
        word = word.capitalize()
        if 4 <= len(word) <= 14 and word not in without:
            found.setdefault(word)
    return list(found)


def _pick(values: Sequence[str], u: float) -> str:
    return values[int(u * len(values))]


class PersonNames:
    """Names of persons by index, all different: a first name and surname for each group, a middle name within it."""

    def __init__(self, surnames: Sequence[str]) -> None:
        self._surnames = surnames
        self._pairs = len(surnames) * len(_GIVEN)
        step = int(self._pairs * 0.6180339887)
        while math.gcd(step, self._pairs) != 1:
            step += 1
        self._step = step

    def name(self, index: int) -> str:
        """The name of person `index`; raises IndexError where there are not enough surnames."""
        group, member = divmod(index, GROUP)
        if group >= self._pairs:
            raise IndexError(f"{len(self._surnames)} surnames are too few for person {index}")
        surname, given = divmod(group * self._step % self._pairs, len(_GIVEN))
        return f"{_GIVEN[given]} {_MIDDLE[group % len(_MIDDLE)][member]} {self._surnames[surname]}"


def title(kind: str, index: int, word: str, year: int) -> str:
    """The title of a subject other than a person: `word` is its group's, `year` (of expeditions) its own."""
    group, member = divmod(index, GROUP)
    if kind == "expedition":
        return f"{word} Expedition of {year}"
    if kind in ("institute", "museum"):
        field = _FIELDS[group % len(_FIELDS)][member]
        return f"{word} {kind.capitalize()} of {field}"
    return _PATTERNS[kind][member].format(word)


def slug(text: str) -> str:
    """`text` as part of an address: ASCII letters, digits and hyphens."""
    plain = text.replace("ø", "o").replace("Ø", "O")
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode("ascii").lower()
    return "-".join("".join(c if c.isalnum() else " " for c in plain).split())
