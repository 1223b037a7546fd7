"""The simulator: a scenario in, what it gives out. Discrete events in virtual time; the loop itself is `kernel`."""

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from harness.protocol.errors import SpecError
from results.planner import compiled, oracles
from results.planner import kernel as k
from results.planner.accounts import energy, rollout_account, train_account
from results.planner.model import TRAIN_CLASSES, Composed, Scenario, expected_trajectories
from results.planner.result import (
    AFTER_UPDATE,
    AT_FINISH,
    AT_START,
    AT_TAKE_MOVED,
    Histogram,
    Ledger,
    Records,
    Result,
    grows,
)
from results.planner.state import ARGUMENTS, State, plain

BACKENDS = ("auto", "compiled", "interpreted")
# Below this many turns interpreting is quicker than loading the compiler.
WORTH_COMPILING = 150_000
_arguments = itemgetter(*ARGUMENTS)


def simulate(scenario: Scenario, *, backend: str = "auto", records: int = 0) -> Result:
    """Plays a scenario to its horizon. The same scenario gives the same bits, on every machine and backend.

    Args:
        scenario: what to play.
        backend: `compiled` (needs numba: the extra `sim`), `interpreted`, or `auto`: compiled where it is installed
            and the work is large enough to be worth loading it.
        records: keep start, end, worker and update of so many first trajectories.

    Raises:
        SpecError: an unknown backend; `compiled` without numba; so much that takes no time that the clock stands.
    """
    if backend not in BACKENDS:
        raise SpecError(f"backend = {backend}: allowed is one of {', '.join(BACKENDS)}")
    if backend == "auto":
        large = expected_turns(scenario) >= WORTH_COMPILING
        backend = "compiled" if large and compiled.available() else "interpreted"
    if backend == "compiled":
        advance = compiled.advance(plain(scenario))
        state = State(scenario, use_lists=False, records=records, fast=compiled.log_normals)
    else:
        advance, state = k.advance, State(scenario, use_lists=True, records=records)
    play(state, advance)
    return _result(scenario, state)


def expected_turns(scenario: Scenario) -> float:
    """About how many turns a scenario plays: what it costs. Without load and waits: an upper guess."""
    law = scenario.durations
    turns = sum(law.turns) / len(law.turns) if isinstance(law, Composed) else 1.0
    return expected_trajectories(scenario) * turns


def play(state: State, advance: Callable[..., int]) -> None:
    """Runs the event loop to its end."""
    scenario, names = state.scenario, state.arrays.by_name
    horizon = math.inf if scenario.horizon_s is None else scenario.horizon_s
    state.more_draws()  # there are none yet: it would ask for them at once
    while True:
        code = advance(names["par"], horizon, names["st"], names["clk"], names["rate"], state.first, *_arguments(names))
        if code == k.DONE:
            return
        if code == k.NEED_DRAWS:
            state.more_draws()
        elif code == k.NEED_GROUPS:
            state.more_groups(2 * len(names["queue"]))
        elif code == k.NEED_UPDATES:
            state.more_updates()
        else:
            raise RuntimeError(f"nothing more can happen at {names['clk'][k.NOW]} s: a defect of the simulator")


def _result(scenario: Scenario, state: State) -> Result:
    arrays = state.arrays
    st, clk = arrays.numpy("st", np.int64), arrays.numpy("clk", np.float64)
    ended, taken = int(st[k.ENDED]), int(st[k.TAKEN])
    warm = scenario.warmup_updates if ended >= scenario.warmup_updates else None
    if warm is None:  # the warm-up never ended: an empty window
        before_st, before_clk = st, clk
    elif warm == 0:
        before_st, before_clk = np.zeros_like(st), np.zeros_like(clk)
    else:
        before_st, before_clk = arrays.numpy("warm_st", np.int64), arrays.numpy("warm_clk", np.float64)
    window_s = float(clk[k.NOW] - before_clk[k.NOW])
    workers = scenario.pools.workers
    train_s = dict.fromkeys(TRAIN_CLASSES, 0.0)
    if warm is not None:
        train_s = train_account(state, clk, before_clk, warm)
    rollout_s = rollout_account(clk, before_clk)
    queue = arrays.numpy("left", np.int64)[:taken] * scenario.policy.group_size
    bounded = scenario.policy.max_staleness is not None
    free = state.rule == k.FREE and not bounded
    return Result(
        scenario=scenario,
        seconds=float(clk[k.NOW]),
        window_s=window_s,
        updates=ended - (warm if warm is not None else ended),
        taken_s=arrays.numpy("taken_s", np.float64)[:taken],
        ended_s=arrays.numpy("ended_s", np.float64)[:ended],
        queue=queue,
        worker_busy=float(clk[k.BUSY] - before_clk[k.BUSY]) / (workers * window_s) if window_s > 0 else None,
        mean_running=float(clk[k.RUNNING] - before_clk[k.RUNNING]) / window_s if window_s > 0 else None,
        staleness=_staleness(state, st, before_st, warm),
        violations=int(st[k.VIOLATIONS] - before_st[k.VIOLATIONS]) if bounded else None,
        ledger=_ledger(state, st),
        train_s=train_s,
        rollout_s=rollout_s,
        energy_j=energy(scenario, train_s, rollout_s),
        unstable=free and _unstable(scenario, queue),
        records=_records(state) if state.records else None,
    )


def _unstable(scenario: Scenario, queue: Any) -> bool:
    """By closed form where there is one: an hour of a slow trainer has too few updates to see it in the queue."""
    load = oracles.trainer_load(scenario)
    return grows(queue, scenario.trajectories_per_step) if load is None else load > 1 + 1e-9


def _staleness(state: State, st: Any, before: Any, warm: int | None) -> dict[str, Histogram]:
    found = {}
    for name, kept, total in (
        (AT_FINISH, "finish", k.SUM_FINISH),
        (AT_START, "start", k.SUM_START),
        (AT_TAKE_MOVED, "moved", k.SUM_MOVED),
    ):
        counts = state.arrays.numpy(f"at_{kept}", np.int64)
        if warm is None:
            counts = np.zeros_like(counts)
        elif warm:
            counts = counts - state.arrays.numpy(f"warm_{kept}", np.int64)
        found[name] = Histogram(counts=counts, total=int(st[total] - before[total]))
    own = found[AT_START]
    found[AFTER_UPDATE] = Histogram(counts=own.counts, total=own.total, least=1)
    return found


def _ledger(state: State, st: Any) -> Ledger:
    """Each entry from what is there at the end, none as the rest of the others."""
    arrays, group = state.arrays, state.scenario.policy.group_size
    left = arrays.numpy("group_left", np.int64)
    free, whole = np.zeros(len(left), dtype=bool), np.zeros(len(left), dtype=bool)
    free[arrays.numpy("free_groups", np.int64)[: st[k.FREE_GROUPS]]] = True
    queue = arrays.numpy("queue", np.int64)
    whole[queue[(int(st[k.HEAD]) + np.arange(int(st[k.QUEUED]))) % len(queue)]] = True
    whole[arrays.numpy("held", np.int64)[: st[k.HELD]]] = True
    waiting = int((group - left[~free & ~whole]).sum())
    return Ledger(
        started=int(st[k.STARTED]),
        trained=int(st[k.TRAINED]),
        discarded=int(st[k.DISCARDED]),
        cut=int(st[k.CUT]),
        in_flight=int(st[k.GENERATING] + st[k.IN_TOOL]),
        queued=int(whole.sum()) * group + waiting,
    )


def _records(state: State) -> Records:
    arrays = state.arrays
    update = arrays.numpy("rec_update", np.int64)
    return Records(
        start_s=arrays.numpy("rec_start", np.float64),
        end_s=arrays.numpy("rec_end", np.float64),
        worker=arrays.numpy("rec_worker", np.int64),
        version=arrays.numpy("rec_version", np.int64),
        update=np.where(update < 0, -1, update + 1),
    )
