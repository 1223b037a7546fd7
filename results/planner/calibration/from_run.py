"""A calibration fitted to one measured run: laws as they were seen, and generation's speed against concurrency."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Placement
from results.comparing.measures import PARTS, RunMeasures
from results.comparing.measuring import measure_run
from results.intervals import Ns
from results.metrics import RunFigures, compute
from results.planner.calibration.constants import MEASURED, Calibration, Constant, Fit
from results.planner.calibration.laws import laws_of
from results.planner.calibration.mechanisms import mechanisms_of
from results.planner.calibration.shared_cores import contention, cores_in_use
from results.stats import effective_n, t_quantile
from results.store import RunTables
from results.tracks import floats, ints
from results.window import Window

FEWEST_TURNS = 20
REWEIGHTED = 20  # times at most; it settles in about five
RESAMPLES = 200
Floats = npt.NDArray[np.float64]


def calibrate_run(run: RunTables, found: RunFigures | None = None) -> Calibration:
    """Fits one run.

    Raises:
        SpecError: the run has no steady window, too few turns, or a trajectory's work is not on record.
    """
    found = compute(run) if found is None else found
    window = found.window
    if window is None:
        raise SpecError(f"{run.run_id}: no steady window ({found.no_window}); calibrate from a longer run")
    measured = measure_run(run, found)
    spec = run.spec
    turns = _Turns.of(run, window)
    constants, fit = _generation(run, turns)
    constants |= _step(measured, run, window)
    constants["agent_s"] = _agent(run, turns, window)
    laws = laws_of(run, window, turns.every)
    watts, limit = _watts(found)
    apart = spec.device is Device.CPU and spec.placement is not Placement.ASYNC  # the sides take turns
    cores = cores_in_use(run, window) if apart else {}
    return Calibration(
        source=MEASURED,
        name=run.run_id,
        device=spec.device.value,
        placement=spec.placement.value,
        framework=spec.framework,
        model=spec.model,
        batch_size=spec.batch_size,
        group_size=spec.group_size,
        train_gpus=spec.gpus.train,
        rollout_gpus=spec.gpus.rollout,
        gpus_per_engine=max(1, spec.rollout_tp),
        turns=laws.turns,
        turn_tokens=laws.turn_tokens,
        tool_s=laws.tool_s,
        laws=laws.of,
        constants=constants,
        step_s=measured.value("step_time_s"),
        power_ratio=measured.value("power_utilisation_ratio"),
        watts_limit=limit,
        watts=watts,
        fit=fit,
        unseen=tuple(_unseen(run, fit)),
        work_digest=spec.work_digest,
        work=measured.work,
        gpu_bytes=_gpu_bytes(run),
        offload=spec.offload.value,
        cores=cores,
        contention=contention(cores, _cores(run)),
        mechanisms=mechanisms_of(spec),
    )


class _Turns:
    """Turns that ended inside the window with a count of tokens: seconds, tokens, mean sequences on the engine.

    Without those that a weight sync interrupted; `every` has their tokens too.
    """

    def __init__(
        self, start: Floats, end: Floats, tokens: Floats, running: Floats, owner: Sequence[str], every: Floats
    ) -> None:
        self.start, self.end, self.tokens, self.running, self.owner = start, end, tokens, running, owner
        self.seconds, self.every = end - start, every

    @classmethod
    def of(cls, run: RunTables, window: Window) -> "_Turns":
        table = run.tables["turns"]
        if table.num_rows < FEWEST_TURNS:
            raise SpecError(f"{run.run_id}: {table.num_rows} turns on record; a fit needs {FEWEST_TURNS}")
        start, end = ints(table.column("start_ns")) / 1e9, ints(table.column("end_ns")) / 1e9
        tokens = floats(table.column("generated_tokens"))
        engines = table.column("engine").to_pylist()
        count = max(1, run.spec.gpus.rollout // max(1, run.spec.rollout_tp)) if run.spec.device is Device.CUDA else 1
        named = all(engine is not None for engine in engines) and len(set(engines)) > 1
        running = np.empty(start.size)
        for engine in set(engines) if named else {None}:
            mine = np.array([not named or one == engine for one in engines], dtype=np.bool_)
            running[mine] = mean_running(start[mine], end[mine]) / (1 if named else count)
        keep = window.holds(ints(table.column("end_ns"))) & ~np.isnan(tokens) & (tokens > 0) & (end > start)
        every = tokens[keep]
        keep &= ~_interrupted(run, ints(table.column("start_ns")), ints(table.column("end_ns")))
        owner = [str(one) for one, kept in zip(table.column("trajectory_id").to_pylist(), keep, strict=True) if kept]
        if keep.sum() < FEWEST_TURNS:
            raise SpecError(
                f"{run.run_id}: {int(keep.sum())} turns in the window that no sync interrupted; "
                f"a fit needs {FEWEST_TURNS}"
            )
        return cls(start[keep], end[keep], tokens[keep], np.maximum(running[keep], 1.0), owner, every)


def _interrupted(run: RunTables, start: Ns, end: Ns) -> npt.NDArray[np.bool_]:
    """Turns that were open when a weight sync began: part of their seconds is the sync, which a plan simulates."""
    syncs = run.tables["weight_syncs"]
    begins = np.sort(ints(syncs.column("start_ns")))
    made: npt.NDArray[np.bool_] = np.searchsorted(begins, end, side="left") > np.searchsorted(
        begins, start, side="right"
    )
    return made


def mean_running(start: Floats, end: Floats) -> Floats:
    """Of each interval: how many of them were open, itself included, as a mean over its length."""
    times = np.concatenate((start, end))
    change = np.concatenate((np.ones(start.size), -np.ones(end.size)))
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    area = np.concatenate(([0.0], np.cumsum(np.diff(times) * level[:-1])))
    long = np.maximum(end - start, 1e-12)
    made: Floats = (np.interp(end, times, area) - np.interp(start, times, area)) / long
    return made


def _generation(run: RunTables, turns: _Turns) -> tuple[dict[str, Constant], Fit]:
    """Seconds a token = base + slope x (sequences beside it), fitted to the turns' seconds; slope >= 0.

    Intervals by resampling whole trajectories (their turns share an engine and a time of day).
    """
    beside = turns.running - 1
    base, slope = _line(turns.tokens, beside, turns.seconds)
    expected = turns.tokens * (base + slope * beside)
    random = np.random.default_rng(0)
    owners: dict[str, list[int]] = {owner: [] for owner in turns.owner}
    for place, owner in enumerate(turns.owner):
        owners[owner].append(place)
    groups = [np.array(places) for places in owners.values()]
    drawn = []
    for _ in range(RESAMPLES):
        at = np.concatenate([groups[k] for k in random.integers(0, len(groups), len(groups))])
        drawn.append(_line(turns.tokens[at], beside[at], turns.seconds[at]))
    ends: Floats = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    low, high = ends
    spread = float(((turns.seconds - turns.seconds.mean()) ** 2).sum())
    left = np.abs(turns.seconds - expected) / turns.seconds
    fit = Fit(
        turns=int(turns.seconds.size),
        least=float(np.quantile(turns.running, 0.05)),
        most=float(np.quantile(turns.running, 0.95)),
        r2=1 - float(((turns.seconds - expected) ** 2).sum()) / spread if spread > 0 else None,
        residual_p50=float(np.quantile(left, 0.5)),
        residual_p95=float(np.quantile(left, 0.95)),
    )
    count = fit.turns
    constants = {
        "token_s": _constant(base, float(low[0]), float(high[0]), "s/token", count),
        "token_s_per_sequence": _constant(slope, float(low[1]), float(high[1]), "s/token/sequence", count),
    }
    return constants, fit


def _line(tokens: Floats, beside: Floats, seconds: Floats) -> tuple[float, float]:
    """Base and slope, neither below 0: least squares weighted by 1 / the EXPECTED seconds, until it settles.

    With these weights (quasi-likelihood of a variance that grows with the mean; Wedderburn 1974, Biometrika 61) the
    fitted seconds add up to the measured ones. Weights of the measured seconds would make long turns count too little.
    """
    further = tokens * beside
    base, slope = float(seconds.sum() / tokens.sum()), 0.0
    for _ in range(REWEIGHTED):
        root = np.sqrt(np.maximum(tokens * base + further * slope, 1e-12))
        found = np.linalg.lstsq(np.stack((tokens / root, further / root), axis=1), seconds / root, rcond=None)[0]
        before, (base, slope) = (base, slope), (float(found[0]), float(found[1]))
        if slope < 0:
            return float(seconds.sum() / tokens.sum()), 0.0
        if base <= 0:
            return 1e-9, float(seconds.sum() / further.sum())
        if abs(base - before[0]) <= 1e-9 * base and abs(slope - before[1]) <= 1e-9 * base:
            break
    return base, slope


def _step(measured: RunMeasures, run: RunTables, window: Window) -> dict[str, Constant]:
    """Seconds of a step by what the train side did."""
    series = measured.series.seconds
    train, logprob, sync, offload = (
        np.array(series.get(f"phase_{name}_s", ()), dtype=np.float64)
        for name in ("train", "logprob", "weight_sync", "offload")
    )
    waits = ("exposed_generating_s", "exposed_tool_s", "exposed_queued_s", "exposed_agent_s")
    named = ("phase_train_s", "phase_logprob_s", "phase_weight_sync_s", "phase_offload_s", *waits)
    rest = [part.name for part in PARTS if part.name not in named and part.name in series]
    host = np.sum([np.array(series[name]) for name in rest], axis=0) if rest else np.zeros(window.steps)
    made = {
        "train_s": _mean(train, "s"),
        "logprob_s": _mean(logprob, "s"),
        "host_s": _mean(host, "s", "reward, advantage, data, handing over, and what has no name"),
        "offload_s": _mean(offload, "s"),
    }
    return made | _sync(run, window, sync)


def _sync(run: RunTables, window: Window, whole: Floats) -> dict[str, Constant]:
    """The sync's three parts, where the framework shows them; else all of it as transfer. Its longest engine counts."""
    table = run.tables["weight_syncs"]
    inside = window.holds(ints(table.column("end_ns")))
    parts = {name: floats(table.column(f"{name}_ns"))[inside] / 1e9 for name in ("pause", "transfer", "resume")}
    seen = not any(np.isnan(values).any() or not values.size for values in parts.values())
    if seen and whole.size:
        total = sum(float(values.mean()) for values in parts.values())
        # The parts' shares of the phase that the trainer spent: engines overlap, and the trainer has work of its own.
        scale = float(whole.mean()) / total if total > 0 else 1.0
        return {f"sync_{name}_s": _mean(values * scale, "s") for name, values in parts.items()}
    none = Constant(value=0.0, low=0.0, high=0.0, unit="s", source=MEASURED, note="not told apart from the transfer")
    return {"sync_pause_s": none, "sync_transfer_s": _mean(whole, "s"), "sync_resume_s": none}


def _agent(run: RunTables, turns: _Turns, window: Window) -> Constant:
    """Seconds a turn of a trajectory's life that were neither turn nor tool: tokenising, router, event loop, reward."""
    lives = run.frame("trajectories")
    done = lives[lives["end_ns"].notna() & (lives["turns"] > 0)]
    done = done[window.holds(done["end_ns"].to_numpy(np.int64))]
    if done.empty:
        return Constant(value=0.0, low=0.0, high=0.0, unit="s/turn", source=MEASURED, note="no trajectory ended")
    turned = run.frame("turns")
    took = turned["end_ns"] - turned["start_ns"]
    spent = took.groupby(turned["trajectory_id"]).sum().reindex(done["trajectory_id"])
    rest = (done["end_ns"] - done["start_ns"] - done["tool_ns"]).to_numpy(np.float64)
    rest = np.maximum(rest - spent.fillna(0).to_numpy(np.float64), 0.0) / 1e9
    return _mean(rest / done["turns"].to_numpy(np.float64), "s/turn")


def _watts(found: RunFigures) -> tuple[dict[str, float], float | None]:
    """Watts of one GPU by class, where the run's energy is known: a class's share of the limit x the limit."""
    power, account = found.energy, found.account
    if power is None or account is None or found.window is None or not power.gpus:
        return {}, None
    limits = [gpu.limit_joules for gpu in power.gpus if gpu.limit_joules is not None]
    if len(limits) < len(power.gpus):
        return {}, None
    limit = sum(limits) / len(limits) / found.window.seconds
    made = {f"{one.pool}.{one.name}": u * limit for one in power.classes if (u := one.power_utilisation) is not None}
    if power.idle_ratio is not None:
        made["idle"] = power.idle_ratio * limit
    return made, limit


def _unseen(run: RunTables, fit: Fit) -> list[str]:
    said = [
        f"generation with more than {fit.most:.0f} sequences on an engine (seen: {fit.least:.1f} to {fit.most:.1f})"
    ]
    spec = run.spec
    if spec.placement is Placement.COLOCATED:
        said += [f"training on fewer than {spec.gpus.train} GPUs", "a weight sync between separate GPUs"]
    else:
        said += [f"training on other than {spec.gpus.train} GPUs", "offload between phases on shared GPUs"]
    if spec.device is Device.CPU:
        said.append(
            "what either side would take alone: both ran at once, on the same cores"
            if spec.placement is Placement.ASYNC
            else "how far training and generation slow each other on the same cores"
        )
    return said


def _gpu_bytes(run: RunTables) -> int | None:
    least = pc.min(run.tables["samples"].column("memory_total_bytes")).as_py()
    return None if least is None else int(least)


def _cores(run: RunTables) -> int | None:
    count = (run.meta.get("machine") or {}).get("cores")
    return count if isinstance(count, int) and count > 0 else None


def _mean(values: Floats, unit: str, note: str = "") -> Constant:
    if not values.size:
        return Constant(value=0.0, low=0.0, high=0.0, unit=unit, source=MEASURED, note=note or "it never occurred")
    mean = float(values.mean())
    worth = effective_n(values) if values.size >= 4 else float(values.size)
    half = 0.0
    if worth >= 2:
        half = t_quantile(0.975, worth - 1) * float(values.std(ddof=1)) / math.sqrt(worth)
    return _constant(mean, mean - half, mean + half, unit, int(values.size), note)


def _constant(value: float, low: float, high: float, unit: str, n: int, note: str = "") -> Constant:
    low, high = max(0.0, min(low, value)), max(high, value)
    return Constant(value=value, low=low, high=high, unit=unit, source=MEASURED, n=n, note=note)
