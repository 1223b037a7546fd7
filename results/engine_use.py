"""What each engine did in the window, by its own numbers: how many sequences it ran, its cache, its tokens.

Gauges are read once a period at a random moment in it, so their means over readings are unbiased means over time.
Counters are taken as differences of two readings, so they are of the time between these, which is a little less than
the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from results.engine_samples import Series, series_of
from results.figure import Figures
from results.intervals import Ns
from results.store import RunTables
from results.window import Window

LOW_BAND = 0.25  # of the p95 of running sequences over all engines: below it an engine works, but little
FIGURES = {
    "queued_share": "ratio",
    "engine_running_mean": "request",
    "engine_kv_cache_max": "ratio",
    "prefix_hit_ratio": "ratio",
    "prefill_token_share": "ratio",
    "engine_preemptions": "request",
    "engine_call_s_mean": "s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """One engine over the window. None: not told by this engine, or by fewer than two readings."""

    engine: str
    readings: int
    failed: int  # calls without an answer before the engine's last one, of the whole run
    call_s: float  # mean duration of a call
    running: float | None  # mean sequences, over readings with any
    busy_share: float | None  # readings with any sequence
    low_share: float | None  # readings with any sequence, and fewer than LOW_BAND of the run's p95
    waiting: float | None  # mean in the engine's own queue
    waiting_max: float | None
    kv_mean: float | None
    kv_max: float | None
    preemptions: float | None
    prompt_tokens: float | None  # taken, cached ones too
    cached_tokens: float | None
    generated_tokens: float | None

    @property
    def prefilled_tokens(self) -> float | None:
        """Prompt tokens that were computed."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return max(0.0, self.prompt_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesUse:
    """The engines of a run; none, and `reason`, where none told its numbers in the window."""

    engines: tuple[EngineUse, ...]
    reason: str | None
    scraper_cpu_s: float | None = None  # of the scrapers' processes, in their whole lives

    def total(self, name: str) -> float | None:
        """A count over all engines; None where one of them does not tell it."""
        each = [getattr(engine, name) for engine in self.engines]
        return sum(each) if each and None not in each else None

    @property
    def prefix_hit_ratio(self) -> float | None:
        """Prompt tokens found in the prefix cache."""
        prompt, cached = self.total("prompt_tokens"), self.total("cached_tokens")
        return cached / prompt if prompt and cached is not None else None

    @property
    def prefill_share(self) -> float | None:
        """Computed prompt tokens as a share of all tokens that went through the engines: work, not time."""
        prefilled, generated = self.total("prefilled_tokens"), self.total("generated_tokens")
        if prefilled is None or generated is None or not prefilled + generated:
            return None
        return prefilled / (prefilled + generated)


def engines_use(run: RunTables, window: Window) -> EnginesUse:
    """Each engine's numbers over the window."""
    low, high = window.start_ns, window.end_ns
    every = list(series_of(run).values())
    running = [_inside(each, "running_requests", low, high)[1] for each in every]
    busy = np.concatenate([values[values > 0] for values in running]) if running else np.empty(0)
    bound = LOW_BAND * float(np.quantile(busy, 0.95, method="inverted_cdf")) if busy.size else None
    found = [_use(each, low, high, bound) for each in every]
    kept = tuple(each for each in found if each.readings)
    return EnginesUse(engines=kept, reason=None if kept else _reason(run, every), scraper_cpu_s=_cpu_s(run))


def put_engine_figures(figures: Figures, use: EnginesUse, queued_share: float | None, why_not_queued: str) -> None:
    """The run's figures of its engines."""
    why, n = use.reason, sum(each.readings for each in use.engines)
    put = figures.put
    put("queued_share", "ratio", queued_share, n=n, note=None if queued_share is not None else why_not_queued)
    running = [(each.running, each.readings * (each.busy_share or 0.0)) for each in use.engines if each.running]
    mean = sum(r * w for r, w in running) / sum(w for _, w in running) if running else None
    put("engine_running_mean", "request", mean, n=n, note=why or "per engine, over readings with any sequence")
    fullest = [each.kv_max for each in use.engines if each.kv_max is not None]
    put("engine_kv_cache_max", "ratio", max(fullest) if fullest else None, n=n, note=why)
    untold = why or "an engine does not tell one of the two counters, or was read once"
    hit, share = use.prefix_hit_ratio, use.prefill_share
    put("prefix_hit_ratio", "ratio", hit, n=n, note=untold if hit is None else "of prompt tokens")
    note = "computed prompt tokens of all tokens computed: an estimate of work, not of time"
    put("prefill_token_share", "ratio", share, n=n, note=untold if share is None else note)
    put("engine_preemptions", "request", use.total("preemptions"), n=n, note=why)
    calls = [each.call_s * each.readings for each in use.engines]
    cpu = "no scraper ended cleanly"
    if use.scraper_cpu_s is not None:
        cpu = f"{use.scraper_cpu_s:.3f} s of CPU in the scraper, whole run"
    put("engine_call_s_mean", "s", sum(calls) / n if n else None, n=n, note=why or f"of one scrape; {cpu}")


def _use(series: Series, low: int, high: int, bound: float | None) -> EngineUse:
    at, running = _inside(series, "running_requests", low, high)
    _, waiting = _inside(series, "waiting_requests", low, high)
    _, cache = _inside(series, "kv_cache_ratio", low, high)
    inside = (series.mono_ns >= low) & (series.mono_ns < high)
    busy = running[running > 0]
    return EngineUse(
        engine=series.engine,
        readings=int(inside.sum()),
        failed=series.failed,
        call_s=float(2 * series.uncertainty_ns[inside].mean()) / 1e9 if inside.any() else 0.0,
        running=_mean(busy),
        busy_share=busy.size / at.size if at.size else None,
        low_share=float((busy < bound).sum()) / at.size if at.size and bound is not None else None,
        waiting=_mean(waiting),
        waiting_max=float(waiting.max()) if waiting.size else None,
        kv_mean=_mean(cache),
        kv_max=float(cache.max()) if cache.size else None,
        preemptions=_grown(series, "preemptions", low, high),
        prompt_tokens=_grown(series, "prompt_tokens", low, high),
        cached_tokens=_grown(series, "prefix_hit_tokens", low, high),
        generated_tokens=_grown(series, "generation_tokens", low, high),
    )


def _inside(series: Series, name: str, low: int, high: int) -> tuple[Ns, npt.NDArray[np.float64]]:
    at, values = series.known(name)
    keep = (at >= low) & (at < high)
    return at[keep], values[keep]


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    return float(values.mean()) if values.size else None


def _grown(series: Series, name: str, low: int, high: int) -> float | None:
    """What a counter grew by; a fall is a restart, and what it lost with it is not known: it began again from 0."""
    _, values = _inside(series, name, low, high)
    if values.size < 2:
        return None
    steps = np.diff(values)
    return float(np.where(steps < 0, values[1:], steps).sum())


def _cpu_s(run: RunTables) -> float | None:
    probes = run.tables["probes"]
    told = probes.filter(pc.equal(probes.column("name"), "telemetry.engines.cpu")).column("value").drop_null()
    return float(pc.sum(told).as_py()) if len(told) else None


def _reason(run: RunTables, every: Sequence[Series]) -> str:
    if every:
        return "no engine answered within the window"
    told = {row["reason"] for row in run.tables["engine_samples"].select(["reason"]).to_pylist() if row["reason"]}
    return "; ".join(sorted(told)[:3]) or "no engine announced where it tells its numbers"
