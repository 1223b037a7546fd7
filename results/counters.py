"""The engines' own token counters against the replies that were recorded: two countings of the same work.

MEASURING.md, "Plan adherence": the sum of generated tokens equals the delta of the engine's counter.
"""

import json
from dataclasses import dataclass
from itertools import pairwise

import pyarrow.compute as pc

from results.store import RunTables

COUNTER = "engine.generation_tokens"
"""Metric of a cumulative count of generated tokens, label `engine`; read before the first turn and after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterCheck:
    """Tokens by the engines' counters and by the recorded replies; `why` says what was seen or what is missing."""

    counted: int | None
    """Sum over the engines of last - first reading."""
    replied: int | None
    """Ids of all recorded replies between those readings."""
    match: bool | None
    why: str


def check_counters(run: RunTables) -> CounterCheck:
    """Compares the counters with the replies. None where it cannot be told: the metric is missing, a counter fell,
    turns lie outside its readings, or turns were cut (the engine counts what a client never got)."""
    probes = run.tables["probes"]
    probes = probes.filter(pc.equal(probes["name"], COUNTER))
    readings: dict[str, list[tuple[int, float]]] = {}
    for row in probes.select(["mono_ns", "value", "labels_json"]).to_pylist():
        if row["value"] is not None:
            engine = str(json.loads(row["labels_json"]).get("engine"))
            readings.setdefault(engine, []).append((row["mono_ns"], row["value"]))
    if not readings:
        return _unknown(f"no metric {COUNTER} was recorded")
    first_ns = last_ns = None
    counted = 0.0
    for engine, series in sorted(readings.items()):
        values = [value for _, value in sorted(series)]
        if len(values) < 2:
            return _unknown(f"{COUNTER} of engine {engine} was read once")
        if any(after < before for before, after in pairwise(values)):
            return _unknown(f"{COUNTER} of engine {engine} fell: the engine was restarted")
        counted += values[-1] - values[0]
        times = [at for at, _ in series]
        first_ns = min(times) if first_ns is None else max(first_ns, min(times))
        last_ns = max(times) if last_ns is None else min(last_ns, max(times))
    assert first_ns is not None
    assert last_ns is not None
    turns = run.tables["turns"].select(["engine", "start_ns", "end_ns", "generated_tokens"]).to_pydict()
    if any(start < first_ns for start in turns["start_ns"]) or any(end > last_ns for end in turns["end_ns"]):
        return _unknown(f"{COUNTER} was not read before the first turn and after the last one")
    silent = {engine for engine in turns["engine"] if engine is not None} - set(readings)
    if silent and set(readings) != {"None"}:
        return _unknown(f"{COUNTER} was not recorded for engine(s) {', '.join(sorted(silent))}")
    replied = sum(tokens for tokens in turns["generated_tokens"] if tokens is not None)
    cut = sum(tokens is None for tokens in turns["generated_tokens"])
    whole = round(counted)
    seen = f"the engines counted {whole:,} tokens, the replies hold {replied:,}"
    if cut and whole > replied:
        return CounterCheck(counted=whole, replied=replied, match=None, why=f"{seen}; {cut} turns had no reply")
    return CounterCheck(counted=whole, replied=replied, match=whole == replied, why=seen)


def _unknown(why: str) -> CounterCheck:
    return CounterCheck(counted=None, replied=None, match=None, why=why)
