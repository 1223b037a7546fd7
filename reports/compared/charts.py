"""What the page of a comparison draws: each measure's change with its interval, and what a step's change is made of.

Places and lengths are shares of a chart's own width, so that a chart fits a phone and a desk alike. Ratios are drawn on
the log scale that they are computed on: twice as much lies as far out as half as much.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.compared.words import effect, signed, verdict
from reports.markdown import number
from results.comparing.blame import Blame, Effect
from results.comparing.claims import Claim, Rule, Verdict
from results.comparing.welch import Contrast

# Ticks of ratios: round shares less, and round shares more.
_LESS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
_MORE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 9.0, 99.0)
_ROOM = 0.13  # of the width: between ticks
_EDGE = 0.02  # left free at either side


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A row of a chart of changes. `at`, `low`, `high`: places, as shares; `low` and `high` None without an interval.

    `kind`: better | worse | even. `cut_low`, `cut_high`: the interval goes on beyond the chart's edge.
    """

    name: str
    kind: str
    at: float
    low: float | None
    high: float | None
    cut_low: bool
    cut_high: bool
    value: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A chart of changes. `zero`: where no change lies; `band`: the margin of equivalence; `ticks`: places, labels."""

    title: str
    how: str
    rows: tuple[Span, ...]
    zero: float
    band: tuple[float, float]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A row of a waterfall: from `begin` on, `length` wide. `seconds` is signed: `kind` says its way (more | less).

    `low`, `high`: the interval of where the bar ends, as places; None without one.
    """

    name: str
    kind: str
    begin: float
    length: float
    seconds: float
    low: float | None
    high: float | None
    cut_low: bool
    cut_high: bool
    value: str
    note: str
    total: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """What a step's change is made of, one part after the other, and the total last. `why` in its place without one."""

    title: str
    how: str
    rows: tuple[Bar, ...] = ()
    zero: float = 0.0
    ticks: tuple[tuple[float, str], ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Scale:
    """From an effect (a log ratio, or a difference) to a place."""

    low: float
    high: float

    def at(self, effect: float) -> float:
        share = (effect - self.low) / (self.high - self.low)
        return _EDGE + (1 - 2 * _EDGE) * min(1.0, max(0.0, share))

    def cut(self, effect: float, sign: int) -> bool:
        beyond = effect - self.high if sign > 0 else self.low - effect
        return beyond > 1e-9 * (self.high - self.low)


def changes_of(family: str, claims: Sequence[Claim], rule: Rule, a: str, b: str) -> list[Changes]:
    """The charts of a family of claims: its ratios, and its shares; what has no contrast, and what is of a unit of its
    own, is in the table alone."""
    made = []
    ratios = [(one, one.contrast) for one in claims if one.contrast is not None and one.contrast.kind == "ratio"]
    shares = [
        (one, one.contrast)
        for one in claims
        if one.contrast is not None and one.contrast.kind == "difference" and one.measure.unit == "ratio"
    ]
    if ratios:
        title = f"{family[0].upper()}{family[1:]}: change with its interval"
        made.append(
            _changes(title, ratios, math.log1p(rule.margin), _ratio_ticks, f"of {b} against {a}, on the log scale")
        )
    if shares:
        title = f"{family[0].upper()}{family[1:]}, shares: difference with its interval"
        made.append(_changes(title, shares, rule.margin, _share_ticks, f"of {b} against {a}, in percentage points"))
    return made


def waterfall_of(found: Blame | str, a: str, b: str) -> Waterfall:
    """The waterfall of a blame: effects and remainder, each beginning where the one before ended, up to the total."""
    title = "Where the change of a step comes from"
    if isinstance(found, str):
        return Waterfall(title=title, how="", why=found)
    parts = [*found.effects, found.remainder]
    ends = [math.fsum(one.seconds for one in parts[: place + 1]) for place in range(len(parts))]
    begins = [0.0, *ends[:-1], 0.0]
    rows = [*parts, found.total]
    scale = _scale(
        [0.0, *ends, found.total.seconds],
        [
            (begin + one.low, begin + one.high)
            for begin, one in zip(begins, rows, strict=True)
            if one.low is not None and one.high is not None
        ],
    )
    how = (
        f"Seconds that {b} adds to a step of {a} ({number(found.total.a_s)} s), part by part: each bar begins where "
        "the one above ends, and together they are the total. "
    )
    if found.total.low is None:
        how += "There are no intervals: how runs vary is not known."
    else:
        how += f"Lines are {'within-run ' if found.within_runs else ''}intervals (95 %) of a bar's own length."
    bars = tuple(_bar(one, begin, scale, total=one is found.total) for begin, one in zip(begins, rows, strict=True))
    return Waterfall(title=title, how=how, rows=bars, zero=scale.at(0.0), ticks=_second_ticks(scale))


def _bar(one: Effect, begin: float, scale: _Scale, *, total: bool) -> Bar:
    low, high = one.low, one.high
    ends = scale.at(begin), scale.at(begin + one.seconds)
    interval = "" if low is None or high is None else f"{signed(low)} to {signed(high)} s"
    return Bar(
        name="total" if total else one.name,
        kind="more" if one.seconds > 0 else "less",
        begin=min(ends),
        length=abs(ends[1] - ends[0]),
        seconds=one.seconds,
        low=None if low is None else scale.at(begin + low),
        high=None if high is None else scale.at(begin + high),
        cut_low=low is not None and scale.cut(begin + low, -1),
        cut_high=high is not None and scale.cut(begin + high, 1),
        value=f"{signed(one.seconds)} s" + (" *" if one.shown else ""),
        note=interval,
        total=total,
    )


_Ticks = Callable[[_Scale], tuple[tuple[float, str], ...]]


def _changes(title: str, claims: Sequence[tuple[Claim, Contrast]], margin: float, ticks: _Ticks, said: str) -> Changes:
    ends = [_effects(contrast) for _, contrast in claims]
    scale = _scale([0.0, *(contrast.effect for _, contrast in claims)], [each for each in ends if each is not None])
    rows = []
    for (claim, contrast), each in zip(claims, ends, strict=True):
        low, high = each if each is not None else (None, None)
        shown = claim.verdict in (Verdict.BETTER, Verdict.WORSE)
        rows.append(
            Span(
                name=claim.measure.name,
                kind=claim.verdict.value if shown else "even",
                at=scale.at(contrast.effect),
                low=None if low is None else scale.at(low),
                high=None if high is None else scale.at(high),
                cut_low=low is not None and scale.cut(low, -1),
                cut_high=high is not None and scale.cut(high, 1),
                value=effect(contrast, claim.measure),
                note=verdict(claim).replace("*", ""),
            )
        )
    band = scale.at(-margin), scale.at(margin)
    return Changes(
        title=title,
        how=f"Change {said}; the band is what counts as equivalent. Filled: better or worse; an arrow: the interval "
        "goes on.",
        rows=tuple(rows),
        zero=scale.at(0.0),
        band=band,
        ticks=ticks(scale),
    )


def _effects(contrast: Contrast) -> tuple[float, float] | None:
    """The ends of an interval on the scale of effects."""
    if contrast.low is None or contrast.high is None:
        return None
    if contrast.kind == "difference":
        return contrast.low, contrast.high
    return math.log(max(contrast.low, 1e-300)), math.log(min(contrast.high, 1e300))


def _scale(points: Sequence[float], intervals: Sequence[tuple[float, float]]) -> _Scale:
    """A scale that holds all points, and of the intervals what does not squash them: the usual ones whole."""
    far = max(map(abs, points), default=0.0)
    reach = sorted(max(abs(low), abs(high)) for low, high in intervals)
    usual = reach[(len(reach) - 1) // 2] if reach else 0.0
    limit = 3 * max(far, usual) or 1.0
    low = min([*points, *(max(low, -limit) for low, _ in intervals)])
    high = max([*points, *(min(high, limit) for _, high in intervals)])
    if low == high:
        low, high = low - 1.0, high + 1.0
    return _Scale(low, high)


def _ratio_ticks(scale: _Scale) -> tuple[tuple[float, str], ...]:
    wanted = [(math.log1p(-each), f"-{each:.0%}") for each in _LESS]
    wanted += [(math.log1p(each), f"+{each:.0%}" if each < 9 else f"x{1 + each:g}") for each in _MORE]
    return _kept(scale, wanted)


def _share_ticks(scale: _Scale) -> tuple[tuple[float, str], ...]:
    return _linear(scale, lambda value: f"{100 * value:+.3g} pp")


def _second_ticks(scale: _Scale) -> tuple[tuple[float, str], ...]:
    return _linear(scale, lambda value: f"{value:+.3g} s")


def _linear(scale: _Scale, words: Callable[[float], str]) -> tuple[tuple[float, str], ...]:
    """Ticks at 1, 2 or 5 times a power of ten, about five of them."""
    raw = (scale.high - scale.low) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= raw)
    places = range(math.ceil(scale.low / step), math.floor(scale.high / step) + 1)
    return _kept(scale, [(place * step, words(place * step)) for place in places if place])


def _kept(scale: _Scale, wanted: Sequence[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """No change, the ticks farthest from it, and between them those that have room."""
    inside = [tick for tick in wanted if scale.low <= tick[0] <= scale.high]
    kept = [(scale.at(0.0), "0")] if scale.low <= 0 <= scale.high else []
    for value, said in sorted(inside, key=lambda tick: abs(tick[0]), reverse=True):
        at = scale.at(value)
        if all(abs(at - other) >= _ROOM for other, _ in kept):
            kept.append((at, said))
    return tuple(sorted(kept))
