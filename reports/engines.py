"""The table of the engines' own numbers, beside the time account."""

from reports.markdown import Footnotes, code, number, percent, seconds, table
from results.account import ENGINE, Account
from results.engine_use import LOW_BAND, EnginesUse, EngineUse

_MOST_ENGINES = 64


def engine_lines(account: Account, use: EnginesUse | None, notes: Footnotes) -> list[str]:
    """What `generating` rests on, and one row per engine; one line where no engine told its numbers."""
    if use is None or not use.engines:
        why = "the run has no window" if use is None else use.reason
        return [f"No engine's own numbers: {why}. `generating` is a turn open at the client: an upper bound."]
    rows = [_row(each, notes) for each in use.engines[:_MOST_ENGINES]]
    header = [
        "Engine",
        "readings (failed)",
        "a call",
        "mean running",
        "running any",
        f"running few (below {LOW_BAND:.0%} of p95)",
        "waiting, mean (most)",
        "KV cache, mean (most)",
        "prompt tokens: computed, cached",
        "generated",
        "preemptions",
    ]
    lines = [_evidence(account), "", *table(header, rows, "l")]
    cost = max(each.readings * each.call_s for each in use.engines) / account.window_s
    cpu = (
        "" if use.scraper_cpu_s is None else f" The scraper used {seconds(use.scraper_cpu_s)} of CPU in the whole run."
    )
    lines += ["", f"Asking held up an engine's server for at most {percent(cost)} of the window.{cpu}"]
    share = use.prefill_share
    if share is not None:
        lines += [
            "",
            f"Of the tokens that went through the engines, {percent(share)} were prompt tokens to compute and the rest "
            "was generated. Prefill and decode share passes, so this estimates work, not time: a generated token costs "
            "more of an engine's time than one of a prompt.",
        ]
    if len(use.engines) > _MOST_ENGINES:
        lines += ["", f"{len(use.engines) - _MOST_ENGINES} more engines are in the results."]
    return lines


def _evidence(account: Account) -> str:
    if account.why_pool is not None:
        return (
            f"The rollout pool is one unit: {account.why_pool}. `generating` is a turn open at the client: an upper "
            "bound."
        )
    known = [unit.engine_known for unit in account.units if unit.engine_known is not None]
    if account.granularity == "metric":
        told = "no turn was open in the pool"
        if known:
            told = f"they speak for {percent(min(known))} of the time with a turn open in the pool at least"
        return (
            "Turns don't name their engine: `generating` is an engine's own count of running requests above 0, each "
            f"reading held for at most 2 scrape periods; trajectories belong to the pool ({told}). While a "
            "turn is open and no reading speaks for an engine, its time is `other`."
        )
    told = f"readings speak for {percent(min(known))} of the time with a turn open" if known else "no turn was open"
    if account.evidence == ENGINE:
        return f"`queued` is a turn open at the client while its engine said that it ran none ({told})."
    return f"`generating` is a turn open at the client, an upper bound: the engines' {told}."


def _row(each: EngineUse, notes: Footnotes) -> list[str]:
    def told(value: float | None) -> str:
        return notes.unknown("this engine does not tell it, or was read once") if value is None else number(value)

    def share(value: float | None) -> str:
        return notes.unknown("this engine does not tell it, or was read once") if value is None else percent(value)

    def count(value: float | None) -> str:
        return notes.unknown("this engine does not tell it, or was read once") if value is None else f"{value:,.0f}"

    return [
        code(each.engine),
        f"{each.readings:,} ({each.failed:,})",
        f"{number(each.call_s * 1e3)} ms",
        "0" if each.running is None and each.busy_share == 0 else told(each.running),
        share(each.busy_share),
        share(each.low_share),
        f"{told(each.waiting)} ({told(each.waiting_max)})",
        f"{share(each.kv_mean)} ({share(each.kv_max)})",
        f"{count(each.prefilled_tokens)}, {count(each.cached_tokens)}",
        count(each.generated_tokens),
        count(each.preemptions),
    ]
