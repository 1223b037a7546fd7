"""Numbers as they are printed: a value with the range that rounding leaves it, and arithmetic that keeps the range.

A number printed with its last digit at place p stands for anything within half of 10^p of it. So two sides of an
identity whose ranges overlap may have been equal before they were rounded, and only sides whose ranges do not are
certainly different. Where the last place is in doubt the wider range is taken: trailing zeros of a whole number count
as rounded down to two significant digits (`1200` is 1150 to 1250), and `~` stands for a whole unit of the last place.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

FARTHEST = 300  # decimal places from the point that a rounding is told of
MACHINE = 1e-6  # relative: what single precision and sums of floats lose before anything is printed

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_SUFFIX = r"(?:[ \u00a0\u202f]*(?P<unit>%|pp|[a-zA-ZµμΩ×°][a-zA-Zµμ/·.²-]*))?"
_PLAIN = re.compile(rf"^(?P<about>[~≈∼<>≤≥]?)\s*(?P<sign>[+-]?)\s*[$€]?(?P<number>{_NUMBER}){_SUFFIX}$")
_PLUS_MINUS = re.compile(rf"^(?P<head>.*?{_NUMBER})\s*%?\s*(?:±|\+/-|\+-)\s*(?P<doubt>{_NUMBER})(?P<tail>.*)$")
_RANGE = re.compile(rf"^(?P<low>[~≈]?[+-]?{_NUMBER})\s*%?\s*(?:–|—|-|to|\.\.)\s*(?P<high>{_NUMBER})(?P<tail>.*)$")
_LASTING = re.compile(  # 1d 3h 43m, 7h 58m, 2 min 5.5 s: two parts at least
    r"^(?=\S*\d+\s*[dhm].*\d)(?:(?P<d>\d+)\s*d(?:ays?)?)?\s*(?:(?P<h>\d+)\s*h(?:rs?)?)?\s*(?:(?P<m>\d+)\s*m(?:in)?)?"
    r"\s*(?:(?P<s>\d+(?:\.\d+)?)\s*s(?:ec)?)?$"
)
_NUMPY = re.compile(r"^(?:np|numpy|torch)\.\w+\((.*)\)$")
_NOT_KNOWN = {"", "-", "/", "–", "—", "n/a", "na", "nan", "none", "null", "?", "tbd", "inf", "-inf"}

# Unit as printed -> (what it measures, how many of the base unit it is).
UNITS = {
    "%": ("ratio", 0.01),
    "pp": ("ratio", 0.01),
    "pct": ("ratio", 0.01),
    "percent": ("ratio", 0.01),
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "µs": ("time", 1e-6),
    "μs": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "sec": ("time", 1.0),
    "secs": ("time", 1.0),
    "second": ("time", 1.0),
    "seconds": ("time", 1.0),
    "m": ("time", 60.0),
    "min": ("time", 60.0),
    "mins": ("time", 60.0),
    "minutes": ("time", 60.0),
    "h": ("time", 3600.0),
    "hr": ("time", 3600.0),
    "hrs": ("time", 3600.0),
    "hours": ("time", 3600.0),
    "d": ("time", 86400.0),
    "days": ("time", 86400.0),
    "w": ("power", 1.0),
    "watt": ("power", 1.0),
    "watts": ("power", 1.0),
    "kw": ("power", 1e3),
    "j": ("energy", 1.0),
    "joules": ("energy", 1.0),
    "kj": ("energy", 1e3),
    "mj": ("energy", 1e6),  # nobody prints millijoules of a training
    "wh": ("energy", 3600.0),
    "kwh": ("energy", 3.6e6),
    "gflops": ("flops", 1e9),
    "gflop/s": ("flops", 1e9),
    "tflops": ("flops", 1e12),
    "tflop/s": ("flops", 1e12),
    "tflops/s": ("flops", 1e12),
    "pflops": ("flops", 1e15),
    "pflop/s": ("flops", 1e15),
    "x": ("multiple", 1.0),
    "×": ("multiple", 1.0),
}
# What a plain number may be told in: a multiplier, what is counted, per what. A lower-case m is none: milli or million.
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_WORDS = {
    "thousand": 1e3,
    "million": 1e6,
    "mio": 1e6,
    "mln": 1e6,
    "mn": 1e6,
    "billion": 1e9,
    "bn": 1e9,
    "trillion": 1e12,
}
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_THINGS = (
    r"t|tok|toks|tokens?|steps?|iters?|iterations?|updates?|versions?|gpus?|gpu[- ]?(?:h|hrs?|hours?)|h|hrs?|hours?|"
    r"traj|trajectory|trajectories|episodes?|rollouts?|samples?|seqs?|sequences?|prompts?|turns?|calls?|requests?|"
    r"queries|#|1"
)
_PER = r"s|secs?|seconds?|gpus?|devices?|steps?|updates?|versions?|traj|trajectory"
_PLAIN_UNIT = re.compile(
    rf"^(?:(?P<letter>[kKMBGT])(?![A-Z])|(?i:(?P<word>{'|'.join(_WORDS)})s?)"
    r"|[x×]?\s*(?:10\s*\^\s*|10(?=[³⁶⁹])|1e)(?P<power>\d+|[³⁶⁹]))?"
    rf"[ -]*(?i:of\s+)?(?i:{_THINGS})?(?i:\s*(?:/|per)\s*(?:{_PER}))*$"
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and the range it may have had before it was rounded; `low <= value <= high`."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Quantity":
        """A number that was not rounded."""
        return cls(value, value, value)

    @property
    def half(self) -> float:
        """Half the width of its range."""
        return (self.high - self.low) / 2

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: "Quantity") -> "Quantity":
        ends = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Quantity(self.value * other.value, min(ends), max(ends))

    def __truediv__(self, other: "Quantity") -> "Quantity":
        """The ratio; any number at all where the divisor may be 0."""
        if other.low <= 0 <= other.high:
            return Quantity(self.value / other.value if other.value else math.nan, -math.inf, math.inf)
        ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Quantity(self.value / other.value, min(ends), max(ends))

    def scaled(self, factor: float) -> "Quantity":
        """The number times an exact factor."""
        return self * Quantity.exact(factor)


def total(parts: Iterable[Quantity]) -> Quantity:
    """The sum."""
    found = Quantity.exact(0.0)
    for part in parts:
        found = found + part
    return found


@dataclass(frozen=True, slots=True)
class Printed:
    """A number read from text: in the unit it was printed in, `unit` as it stood there, "" where none did."""

    quantity: Quantity
    unit: str

    def of_kind(self, kind: str, default_unit: str = "") -> Quantity | None:
        """The number in the base unit of `kind`: ratio, time (s), power (W), energy (J), flops (FLOP/s), multiple,
        number or count (of things, with multipliers: `ktok/s`, `millions`), or any (of these).

        `default_unit` is taken where none was printed. None when the unit is of another kind, or not known.
        """
        unit = self.unit or default_unit
        if not unit:
            return self.quantity
        of, factor = UNITS.get(unit.lower(), ("", 1.0)) if unit not in _SCALES else ("", 1.0)
        if of and (of == kind or (kind, of) == ("multiple", "ratio") or kind == "any"):
            return self.quantity.scaled(factor)
        plain = plain_factor(unit) if kind in ("number", "count", "any") else None
        return None if plain is None else self.quantity.scaled(plain)


def unit_fits(kind: str, unit: str) -> bool:
    """Whether numbers of `kind` can be told in that unit."""
    return Printed(Quantity.exact(1.0), "").of_kind(kind, unit) is not None


def plain_factor(unit: str) -> float | None:
    """How many things one of `unit` is: 1000 for `ktok/s`, 1 for `tokens/s/GPU`; None where that is not known."""
    match = _PLAIN_UNIT.match(unit.strip())
    if match is None:
        return None
    if match["letter"]:
        return _SCALES[match["letter"]]
    if match["word"]:
        return _WORDS[match["word"].lower()]
    power = (match["power"] or "0").translate(_POWERS)
    return 10.0 ** int(power) if len(power) < 3 else None


def read_number(text: str, *, exact: bool = False) -> Printed | None:
    """The number that a cell or a log prints, or None where it prints none.

    Understands thousands separators, `~`, `<`, `>`, `±`, ranges (`20-35 %`), units, `k M B`, Unicode minus signs,
    Markdown's emphasis and footnotes, and NumPy's `np.float64(1.5)`.

    A number too large for a float (`1e400`) is none.

    Args:
        text: what is printed.
        exact: the number is a count: its digits are all of it.
    """
    if says_nothing(text):
        return None
    found = _read(_bare(text), exact)
    return found if found is not None and math.isfinite(found.quantity.value) else None


def _read(text: str, exact: bool) -> Printed | None:
    if (match := _LASTING.match(text)) and text:
        return _duration(match)
    if match := _PLAIN.match(text):
        return _plain(match, exact)
    if match := _PLUS_MINUS.match(text):
        middle, doubt = read_number(match["head"] + match["tail"]), read_number(match["doubt"])
        if middle is None or doubt is None:
            return None
        q, wide = middle.quantity, doubt.quantity.high
        return Printed(Quantity(q.value, q.low - wide, q.high + wide), middle.unit)
    if match := _RANGE.match(text):
        low, high = read_number(match["low"] + match["tail"]), read_number(match["high"] + match["tail"])
        if low is None or high is None or low.quantity.value > high.quantity.value:
            return None
        one, two = low.quantity, high.quantity
        return Printed(Quantity((one.value + two.value) / 2, one.low, two.high), high.unit)
    return None


def says_nothing(text: str) -> bool:
    """Whether a cell stands for no number: empty, a dash, `n/a`, `nan` ..."""
    return _bare(text).lower() in _NOT_KNOWN


def too_large(text: str) -> bool:
    """Whether a cell is a number in digits that no float holds: `1e400`."""
    found = None if says_nothing(text) else _read(_bare(text), exact=False)
    return found is not None and not math.isfinite(found.quantity.value)


def _bare(text: str) -> str:
    text = re.sub(r"\[\^[^\]]*\]|<[^<>]+>|[*`_]{1,3}(?=\S)|(?<=\S)[*`_]{1,3}", "", text)
    text = text.replace("\\", "").replace("−", "-").replace("‑", "-").replace("\u00a0", " ").strip()
    if match := _NUMPY.match(text):
        return match[1]
    return re.sub(r"(?<=\S)\s*\([^()]*\)$", "", text)  # what stands behind a number: 7h 58m (1.72x)


def _plain(match: "re.Match[str]", exact: bool) -> Printed:
    digits = match["number"].replace(",", "")
    about, unit = match["about"], (match["unit"] or "").rstrip(".")
    value = float(digits) * (-1 if match["sign"] == "-" else 1)
    half = (
        0.0 if exact and not about else half_width(digits, about=about in ("~", "≈", "∼"), percent=unit in ("%", "pp"))
    )
    low, high = value - half, value + half
    if about in ("<", "≤"):
        low = -math.inf
    if about in (">", "≥"):
        high = math.inf
    return Printed(Quantity(value, low, high), unit)


def _duration(match: "re.Match[str]") -> Printed:
    parts = [(name, match[name]) for name in "dhms" if match[name] is not None]
    seconds = sum(float(text) * UNITS[name][1] for name, text in parts)
    last, text = parts[-1]
    half = half_width(text) * UNITS[last][1] if last == "s" else UNITS[last][1] / 2
    return Printed(Quantity(seconds, seconds - half, seconds + half), "s")


def half_width(digits: str, *, about: bool = False, percent: bool = False) -> float:
    """By how much rounding may have moved the number that those digits print (no sign, no separators).

    `about`: it was printed with a `~`. `percent`: trailing zeros are digits (nobody rounds 97 % to 100 %).
    """
    mantissa, _, exponent = digits.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    # Beyond what a float holds, as far as it goes: an exponent may have any number of digits.
    power = int(exponent or 0) if len(exponent) <= 6 else (-FARTHEST if exponent.startswith("-") else FARTHEST)
    place = power - len(decimals)
    if not decimals and not exponent and not percent:
        figures = whole.lstrip("0")
        zeros = len(figures) - len(figures.rstrip("0"))
        place = max(0, min(zeros, len(figures) - 2))
    return (1.0 if about else 0.5) * 10.0 ** max(-FARTHEST, min(place, FARTHEST))


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b
