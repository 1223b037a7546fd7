"""What an engine's Prometheus text says, in our words: one value per reading, or why there is none.

Names as vLLM (0.6 to 0.30) and SGLang (0.4 and 0.5) expose them; between versions they got or lost `_total`, and
vLLM's `gpu_cache_usage_perc` became `kv_cache_usage_perc`. Format: prometheus.io, "Exposition formats", text 0.0.4;
OpenMetrics' counters read the same.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Reading -> names it may have, the first that is there counts. A value per label set (one per data-parallel engine, or
# per source) is added up; a share is the fullest one's.
NAMES: Mapping[str, tuple[str, ...]] = {
    "running_requests": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting_requests": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "kv_cache_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "prefix_query_tokens": (
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_queries",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries",
    ),
    "prefix_hit_tokens": (
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits",
        "sglang:cached_tokens_total",
        "sglang:cached_tokens",
    ),
    "prompt_tokens": (
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens",
        "sglang:prompt_tokens_total",
        "sglang:prompt_tokens",
    ),
    "generation_tokens": (
        "vllm:generation_tokens_total",
        "vllm:generation_tokens",
        "sglang:generation_tokens_total",
        "sglang:generation_tokens",
    ),
    "preemptions": (
        "vllm:num_preemptions_total",
        "vllm:num_preemptions",
        "sglang:num_retracted_requests_total",
    ),
}
READINGS = tuple(NAMES)
_FULLEST = frozenset({"kv_cache_ratio"})
_FAMILIES = ("vllm", "sglang")
# Ranks of one engine that each tell the same number: the first speaks for all.
_SAME_ON_ALL_RANKS = ("tp_rank", "attn_tp_rank", "pp_rank")

_LINE = re.compile(
    r'(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>(?:[^"}]|"(?:\\.|[^"\\])*")*)\})?\s+(?P<value>\S+)'
    r"(?:\s+[-+.\w]+)?\s*(?:#.*)?"
)
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:\\.|[^"\\])*)"')


class ExpositionError(ValueError):
    """The text is no Prometheus text, or says nothing of an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One answer of an engine. `values` has every reading of READINGS; `missing` says why one is None."""

    family: str  # vllm | sglang
    values: Mapping[str, float | None]
    missing: Mapping[str, str]

    @property
    def why(self) -> str | None:
        """What is missing, in words: `a, b: why`; None when nothing is."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.missing.items():
            by_reason.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()) or None


def _wanted() -> dict[str, tuple[str, int, str]]:
    found: dict[str, tuple[str, int, str]] = {}
    for reading, names in NAMES.items():
        for rank, name in enumerate(names):
            # Some gateways turn the colon into an underscore.
            for spelt in (name, name.replace(":", "_")):
                found[spelt] = (reading, rank, name)
    return found


_WANTED = _wanted()
_BEGINNINGS = tuple(_WANTED)


def parse(text: str) -> Reading:
    """The readings of one answer.

    Raises:
        ExpositionError: no line of it is a vLLM or SGLang metric, or a line of one cannot be read.
    """
    values: dict[str, dict[int, list[float]]] = {}
    family: str | None = None
    for line in text.split("\n"):
        if not line.startswith(_BEGINNINGS):  # most of a page is histograms
            continue
        cut = min((at for at in (line.find("{"), line.find(" "), line.find("\t")) if at > 0), default=len(line))
        known = _WANTED.get(line[:cut])
        if known is None:
            continue
        reading, rank, name = known
        family = name.partition(":")[0]
        value = _value(line)
        if value is not None:
            values.setdefault(reading, {}).setdefault(rank, []).append(value)
    if family is None:
        family = next((each for each in _FAMILIES if f"\n{each}:" in f"\n{text}"), None)
    if family is None:
        raise ExpositionError(
            "the answer has no metric of vLLM or SGLang: are its statistics off"
            " (vLLM: disable_log_stats, SGLang: no enable_metrics), or is it another server?"
        )
    found: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for reading in NAMES:
        of_ranks = values.get(reading)
        if not of_ranks:
            found[reading] = None
            missing[reading] = f"not told by this {family}"
            continue
        series = of_ranks[min(of_ranks)]
        combine: Callable[[Sequence[float]], float] = max if reading in _FULLEST else math.fsum
        whole = combine(series)
        found[reading] = whole if math.isfinite(whole) else None
        if not math.isfinite(whole):
            missing[reading] = f"the engine says {whole}"
    return Reading(family=family, values=found, missing=missing)


def _value(line: str) -> float | None:
    """The value of a line; None where another rank tells the same."""
    match = _LINE.fullmatch(line.rstrip("\r"))
    if match is None:
        raise ExpositionError(f"a line cannot be read: {line[:120]!r}")
    labels = match["labels"]
    if labels and any(rank in labels for rank in _SAME_ON_ALL_RANKS):
        told = dict(_LABEL.findall(labels))
        if any(told.get(rank, "0") != "0" for rank in _SAME_ON_ALL_RANKS):
            return None
    try:
        return float(match["value"])
    except ValueError:
        raise ExpositionError(f"no number in a line: {line[:120]!r}") from None
