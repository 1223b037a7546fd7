"""The shapes of work: how many tool calls a trajectory makes, how long they take, how much text passes.

From the study of deep-research training (Qwen3-14B on 8xH100): 1 to 8 tool calls a trajectory, mean 4.5, about 16 s a
call, two kinds of tools (a search API; fetching and reading a page). Everything else here is ours, chosen to give
those figures: the shares and spreads of the two tools, and all token counts.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from workloads.deep_research.faults import (
    EMPTY,
    ERROR,
    GARBLED,
    HUGE,
    REDIRECTS,
    REFUSED,
    SLOW,
    TIMEOUT,
    Fault,
    Faults,
    decode_faults,
)
from workloads.deep_research.laws import Empirical, Law, LogNormal, decode_law

__all__ = ["BROWSE", "FINISH", "PRESETS", "SEARCH", "LogNormal", "Preset", "decode_preset", "encode_preset"]
__all__ += ["preset_of"]

SEARCH = "search_engine"
BROWSE = "web_browser"
FINISH = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One shape of work. Lengths are in tokens, latencies in seconds.

    Calls of a trajectory follow the law `calls`, within `least_calls`..`most_calls`; without one they are uniform
    over that range. `generated` and `observation` are per turn and per tool call; an observation's length includes
    its chat-template wrapper, whence the least lengths. `faults` are drawn apart from all else: with and without
    them, the same calls are made.
    """

    name: str
    least_calls: int
    most_calls: int
    search_share: float  # the rest browses
    latency_s: Mapping[str, Law]  # by tool; one that is never called may lack
    prompt: Law
    generated: Law
    observation: Law
    calls: Empirical | None = None
    faults: Faults = field(default_factory=dict)

    @property
    def mean_call_s(self) -> float:
        """Mean seconds of a tool call that goes well."""
        shares = {SEARCH: self.search_share, BROWSE: 1 - self.search_share}
        return sum(share * self.latency_s[tool].clipped_mean for tool, share in shares.items() if share > 0)

    @property
    def slowest_call_s(self) -> float:
        """No planned tool call takes longer, in seconds."""
        own = (fault.latency_s for kinds in self.faults.values() for fault in kinds.values())
        return max(law.cap for law in (*self.latency_s.values(), *own) if law is not None)


# Means of 10 s and 25 s in shares of 60 % and 40 % are the study's 16 s a call. No call is planned to take longer
# than 5 minutes (2 browses in 10,000 would): beyond that a client gives up.
_LATENCY = {
    SEARCH: LogNormal(mean=10.0, sigma=0.6, least=0.5, cap=300.0),
    BROWSE: LogNormal(mean=25.0, sigma=0.8, least=0.5, cap=300.0),
}

# A smoke trajectory spends about 0.6 s in tools and hardly ever more than 2 s, so that a step's straggler costs a CPU
# run seconds, not minutes.
_SMOKE_LATENCY = 0.008

# A server that says nothing is given up after a minute; only one that goes on answering is waited for longer.
_SILENT_S = 60.0


def _faults(latency_scale: float) -> Faults:
    """Rates are ours: what a busy crawler may meet, each often enough to be seen within a hundred trajectories."""
    timeout = Empirical(values=(_SILENT_S * latency_scale,), shares=(1.0,))
    rare, some, often = Fault(rate=0.01), Fault(rate=0.02), Fault(rate=0.03)
    return {
        SEARCH: {TIMEOUT: Fault(rate=0.02, latency_s=timeout), ERROR: some, REFUSED: often, EMPTY: often},
        BROWSE: {
            TIMEOUT: Fault(rate=0.03, latency_s=timeout),
            ERROR: often,
            REFUSED: often,
            EMPTY: rare,
            REDIRECTS: rare,
            HUGE: some,
            GARBLED: some,
            SLOW: some,
        },
    }


_FULL = Preset(
    name="deep-research",
    least_calls=1,
    most_calls=8,
    search_share=0.6,
    latency_s=_LATENCY,
    prompt=LogNormal(mean=512, sigma=0.25, least=128, cap=1_024),
    generated=LogNormal(mean=600, sigma=0.6, least=16, cap=2_048),
    observation=LogNormal(mean=1_500, sigma=0.6, least=64, cap=4_096),
)
_SMOKE = Preset(
    name="deep-research-smoke",
    least_calls=1,
    most_calls=8,
    search_share=0.6,
    latency_s={tool: latency.scaled(_SMOKE_LATENCY) for tool, latency in _LATENCY.items()},
    prompt=LogNormal(mean=48, sigma=0.1, least=36, cap=64),
    generated=LogNormal(mean=16, sigma=0.5, least=4, cap=48),
    observation=LogNormal(mean=24, sigma=0.35, least=16, cap=64),
)

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        _FULL,
        _SMOKE,
        replace(_FULL, name="deep-research-faulty", faults=_faults(1.0)),
        replace(_SMOKE, name="deep-research-faulty-smoke", faults=_faults(_SMOKE_LATENCY)),
    )
}


def preset_of(spec: RunSpec) -> Preset:
    """The preset of a run: its own definition where it carries one, else the built-in of that name.

    Raises:
        SpecError: there is none of that name, or the definition is not a preset's.
    """
    if spec.preset_definition:
        return decode_preset(spec.preset_definition)
    try:
        return PRESETS[spec.preset]
    except KeyError:
        raise SpecError(
            f"preset = {spec.preset!r}: unknown; allowed is a file or one of {', '.join(PRESETS)}"
        ) from None


def encode_preset(preset: Preset) -> str:
    """A preset as one line of JSON with sorted keys: equal presets have equal texts."""
    return json.dumps(asdict(preset), sort_keys=True)


def decode_preset(text: str) -> Preset:
    """The preset that `encode_preset` wrote, or someone by hand; `calls` and `faults` may lack.

    Raises:
        SpecError: not JSON, its keys are not a preset's, or a value is none that it may have; says which.
    """
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict):
            raise ValueError(f"{type(raw).__name__}: allowed is an object")
        return _preset(raw)
    except ValueError as error:
        raise SpecError(f"preset: its definition cannot be read: {error}") from None


def _preset(raw: Mapping[str, Any]) -> Preset:
    known = [each.name for each in fields(Preset)]
    for name in raw:
        if name not in known:
            raise ValueError(f"{name}: allowed is {', '.join(known)}")
    for name in known:
        if name not in raw and name not in ("calls", "faults"):
            raise ValueError(f"{name}: missing")
    if not isinstance(raw["name"], str) or not raw["name"]:
        raise ValueError(f"name = {raw['name']!r}: allowed is a text")
    least, most, share = raw["least_calls"], raw["most_calls"], raw["search_share"]
    for name in ("least_calls", "most_calls"):
        if isinstance(raw[name], bool) or not isinstance(raw[name], int):
            raise ValueError(f"{name} = {raw[name]!r}: allowed is a whole number")
    if not 0 <= least <= most:
        raise ValueError(f"least_calls = {least}, most_calls = {most}: allowed is 0 <= least_calls <= most_calls")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"search_share = {share!r}: allowed is 0 to 1")
    if not isinstance(raw["latency_s"], Mapping):
        raise ValueError(f"latency_s = {raw['latency_s']!r}: allowed is an object of laws by tool")
    latency_s = {tool: _law(law, f"latency_s.{tool}") for tool, law in raw["latency_s"].items()}
    for tool in latency_s:
        if tool not in (SEARCH, BROWSE):
            raise ValueError(f"latency_s.{tool}: allowed is {SEARCH}, {BROWSE}")
    for tool, called in ((SEARCH, share > 0), (BROWSE, share < 1)):
        if called and tool not in latency_s:
            raise ValueError(f"latency_s.{tool}: missing; search_share = {share} calls it")
    calls = None if raw.get("calls") is None else _law(raw["calls"], "calls", positive=False)
    if calls is not None and not (isinstance(calls, Empirical) and least <= calls.least and calls.cap <= most):
        raise ValueError("calls: allowed are values and shares, values within least_calls..most_calls")
    return Preset(
        name=raw["name"],
        least_calls=least,
        most_calls=most,
        search_share=float(share),
        latency_s=latency_s,
        prompt=_law(raw["prompt"], "prompt"),
        generated=_law(raw["generated"], "generated"),
        observation=_law(raw["observation"], "observation"),
        calls=calls,
        faults=decode_faults(raw.get("faults", {}), latency_s),
    )


def _law(raw: Any, name: str, *, positive: bool = True) -> Law:
    try:
        return decode_law(raw, positive=positive)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
