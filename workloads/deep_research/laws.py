"""Laws that quantities are drawn from: a clipped log-normal, and what was seen, as it was seen."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any, TypeAlias

_STANDARD = NormalDist()
_quantile = _STANDARD.inv_cdf


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """A log-normal quantity of a given mean, clipped to `least` and `cap`.

    `mean` is that of the distribution before clipping: mu = ln(mean) - sigma^2 / 2. A draw beyond the cap becomes the
    cap, as `max_tokens` cuts a reply and a client a slow page, so the mean of what is drawn differs a little:
    `clipped_mean` says by how much.
    """

    mean: float
    sigma: float
    least: float
    cap: float

    @property
    def mu(self) -> float:
        """Mean of the logarithm."""
        return _mu(self.mean, self.sigma)

    @property
    def clipped_mean(self) -> float:
        """Mean after clipping, in closed form: least P(X < least) + E[X; inside] + cap P(X > cap)."""
        below = (math.log(self.least) - self.mu) / self.sigma
        above = (math.log(self.cap) - self.mu) / self.sigma
        inside = self.mean * (_STANDARD.cdf(above - self.sigma) - _STANDARD.cdf(below - self.sigma))
        return self.least * _STANDARD.cdf(below) + inside + self.cap * (1 - _STANDARD.cdf(above))

    def at(self, u: float) -> float:
        """The quantile `u`, 0 < u < 1, clipped."""
        value = math.exp(_mu(self.mean, self.sigma) + self.sigma * _quantile(u))
        return self.least if value < self.least else self.cap if value > self.cap else value

    def scaled(self, factor: float) -> "LogNormal":
        """The same shape, `factor` times as large."""
        return LogNormal(mean=self.mean * factor, sigma=self.sigma, least=self.least * factor, cap=self.cap * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """A quantity that takes recorded values: `values[i]` for the quantiles beyond `shares[i - 1]` up to `shares[i]`.

    Values and shares ascend; the last share is 1. A value may stand for several neighbours, as their mean: so the mean
    is that of the recording, whatever was drawn together.
    """

    values: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def clipped_mean(self) -> float:
        """Mean of what is drawn (the name is the log-normal's: nothing is clipped here)."""
        widths = [self.shares[0], *(after - before for before, after in pairwise(self.shares))]
        return math.fsum(width * value for width, value in zip(widths, self.values, strict=True))

    @property
    def least(self) -> float:
        """Smallest value."""
        return self.values[0]

    @property
    def cap(self) -> float:
        """Largest value."""
        return self.values[-1]

    def at(self, u: float) -> float:
        """The quantile `u`, 0 < u < 1."""
        return self.values[min(bisect_left(self.shares, u), len(self.values) - 1)]

    def scaled(self, factor: float) -> "Empirical":
        """The same shape, `factor` times as large."""
        return Empirical(values=tuple(value * factor for value in self.values), shares=self.shares)


Law: TypeAlias = LogNormal | Empirical


@lru_cache(maxsize=256)  # laws are few, and drawn from for every turn of every trajectory
def _mu(mean: float, sigma: float) -> float:
    return math.log(mean) - sigma**2 / 2


def decode_law(raw: Any, *, positive: bool = True) -> Law:
    """The law that `dataclasses.asdict` made `raw` of.

    Args:
        positive: every value must be more than 0 (else: not less).

    Raises:
        ValueError: it is neither law, or its numbers are none of one.
    """
    if not isinstance(raw, Mapping):
        raise ValueError(f"{raw!r} is no law; allowed is an object with mean, sigma, least, cap or values, shares")
    if set(raw) == {"mean", "sigma", "least", "cap"}:
        numbers = {name: _number(value, name) for name, value in raw.items()}
        if not (numbers["mean"] > 0 and numbers["sigma"] > 0 and 0 < numbers["least"] <= numbers["cap"]):
            raise ValueError(f"{dict(raw)}: allowed is mean > 0, sigma > 0 and 0 < least <= cap")
        return LogNormal(**numbers)
    if set(raw) == {"values", "shares"}:
        lists = [raw["values"], raw["shares"]]
        if not all(isinstance(each, list | tuple) and each for each in lists) or len(lists[0]) != len(lists[1]):
            raise ValueError("values and shares: allowed are two lists of one length, not empty")
        values = tuple(_number(value, "values") for value in lists[0])
        shares = tuple(_number(value, "shares") for value in lists[1])
        if list(values) != sorted(values) or values[0] < 0 or (positive and values[0] == 0):
            raise ValueError(f"values: allowed are ascending numbers {'more than' if positive else 'not below'} 0")
        if any(before >= after for before, after in pairwise((0.0, *shares))) or shares[-1] != 1:
            raise ValueError("shares: allowed are ascending numbers from more than 0 to exactly 1")
        return Empirical(values=values, shares=shares)
    raise ValueError(f"keys {sorted(raw)}: allowed is mean, sigma, least, cap or values, shares")


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} = {value!r}: allowed is a number")
    return float(value)
