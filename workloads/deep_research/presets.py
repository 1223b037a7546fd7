"""The shapes of work: how many tool calls a trajectory makes, how long they take, how much text passes.

From the study of deep-research training (Qwen3-14B on 8xH100): 1 to 8 tool calls a trajectory, mean 4.5, about 16 s a
call, two kinds of tools (a search API; fetching and reading a page). Everything else here is ours, chosen to give
those figures: the shares and spreads of the two tools, and all token counts.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec

SEARCH = "search_engine"
BROWSE = "web_browser"
FINISH = "finish"

_STANDARD = NormalDist()


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
        return math.log(self.mean) - self.sigma**2 / 2

    @property
    def clipped_mean(self) -> float:
        """Mean after clipping, in closed form: least P(X < least) + E[X; inside] + cap P(X > cap)."""
        below = (math.log(self.least) - self.mu) / self.sigma
        above = (math.log(self.cap) - self.mu) / self.sigma
        inside = self.mean * (_STANDARD.cdf(above - self.sigma) - _STANDARD.cdf(below - self.sigma))
        return self.least * _STANDARD.cdf(below) + inside + self.cap * (1 - _STANDARD.cdf(above))

    def at(self, u: float) -> float:
        """The quantile `u`, 0 < u < 1, clipped."""
        value = math.exp(self.mu + self.sigma * _STANDARD.inv_cdf(u))
        return min(max(value, self.least), self.cap)

    def scaled(self, factor: float) -> "LogNormal":
        """The same shape, `factor` times as large."""
        return LogNormal(mean=self.mean * factor, sigma=self.sigma, least=self.least * factor, cap=self.cap * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One shape of work. Calls are uniform over `least_calls`..`most_calls`; lengths in tokens, latencies in seconds.

    `generated` and `observation` are per turn and per tool call; an observation's length includes its chat-template
    wrapper, whence the least lengths.
    """

    name: str
    least_calls: int
    most_calls: int
    search_share: float  # the rest browses
    latency_s: Mapping[str, LogNormal]  # by tool
    prompt: LogNormal
    generated: LogNormal
    observation: LogNormal

    @property
    def mean_call_s(self) -> float:
        """Mean seconds of a tool call."""
        search, browse = self.latency_s[SEARCH].clipped_mean, self.latency_s[BROWSE].clipped_mean
        return self.search_share * search + (1 - self.search_share) * browse

    @property
    def slowest_call_s(self) -> float:
        """No planned tool call takes longer, in seconds."""
        return max(latency.cap for latency in self.latency_s.values())


# Means of 10 s and 25 s in shares of 60 % and 40 % are the study's 16 s a call. No call is planned to take longer
# than 5 minutes (2 browses in 10,000 would): beyond that a client gives up.
_LATENCY = {
    SEARCH: LogNormal(mean=10.0, sigma=0.6, least=0.5, cap=300.0),
    BROWSE: LogNormal(mean=25.0, sigma=0.8, least=0.5, cap=300.0),
}

# A smoke trajectory spends about 0.6 s in tools and hardly ever more than 2 s, so that a step's straggler costs a CPU
# run seconds, not minutes.
_SMOKE_LATENCY = 0.008

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="deep-research",
            least_calls=1,
            most_calls=8,
            search_share=0.6,
            latency_s=_LATENCY,
            prompt=LogNormal(mean=512, sigma=0.25, least=128, cap=1_024),
            generated=LogNormal(mean=600, sigma=0.6, least=16, cap=2_048),
            observation=LogNormal(mean=1_500, sigma=0.6, least=64, cap=4_096),
        ),
        Preset(
            name="deep-research-smoke",
            least_calls=1,
            most_calls=8,
            search_share=0.6,
            latency_s={tool: latency.scaled(_SMOKE_LATENCY) for tool, latency in _LATENCY.items()},
            prompt=LogNormal(mean=48, sigma=0.1, least=36, cap=64),
            generated=LogNormal(mean=16, sigma=0.5, least=4, cap=48),
            observation=LogNormal(mean=24, sigma=0.35, least=16, cap=64),
        ),
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
    """The preset that `encode_preset` wrote.

    Raises:
        SpecError: not JSON, or its keys are not a preset's.
    """
    try:
        raw = json.loads(text)
        lengths = {key: LogNormal(**raw[key]) for key in ("prompt", "generated", "observation")}
        latency_s = {tool: LogNormal(**latency) for tool, latency in raw["latency_s"].items()}
        return Preset(**{**raw, **lengths, "latency_s": latency_s})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SpecError(f"preset: its definition cannot be read: {type(error).__name__}: {error}") from None
