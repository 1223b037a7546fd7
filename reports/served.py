"""What stood behind a run's tools: whether their latencies were imposed, which providers answered, what a cache did."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.protocol.spec import RunSpec
from reports.markdown import number, percent
from results.store import RunTables

IMPOSING = ("mock", "replay")  # tools whose calls take the latency that a plan or a recording says


def imposed(spec: RunSpec) -> bool:
    """Whether the latencies of the tool calls are part of the work that was offered."""
    return spec.tools.partition(":")[0] in IMPOSING


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """What a tool server asked of its cache over the run."""

    mode: str
    hits: int
    asked: int

    @property
    def share(self) -> float:
        """Answers that came from it; 0 where nothing was asked of it."""
        return self.hits / self.asked if self.asked else 0.0


def cache_use(run: RunTables) -> CacheUse | None:
    """The cache of a run's tools; None where they have none, or left no counters."""
    found = entry(run.meta, "tools", "counters", "backend", "cache")
    if not isinstance(found, Mapping) or not isinstance(found.get("mode"), str):
        return None
    hits, misses = found.get("hits", 0), found.get("misses", 0)
    if not isinstance(hits, int) or not isinstance(misses, int):
        return None
    return CacheUse(mode=found["mode"], hits=hits, asked=hits + misses)


def served(run: RunTables) -> str | None:
    """The tools in one line: what served them, providers and their requests, the cache. None: nothing is on record."""
    facts = run.meta.get("tools")
    if not isinstance(facts, Mapping):
        return None
    parts = [str(facts.get("tools") or run.spec.tools)]
    if isinstance(facts.get("pages"), int):
        parts.append(f"corpus of {number(facts['pages'])} pages")
    providers = entry(facts, "counters", "backend", "search", "providers")
    if isinstance(providers, Mapping):
        asked = [f"{name} ({_requests(what)})" for name, what in providers.items()]
        parts.append(f"providers in this order: {', '.join(asked)}" if asked else "no provider")
    cache = cache_use(run)
    if cache is not None:
        said = f"cache {cache.mode}"
        if cache.asked:
            said += f": {cache.hits:,} of {cache.asked:,} answers came from it ({percent(cache.share)})"
        parts.append(said)
    if facts.get("counters") is None:
        parts.append("its counters were not left behind")
    return ", ".join(parts)


def entry(meta: Mapping[str, Any], *keys: str) -> Any:
    """A nested entry, or None: meta.json of a killed run may lack anything."""
    value: Any = meta
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _requests(what: object) -> str:
    counts = what.get("requests") if isinstance(what, Mapping) else None
    if not isinstance(counts, Mapping):
        return "requests not known"
    total = sum(count for count in counts.values() if isinstance(count, int))
    return f"{total:,} request" + ("s" if total != 1 else "")
