"""The engines' own token counters against the replies that were recorded: two countings of the same work.

MEASURING.md, "Plan adherence": the sum of generated tokens equals the delta of the engine's counter.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.protocol.scalars import number, text, whole
from harness.protocol.spec import Policy
from results.engine_samples import series_of
from results.intervals import Ns
from results.store import RunTables
from results.sync_proof import PROBE
from results.tracks import FOREVER, UNKNOWN, floats, ints

COUNTER = "engine.generation_tokens"
"""Metric of a cumulative count of generated tokens, label `engine`: for engines whose metrics page is not scraped."""

MOST_COST_S = 86_400.0  # of a probe: one that is said to have taken longer says nothing
ALL = "all engines"  # a recorded counter without the label `engine`
LAG_NS = 100_000_000
"""How long after a reply has left an engine's counter may still not have it: vLLM hands out the replies of a pass in
pieces, and counts them after the last one. Replies that came back within it count as under way."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterCheck:
    """Tokens by the engines' counters and by the recorded requests; `why` says what was seen or what is missing."""

    counted: int | None
    """Sum over the engines of last - first reading."""
    replied: int | None
    """Ids of the replies that came back between those readings, and tokens of the weight-sync probes."""
    match: bool | None
    exact: bool = False
    """The two were equal up to a reading at which no request was under way. Else `counted` lies between `replied` and
    that with the whole replies of the requests under way."""
    readings: int = 0
    """Readings after an engine's first one at which the two were compared like that; one that disagrees is no match."""
    outside: int = 0
    """Turns before the first or after the last reading: nothing counted them."""
    until_quiet: bool = False
    """Whether `match` rests on the readings up to the last one at which no request was under way."""
    unanswered: int = 0
    """Turns without a reply between the readings, of which an engine may have counted any number of tokens."""
    more: int = 0
    """Tokens that the engines counted beyond all replies, whole: those of `unanswered` turns, if `match`."""
    why: str

    @property
    def agreement(self) -> str:
        """How far the two agree, in words; for a match."""
        if not self.until_quiet:
            return "equal" if self.exact else "they agree"
        said = f"{'equal' if self.exact else 'they agree'} up to the last reading with no request under way"
        if not self.more:
            return said
        turns = f"{self.unanswered:,} turn{'s' * (self.unanswered != 1)} without a reply"
        return f"{said}; {self.more:,} more were counted in all, and {turns} may be what they are of"


@dataclass(frozen=True, slots=True)
class _Readings:
    """One engine's counter. A value has all replies that came back before `begin`, and none asked for after `end`."""

    begin: Ns
    end: Ns
    value: Floats


@dataclass(frozen=True, slots=True)
class _Requests:
    """What was asked of the engines. Tokens NaN: no reply came, and the engine may have generated any number."""

    start: Ns
    end: Ns
    tokens: Floats
    engine: npt.NDArray[np.int64]  # place among the engines that were read; UNKNOWN: it names none
    probe: npt.NDArray[np.bool_]

    def of(self, engine: int) -> "_Requests":
        """Those of an engine, and those that name none."""
        mine = (self.engine == engine) | (self.engine == UNKNOWN)
        return _Requests(self.start[mine], self.end[mine], self.tokens[mine], self.engine[mine], self.probe[mine])


def check_counters(run: RunTables) -> CounterCheck:
    """Compares the counters with the replies, up to the last reading and up to the last one at which no request was
    under way. None where it cannot be told: no counter was read, it fell, it was not read for an engine that answered,
    or turns without a reply may be what it has more and no reading was without any."""
    readings = _scraped(run) or _recorded(run)
    if not readings:
        told = pc.unique(run.tables["engine_samples"].column("reason").drop_null()).to_pylist()
        return _unknown("; ".join(["no engine's counter of generated tokens was read", *sorted(told)[:2]]))
    if run.spec.policy is not Policy.MODEL:
        return _unknown(f"policy = {run.spec.policy}: the engines scored replies that they did not generate")
    names = sorted(readings)
    silent = set(pc.unique(run.part("turns", ("engine",)).column("engine").drop_null()).to_pylist()) - set(readings)
    if silent and names != [ALL]:
        return _unknown(f"the counter was not read for engine(s) {', '.join(sorted(silent))}")
    for engine, series in sorted(readings.items()):
        if series.value.size < 2:
            return _unknown(f"the counter of engine {engine} was read once")
        if (np.diff(series.value) < 0).any():
            return _unknown(f"the counter of engine {engine} fell: the engine was restarted")
    requests = _requests(run, names)
    parts = [(readings[name], requests.of(place)) for place, name in enumerate(names)]
    whole = _compare(readings, requests, {name: series.value.size - 1 for name, series in readings.items()})
    quiet = dict(zip(names, (_quiet(*part) for part in parts), strict=True))
    doubtful = whole.open_ or whole.match is None
    found = _verdict(whole, _compare(readings, requests, quiet) if doubtful and all(quiet.values()) else None)
    if len(names) > 1 and (requests.engine == UNKNOWN).any():
        return found  # which engine's counter such a turn is in is not known
    agree = np.concatenate([_along(*part) for part in parts])
    odd, n = int((~agree).sum()), agree.size
    seen = f"at {odd} of {n} readings the counter lay outside" if odd else f"at each of {n} readings it lay within"
    why = f"{found.why}; {seen} what had come back and what was under way"
    return replace(found, match=False if odd else found.match, exact=found.exact and not odd, readings=n, why=why)


def _along(series: _Readings, requests: _Requests) -> npt.NDArray[np.bool_]:
    """For each reading after the first, whether the counter lay between the tokens that had come back and those with
    the whole replies of what was under way (any number, once a request went without a reply)."""
    cut = np.isnan(requests.tokens)
    done = ~cut & (requests.start >= series.end[0])
    begun = ~cut & (requests.end > series.begin[0])
    least = _summed(requests.end[done], requests.tokens[done], series.begin[1:], "right")
    most = _summed(requests.start[begun], requests.tokens[begun], series.end[1:], "left")
    lost = requests.start[cut & (requests.end > series.begin[0])]
    most[series.end[1:] > (lost.min() if lost.size else FOREVER)] = np.inf
    counted = series.value[1:] - series.value[0]
    return np.asarray((least <= counted) & (counted <= most))


def _summed(times: Ns, tokens: Floats, at: Ns, side: Literal["left", "right"]) -> Floats:
    """Tokens at `times` before (or, `right`, up to) each of `at`."""
    order = np.argsort(times, kind="stable")
    sums = np.concatenate((np.zeros(1), np.cumsum(tokens[order])))
    return np.asarray(sums[np.searchsorted(times[order], at, side=side)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Counters and requests between the first readings and given last ones."""

    counted: int
    least: int  # tokens of the requests that lie between them
    most: int  # and of those that were under way at one of them
    probes: int  # of `least`: the weight-sync probes'
    cut: int  # requests without a reply
    open_: int  # requests under way at a first or last reading
    outside: int  # turns that are not between them, nor under way

    @property
    def match(self) -> bool | None:
        """None: what the counter has more may be of requests without a reply."""
        if self.cut and self.counted > self.most:
            return None
        return self.least <= self.counted <= self.most

    @property
    def seen(self) -> str:
        """In words."""
        words = f"the engines counted {self.counted:,} tokens, the replies hold {self.least - self.probes:,}"
        if self.probes:
            words += f" and the weight-sync probes {self.probes:,}"
        if self.open_:
            under_way = f"{self.open_:,} ({self.most - self.least:,} tokens)"
            words += f"; requests under way at the last reading: {under_way}"
        if self.outside:
            words += f"; turns outside the readings: {self.outside:,}"
        if self.cut and self.match is not True:
            words += f"; turns without a reply: {self.cut:,}"
        return words


def _compare(readings: Mapping[str, _Readings], requests: _Requests, last: Mapping[str, int]) -> _Compared:
    names = sorted(readings)
    counted = sum(float(readings[name].value[last[name]] - readings[name].value[0]) for name in names)
    first_end, first_begin = _edges(readings, dict.fromkeys(names, 0))
    last_end, last_begin = _edges(readings, last)
    place = requests.engine

    def at(values: list[int], pick: int) -> Ns:
        """Each request's engine's edge; of one that names no engine, the edge that claims least (or most)."""
        each = np.array(values, dtype=np.int64)
        return np.where(place >= 0, each[np.maximum(place, 0)], pick)

    inside = requests.start >= at(first_end, max(first_end))
    inside &= requests.end <= at(last_begin, min(last_begin))
    touching = (requests.end > at(first_begin, min(first_begin))) & (requests.start < at(last_end, max(last_end)))
    cut = np.isnan(requests.tokens)
    least = float(requests.tokens[inside & ~cut].sum())
    return _Compared(
        counted=round(counted),
        least=round(least),
        most=round(least + float(requests.tokens[touching & ~inside & ~cut].sum())),
        probes=round(float(requests.tokens[inside & requests.probe].sum())),
        cut=int((cut & touching).sum()),
        open_=int((touching & ~inside & ~cut).sum()),
        outside=int((~touching & ~inside & ~requests.probe).sum()),
    )


def _verdict(whole: _Compared, quiet: _Compared | None) -> CounterCheck:
    """`quiet`: up to the last reading at which nothing was under way, where the two must be equal."""
    why, match, exact = whole.seen, whole.match, whole.match is True and not whole.open_
    until_quiet = quiet is not None and not quiet.open_ and quiet.match is not None
    if quiet is not None and until_quiet:
        why += f". Up to the last reading with no request under way: {quiet.seen}"
        match, exact = match is not False and bool(quiet.match), bool(quiet.match)
    return CounterCheck(
        counted=whole.counted,
        replied=whole.least,
        match=match,
        exact=exact,
        outside=whole.outside,
        until_quiet=until_quiet,
        unanswered=whole.cut,
        more=max(whole.counted - whole.most, 0) if whole.cut else 0,
        why=why,
    )


def _edges(readings: Mapping[str, _Readings], places: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Ends and begins of the readings at these places, in the order of the engines' names."""
    pairs = [(readings[name], place) for name, place in sorted(places.items())]
    return [int(s.end[p]) for s, p in pairs], [int(s.begin[p]) for s, p in pairs]


def _quiet(series: _Readings, requests: _Requests) -> int:
    """The last reading at which no request was under way, one had ended since the first, and none had gone without a
    reply; 0: there is none."""
    begun = np.searchsorted(np.sort(requests.start), series.end, side="left")
    done = np.searchsorted(np.sort(requests.end), series.begin, side="right")
    cut = requests.start[np.isnan(requests.tokens) & (requests.end > series.begin[0])]
    whole = series.end <= (cut.min() if cut.size else FOREVER)
    quiet = np.flatnonzero((begun == done) & (done > done[0]) & whole)
    return int(quiet[-1]) if quiet.size else 0


def _scraped(run: RunTables) -> dict[str, _Readings]:
    found = {}
    for name, series in series_of(run).items():
        at, value = series.known("generation_tokens")
        margin = series.uncertainty_ns[~np.isnan(series.values["generation_tokens"])]
        if at.size:
            found[name] = _Readings(at - margin - LAG_NS, at + margin, value)
    return found


def _recorded(run: RunTables) -> dict[str, _Readings]:
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes["name"], COUNTER)).select(["mono_ns", "value", "labels_json"]).to_pylist()
    by_engine: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["value"] is not None:
            engine = str(json.loads(row["labels_json"]).get("engine", ALL))
            by_engine.setdefault(engine, []).append((row["mono_ns"], row["value"]))
    found = {}
    for engine, points in by_engine.items():
        at = np.array([t for t, _ in sorted(points)], dtype=np.int64)
        found[engine] = _Readings(at, at, np.array([v for _, v in sorted(points)]))
    return found


def _requests(run: RunTables, names: list[str]) -> _Requests:
    """Turns, and the probes of the weight-sync proof that these engines answered: one token for each of their rows."""
    turns = run.part("turns", ("engine", "start_ns", "end_ns", "generated_tokens"))
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes["name"], PROBE)).select(["mono_ns", "values", "labels_json"]).to_pylist()
    asked: list[tuple[int, int, float, str | None]] = []
    for row in rows:
        labels = json.loads(row["labels_json"])
        engine, length = text(labels.get("engine")), whole(labels.get("row_tokens"), 1)
        cost_s = number(labels.get("cost_s"), 0.0, MOST_COST_S)
        if (engine in names or names == [ALL]) and length and cost_s is not None and row["values"] is not None:
            tokens = len(row["values"]) / length
            asked.append((row["mono_ns"] - round(cost_s * 1e9), row["mono_ns"], tokens, engine))
    count = turns.num_rows
    engines = pa.array([p[3] for p in asked], pa.string())
    column = pa.chunked_array([*turns["engine"].chunks, engines], pa.string())
    places = ints(pc.index_in(column, value_set=pa.array(names, pa.string())), UNKNOWN).astype(np.int64)
    return _Requests(
        np.concatenate((ints(turns["start_ns"]), np.array([p[0] for p in asked], dtype=np.int64))),
        np.concatenate((ints(turns["end_ns"]), np.array([p[1] for p in asked], dtype=np.int64))),
        np.concatenate((floats(turns["generated_tokens"]), np.array([p[2] for p in asked], dtype=np.float64))),
        np.zeros_like(places) if names == [ALL] else places,
        np.concatenate((np.zeros(count, dtype=np.bool_), np.ones(len(asked), dtype=np.bool_))),
    )


def _unknown(why: str) -> CounterCheck:
    return CounterCheck(counted=None, replied=None, match=None, why=why)
