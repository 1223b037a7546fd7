"""What stood behind a run's tools: whether their latencies were imposed, which providers answered, what a cache did."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.protocol.scalars import whole
from harness.protocol.spec import RunSpec
from reports.markdown import percent, plural
from results.store import RunTables

IMPOSING = ("mock", "replay")  # tools whose calls take the latency that a plan or a recording says


def imposed(spec: RunSpec) -> bool:
    """Whether the latencies of the tool calls are part of the work that was offered."""
    return spec.tools.partition(":")[0] in IMPOSING


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """What a tool server asked of its cache over the run: for a page, and for a search at each provider that it tried.

    `earlier`: of the hits, those by answers that were there when the run began; None: it was not counted.
    """

    mode: str
    hits: int
    asked: int
    earlier: int | None = None

    @property
    def share(self) -> float:
        """Answers that came from it; 0 where nothing was asked of it."""
        return self.hits / self.asked if self.asked else 0.0


def cache_use(run: RunTables) -> CacheUse | None:
    """The cache of a run's tools; None where they have none, or left no counters."""
    found = entry(run.meta, "tools", "counters", "backend", "cache")
    if not isinstance(found, Mapping) or not isinstance(found.get("mode"), str):
        return None
    hits, misses = whole(found.get("hits", 0), 0), whole(found.get("misses", 0), 0)
    if hits is None or misses is None:
        return None
    earlier = whole(found.get("hits_of_earlier_answers"), 0)
    return CacheUse(mode=found["mode"], hits=hits, asked=hits + misses, earlier=earlier)


def cache_words(use: CacheUse) -> str:
    """How much of what was asked the cache had, e.g. `30 of 42 answers came from it (71.4%), 12 of them ...`."""
    said = f"{use.hits:,} of {plural(use.asked, 'answer')} came from it ({percent(use.share)})"
    if use.hits and use.earlier is not None:
        said += f", {use.earlier:,} of them of earlier runs"
    return said


def cache_line(run: RunTables) -> str | None:
    """What a reader must know of the calls' times because of a cache; None where there was none, or it had nothing."""
    use = cache_use(run)
    if use is None or use.mode == "off" or not use.asked:
        return None
    said = f"The tools' cache ({use.mode}): {cache_words(use)}."
    if use.hits:
        said += (
            " Such a call takes hardly any time. How much was in the cache before is in no digest: runs differ in it"
            " though their work is the same."
        )
    return said


def served(run: RunTables) -> str | None:
    """The tools in one line: what served them, providers and their requests, the cache, the recording.

    None: nothing is on record.
    """
    facts = run.meta.get("tools")
    if not isinstance(facts, Mapping):
        return None
    parts = [str(facts.get("tools") or run.spec.tools)]
    if (pages := whole(entry(facts, "corpus", "pages"), 0)) is not None:
        parts.append(f"corpus of {plural(pages, 'page')}")
    if run.spec.trace:
        parts.append(f"played from {Path(run.spec.trace).name}")
    providers = entry(facts, "counters", "backend", "search", "providers")
    if isinstance(providers, Mapping):
        asked = [f"{name} ({_requests(what)})" for name, what in providers.items()]
        parts.append(f"providers in this order: {', '.join(asked)}" if asked else "no provider")
    cache = cache_use(run)
    if cache is not None:
        said = f"cache {cache.mode}"
        if cache.asked:
            said += f": {cache_words(cache)}"
        parts.append(said)
    if run.spec.record is not None:
        parts.append(_recorded(facts, run.spec.record))
    if facts.get("counters") is None:
        parts.append("its counters were not left behind")
    return ", ".join(parts)


def entry(meta: Mapping[str, Any], *keys: str) -> Any:
    """A nested entry, or None: meta.json of a killed run may lack anything."""
    value: Any = meta
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _recorded(facts: Mapping[str, Any], asked: str) -> str:
    """Where the calls were recorded, by the files' names alone: where they lie is nobody's business."""
    told = facts.get("recorded")
    files = [Path(str(path)).name for path in told] if isinstance(told, list) else []
    if not files:
        return f"not recorded into {Path(asked).name}"
    calls = whole(entry(facts, "counters", "recorded_calls"), 0)
    counted = f": {plural(calls, 'call')}" if calls is not None and len(files) == 1 else ""
    return f"recorded into {' and '.join(files)}{counted}"


def _requests(what: object) -> str:
    counts = what.get("requests") if isinstance(what, Mapping) else None
    if not isinstance(counts, Mapping):
        return "requests not known"
    return plural(sum(whole(count, 0) or 0 for count in counts.values()), "request")
