"""What can go wrong with a tool call, as data: rates in a preset, a fault in a plan, an answer of the mock tools."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.deep_research.laws import Law, decode_law

TIMEOUT, ERROR, REFUSED, EMPTY = "timeout", "error", "refused", "empty"
REDIRECTS, HUGE, GARBLED, SLOW = "redirects", "huge", "garbled", "slow"

SLOW_FACTOR = 4.0  # a slow drip takes this many times its latency, up to the tool's cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to go wrong: the status that is recorded, and what the answer says."""

    status: str  # as tools.STATUSES
    text: str = ""  # of the answer; empty: the usual filler
    detail: str | None = None
    http_status: int | None = None


KINDS: Mapping[str, Kind] = {
    TIMEOUT: Kind(status="timeout", text="The tool did not answer in time.", detail="planned fault: no answer in time"),
    ERROR: Kind(status="error", text="The tool failed: HTTP 503.", detail="planned fault: HTTP 503", http_status=503),
    REFUSED: Kind(
        status="refused", text="The tool refused: HTTP 429.", detail="planned fault: HTTP 429", http_status=429
    ),
    EMPTY: Kind(status="empty", text="No results.", detail="planned fault: nothing found", http_status=200),
    REDIRECTS: Kind(
        status="error", text="The tool failed: redirects in a circle.", detail="planned fault: redirect loop"
    ),
    HUGE: Kind(status="ok", http_status=200),  # an answer of the greatest length
    GARBLED: Kind(status="ok", http_status=200),  # bytes read in a wrong encoding
    SLOW: Kind(status="ok", http_status=200),  # the answer drips
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How often a tool goes wrong in one way, and how long that takes; None: as `latency` says."""

    rate: float  # share of the tool's calls
    latency_s: Law | None = None


Faults = Mapping[str, Mapping[str, Fault]]
"""By tool, by kind."""


def drawn(faults: Mapping[str, Fault], u: float) -> str | None:
    """The kind at the quantile `u` of a tool's faults, in the order of `KINDS`; None: all is well."""
    for kind in KINDS:
        if kind in faults:
            u -= faults[kind].rate
            if u < 0:
                return kind
    return None


def latency(kind: str, fault: Fault, usual: Law, u: float) -> float:
    """Seconds that a faulty call takes: by the fault's own law, else from the tool's `usual` one.

    A time-out takes the tool's longest latency, a refusal its shortest, a drip `SLOW_FACTOR` times the usual one (up
    to the longest), all others what a good call would have taken.
    """
    if fault.latency_s is not None:
        return fault.latency_s.at(u)
    if kind == TIMEOUT:
        return usual.cap
    if kind == REFUSED:
        return usual.least
    return min(SLOW_FACTOR * usual.at(u), usual.cap) if kind == SLOW else usual.at(u)


def tokens(kind: str, usual: Law, u: float) -> float:
    """Length of the answer to a faulty call: what went wrong is told briefly, a huge page is as long as any may be."""
    if KINDS[kind].text:
        return usual.least
    return usual.cap if kind == HUGE else usual.at(u)


def status_of(kind: str | None) -> str:
    """The status that a call with this planned fault (None: without) is recorded with."""
    return "ok" if kind is None else KINDS[kind].status


def garble(text: str) -> str:
    """Text as it looks when its bytes are read in a wrong encoding: UTF-8 with accents, read as Latin-1."""
    return text.translate(_ACCENTS).encode().decode("latin-1")


_ACCENTS = str.maketrans("aeiounc", "äéîöüñç")


def decode_faults(raw: Any, tools: Mapping[str, Law], law: Callable[[Any], Law] = decode_law) -> Faults:
    """The faults of a preset file; a plain number stands for a rate.

    Raises:
        ValueError: an unknown tool or kind, rates outside 0..1, or rates of one tool that sum to more than 1.
    """
    if not isinstance(raw, Mapping):
        raise ValueError(f"faults = {raw!r}: allowed is an object by tool, of rates by kind")
    found: dict[str, dict[str, Fault]] = {}
    for tool, kinds in raw.items():
        if tool not in tools:
            raise ValueError(f"faults.{tool}: allowed is one of {', '.join(tools)}")
        if not isinstance(kinds, Mapping):
            raise ValueError(f"faults.{tool} = {kinds!r}: allowed is an object of rates by kind")
        found[tool] = {}
        for kind, value in kinds.items():
            where = f"faults.{tool}.{kind}"
            if kind not in KINDS:
                raise ValueError(f"{where}: allowed is one of {', '.join(KINDS)}")
            given = value if isinstance(value, Mapping) else {"rate": value}
            rate = given.get("rate")
            if not set(given) <= {"rate", "latency_s"} or isinstance(rate, bool) or not isinstance(rate, int | float):
                raise ValueError(f"{where} = {value!r}: allowed is a rate, or an object with rate and latency_s")
            if not 0 <= rate <= 1:
                raise ValueError(f"{where}: rate {rate}: allowed is 0 to 1")
            own = given.get("latency_s")
            found[tool][kind] = Fault(rate=float(rate), latency_s=None if own is None else law(own))
        total = math.fsum(fault.rate for fault in found[tool].values())
        if total > 1 + 1e-9:
            raise ValueError(f"faults.{tool}: its rates sum to {total:g}; allowed is 1 at most")
    return found
