"""The exclusive time account: every second of the steady window, per unit, in exactly one class.

Classes are tried in the order of MEASURING.md and the first match wins; a second that nothing names is `other`.
A wait is named only by positive evidence (a native blocking timer, a gate event, a busy train unit).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement, RunSpec
from results.classes import (
    CODES,
    HOST_PHASES,
    OF_PHASE,
    OTHER_CODE,
    ROLLOUT_REGION,
    TAIL_CLASSES,
    Class,
    hidden,
    inside,
    named,
)
from results.engine_samples import Series, series_of
from results.intervals import NO_NS, Codes, Ns, Timeline, clip, grid_of, innermost, level, merge
from results.lost_gpus import more_lost_than
from results.replicas import lifetimes_of, replicas, replicas_of
from results.rollout import (
    Placed,
    Shared,
    Unit,
    any_work,
    down_times,
    engine_work,
    metric_work,
    pool_work,
    rollout_unit,
    sync_known,
)
from results.served import KNOWN_SHARE, known_share, spoken
from results.stats import dot, weighted_quantile
from results.store import RunTables
from results.tracks import Tracks
from results.window import Window

CLIENT, ENGINE = "client", "engine"  # what `generating` can rest on
LOW_BAND = 0.25  # of the run's p95 of running turns: below it an engine generates, but little
OTHER_SHARE, OTHER_STEP_S = 0.01, 0.050  # `other` may be the larger of the two


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitAccount:
    """One unit's account. Seconds are of the unit, not multiplied by its GPUs; only classes that occurred are held."""

    unit: str
    pool: str  # train | rollout | both
    gpus: float
    timeline: Timeline
    seconds: Mapping[str, float]
    tail_seconds: Mapping[str, float]  # per class, inside the tail of synchronous batches
    hidden_seconds: Mapping[str, float]  # rollout units: while the train unit trained (syncs: blocking nobody)
    mean_running: float | None = None  # turns open while generating
    low_band_s: float | None = None  # generating with fewer turns than LOW_BAND of the run's p95
    blocked_sync_s: float | None = None  # rollout units: see Account.blocked_sync_s
    engine_known: float | None = None  # share of the time with a turn open that the engine's own readings speak for

    @property
    def other_s(self) -> float:
        """Seconds that nothing named."""
        return self.seconds.get(Class.OTHER.value, 0.0)

    @property
    def coverage(self) -> float:
        """Share of the window that has a name."""
        return 1.0 - self.other_s / sum(self.seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The units' accounts over one window, and the defects of the spans behind them."""

    granularity: str  # engine | metric | pool: what a rollout unit is; runs of different ones are not compared
    evidence: str  # what `generating` rests on: client (a turn is open at the client, an upper bound) | engine
    units: tuple[UnitAccount, ...]
    window_s: float
    steps: int
    tail_s: float  # seconds of the window inside a batch's tail
    overlaps: int  # leaf spans of one process that began inside another
    overlap_s: float
    poll_s: float  # of wait_rollout: after the last trajectory of the batch had ended
    why_pool: str | None = None  # why the rollout pool is one unit, where engines gave readings all the same
    phases: Timeline | None = None  # of the train track, the phases of `host` by their own codes (HOST_PHASES)

    @property
    def worst(self) -> UnitAccount:
        """The unit with the most `other`: the run's coverage is its."""
        return min(self.units, key=lambda unit: unit.coverage)

    @property
    def coverage(self) -> float:
        """The minimum over units of the named share."""
        return self.worst.coverage

    @property
    def allowed_other_s(self) -> float:
        """Seconds of `other` that a unit may have: 1 % of the window, or 50 ms a step."""
        return max(OTHER_SHARE * self.window_s, OTHER_STEP_S * self.steps)

    @property
    def covered(self) -> bool:
        """Whether every unit keeps to what is allowed."""
        return self.worst.other_s <= self.allowed_other_s

    @property
    def blocked_sync_s(self) -> float | None:
        """Seconds in which the trainer was in a weight sync, a rollout unit was not paused, and its turns were open.

        GPU-weighted mean over the rollout units. The one controller may be held up there: replies that wait to be
        read look like turns that generate. None: colocated, or no pause of the rollout side is on record.
        """
        known = [(unit.blocked_sync_s, unit.gpus) for unit in self.units if unit.blocked_sync_s is not None]
        return sum(s * gpus for s, gpus in known) / sum(gpus for _, gpus in known) if known else None

    def pool_seconds(self, pool: str) -> dict[str, float]:
        """GPU-weighted mean seconds per class over the units of a pool; sums to the window."""
        mine = [unit for unit in self.units if unit.pool == pool]
        gpus = sum(unit.gpus for unit in mine)
        return {
            name: sum(unit.seconds.get(name, 0.0) * unit.gpus for unit in mine) / gpus
            for name in (member.value for member in Class)
            if any(name in unit.seconds for unit in mine)
        }


def make_account(
    run: RunTables,
    tracks: Tracks,
    window: Window,
    *,
    tails: tuple[Ns, Ns] = (NO_NS, NO_NS),
    by_engine: bool = True,
) -> Account:
    """The account of a run over its window.

    `tails`: the stretches from the median to the last consumed trajectory's end, of batches. In async no step waits for
    a whole batch: there they flag nothing.
    A trajectory belongs to the engine of its last turn; before its first turn, to the pool. Where turns don't say
    their engine, the engines' own running counts make the units (granularity `metric`) and trajectories belong to the
    pool; where a replica's are not there either (or `by_engine` is False) the rollout pool is one unit. Addresses that
    one replica had one after another are one unit.
    """
    low, high = window.start_ns, window.end_ns
    colocated = run.spec.placement is Placement.COLOCATED
    if run.spec.placement is Placement.ASYNC:
        tails = NO_NS, NO_NS
    train = _train_timeline(run, tracks, low, high, colocated)
    readings = series_of(run) if by_engine else {}
    grain = _Grain.of(run, tracks, readings, (low, high), by_engine)
    units: list[UnitAccount] = []
    if not colocated:
        units.append(_train_unit(run.spec, train.timeline))
    rollout_pool = Pool.BOTH.value if colocated else Pool.ROLLOUT.value
    shared = Shared.of(run, tracks, train.timeline, low, high)
    silent = tuple(() for _ in range(replicas_of(run.spec) - len(grain.replicas)))
    owners: tuple[tuple[str, ...] | None, ...] = grain.replicas + silent if grain.replicas else (None,)
    placed = Placed.of(tracks) if grain.name == "engine" else None
    engines = tuple(name for names in grain.replicas for name in names)
    gpus = run.spec.gpus.rollout / len(owners)
    running: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = []
    parts: list[Unit] = []
    shares: list[float | None] = []
    paused = sync_known(shared)
    whole = pool_work(tracks)
    for names in owners:
        series = [readings[name] for name in names or () if name in readings]
        work = asked = whole
        if names is None:
            pass
        elif placed is not None:
            work = asked = engine_work(tracks, placed, names, readings)
        else:
            work = metric_work(tracks, series)
        shares.append(known_share(series, asked.turns, low, high) if series or names == () else 0.0)
        part = rollout_unit(shared, work, names, engines, colocated)
        generating = part.timeline.codes == CODES[Class.GENERATING]
        running.append((part.running[generating], np.diff(part.timeline.edges)[generating].astype(np.float64)))
        parts.append(part)
    most = 1 + max((int(count.max()) for count, _ in running if count.size), default=0)
    spent = sum(np.bincount(count, weights=weight, minlength=most) for count, weight in running)  # ns, by turns open
    p95 = weighted_quantile(np.arange(most), np.asarray(spent), 0.95)
    titles = _titles(owners, rollout_pool)
    for title, part, (count, weight), share in zip(titles, parts, running, shares, strict=True):
        timeline = part.timeline
        units.append(
            UnitAccount(
                unit=title,
                pool=rollout_pool,
                gpus=gpus,
                timeline=timeline.merged(),
                seconds=named(timeline),
                tail_seconds=inside(timeline, tails, TAIL_CLASSES),
                hidden_seconds={} if colocated else hidden(timeline, train.timeline, part.wanted),
                mean_running=dot(count, weight) / float(weight.sum()) if weight.size else None,
                low_band_s=None if p95 is None else float(weight[count < LOW_BAND * p95].sum()) / 1e9,
                blocked_sync_s=part.blocked_s if paused and not colocated else None,
                engine_known=share if readings else None,
            )
        )
    tail_s, tail_e = merge(*clip(*tails, low, high))
    return Account(
        granularity=grain.name,
        evidence=_evidence(grain.name, [share for names, share in zip(owners, shares, strict=True) if names]),
        units=tuple(units),
        window_s=window.seconds,
        steps=window.steps,
        tail_s=float((tail_e - tail_s).sum()) / 1e9,
        overlaps=train.overlaps,
        overlap_s=train.overlap_s,
        poll_s=0.0 if colocated else _poll_s(run, tracks, low, high),
        why_pool=grain.why_pool,
        phases=train.phases,
    )


def pool_timelines(
    run: RunTables, tracks: Tracks, window: Window, account: Account | None = None
) -> dict[str, Timeline]:
    """The classes of each pool as one unit, whatever the account's own granularity is; `account`: of that window."""
    low, high = window.start_ns, window.end_ns
    colocated = run.spec.placement is Placement.COLOCATED
    known = () if account is None else account.units
    train = next((unit.timeline for unit in known if unit.pool == Pool.TRAIN.value), None)
    if train is None:
        train = _train_timeline(run, tracks, low, high, colocated).timeline
    whole = rollout_unit(Shared.of(run, tracks, train, low, high), any_work(tracks), None, (), colocated)
    rollout = whole.timeline.merged()
    return {Pool.BOTH.value: rollout} if colocated else {Pool.TRAIN.value: train, Pool.ROLLOUT.value: rollout}


def _evidence(granularity: str, shares: list[float | None]) -> str:
    """The engines' word where it is known of each that had turns, else the clients'."""
    known = [share for share in shares if share is not None]
    told = granularity == "metric" or (known and min(known) >= KNOWN_SHARE)
    return ENGINE if told else CLIENT


@dataclass(frozen=True, slots=True)
class _Grain:
    """What a rollout unit is. `replicas`: the names of each one's server; empty where the pool is one unit."""

    name: str
    replicas: tuple[tuple[str, ...], ...] = ()
    why_pool: str | None = None

    @classmethod
    def of(
        cls, run: RunTables, tracks: Tracks, readings: Mapping[str, Series], window: tuple[int, int], by_engine: bool
    ) -> "_Grain":
        """Replicas where turns name their engine, or where each replica's own readings speak of the window."""
        asked = replicas_of(run.spec)
        if by_engine and tracks.engines_known(*window):
            return cls("engine", replicas(lifetimes_of(tracks, readings, tracks.engines), asked))
        if not readings:
            return cls("pool")
        found = replicas(lifetimes_of(tracks, readings, tuple(readings)), asked)
        mute = [names for names in found if not clip(*spoken([readings[name] for name in names]), *window)[0].size]
        if not mute and len(found) >= asked:
            return cls("metric", found)
        who = [", then ".join(names) for names in mute]
        if len(found) < asked:
            who.append(f"{asked - len(found)} of {asked} engines")
        return cls("pool", why_pool=f"turns name no engine, and of {' and '.join(who)} no reading tells of the window")


@dataclass(frozen=True, slots=True)
class _Train:
    timeline: Timeline
    phases: Timeline  # the same, the phases of `host` told apart
    overlaps: int
    overlap_s: float


def _train_timeline(run: RunTables, tracks: Tracks, low: int, high: int, colocated: bool) -> _Train:
    """The train track: per process the innermost leaf, over processes the first class, `down` above all."""
    pools = [Pool.TRAIN.value, Pool.BOTH.value] if colocated else [Pool.TRAIN.value]
    of_phase = {**OF_PHASE, **HOST_PHASES} | ({Phase.GENERATION.value: ROLLOUT_REGION} if colocated else {})
    mine = tracks.leaves[tracks.leaves["pool"].isin(pools) & tracks.leaves["phase"].isin(list(of_phase))]
    # One sync of several engines is one stretch of time, recorded once per engine.
    mine = mine.drop_duplicates(["host", "pid", "phase", "start_ns", "end_ns"])
    parts = [
        innermost(
            spans["start_ns"].to_numpy(np.int64),
            spans["end_ns"].to_numpy(np.int64),
            spans["phase"].map(of_phase).to_numpy().astype(np.int8),
            low,
            high,
            OTHER_CODE,
        )
        for _, spans in mine.groupby(["host", "pid"], sort=True)
    ]
    down = down_times(run, ("controller", "train"), low, high)
    lost = more_lost_than(run, pools, 0, low, high)
    grid = grid_of(low, high, *down, *lost, *(part.timeline.edges for part in parts))
    codes = np.full(grid.size - 1, OTHER_CODE, dtype=np.int8)
    for part in parts:
        theirs = part.timeline.at(grid)
        codes = np.where(_rank(theirs) < _rank(codes), theirs, codes).astype(np.int8)
    codes[level(*down, grid) > 0] = CODES[Class.DOWN]
    # It needs all of its GPUs; while the pool generates, the replicas say for themselves whether they do.
    codes[(level(*lost, grid) > 0) & (codes != ROLLOUT_REGION)] = CODES[Class.DOWN]
    classes = np.where(codes > ROLLOUT_REGION, CODES[Class.HOST], codes).astype(np.int8)
    phases = Timeline(grid, codes).merged()
    return _Train(
        Timeline(grid, classes).merged(), phases, sum(p.overlaps for p in parts), sum(p.overlap_s for p in parts)
    )


def _poll_s(run: RunTables, tracks: Tracks, low: int, high: int) -> float:
    """Seconds that the trainer still waited when all that its step trains on was there."""
    lives = run.frame("trajectories")[["step_consumed", "end_ns"]]
    ready = lives[lives["end_ns"].notna()].groupby("step_consumed")["end_ns"].max()
    leaves = tracks.leaves
    waits = leaves[(leaves["phase"] == Phase.WAIT_ROLLOUT.value) & (leaves["pool"] == Pool.TRAIN.value)]
    waits = waits[waits["step"].isin(ready.index)]
    if waits.empty:
        return 0.0
    since = ready.reindex(waits["step"].astype("int64")).to_numpy(np.int64)
    starts = np.maximum(waits["start_ns"].to_numpy(np.int64), since)
    starts, ends = merge(*clip(starts, waits["end_ns"].to_numpy(np.int64), low, high))
    return float((ends - starts).sum()) / 1e9


def _rank(codes: Codes) -> npt.NDArray[np.float64]:
    """The order of classes, the rollout region just before `other`: it gives way to whatever is named.

    The phases of `host` come where it does, in their own order.
    """
    inside = CODES[Class.HOST] + (codes - ROLLOUT_REGION) / (2 + len(HOST_PHASES))
    return np.select([codes == ROLLOUT_REGION, codes > ROLLOUT_REGION], [OTHER_CODE - 0.5, inside], codes)


def _train_unit(spec: RunSpec, timeline: Timeline) -> UnitAccount:
    return UnitAccount(
        unit="train",
        pool=Pool.TRAIN.value,
        gpus=spec.gpus.train,
        timeline=timeline,
        seconds=named(timeline),
        tail_seconds={},
        hidden_seconds={},
    )


def _titles(owners: Sequence[tuple[str, ...] | None], pool: str) -> list[str]:
    """A name for each rollout unit; a replica that the spec asked for and no turn came from is one too."""
    silent = 0
    titles = []
    for names in owners:
        silent += names == ()
        titles.append(pool if names is None else ", then ".join(names) or f"no turn seen {silent}")
    return titles
