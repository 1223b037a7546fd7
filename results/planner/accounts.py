"""Where the time of a simulation's two sides went, and what energy that took."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from results.planner import kernel as k
from results.planner.model import ROLLOUT_CLASSES, TRAIN_CLASSES, Mode, Scenario
from results.planner.state import State


def rollout_account(clk: Any, before: Any) -> dict[str, float]:
    """Seconds of the rollout side in the window, by class."""
    places = (k.S_GENERATING, k.S_TOOL, k.S_SYNC, k.S_IDLE)
    return {name: float(clk[place] - before[place]) for name, place in zip(ROLLOUT_CLASSES, places, strict=True)}


def train_account(state: State, clk: Any, before: Any, warm: int) -> dict[str, float]:
    """Seconds of the train side in the window, by class. `warm`: updates before it.

    Offload, logprob and train are told apart by what was drawn for each update, the last one as far as it came.
    """
    st, clocks = state.arrays.numpy("st", np.int64), np.array(clk)
    now, trainer, taken = clocks[k.NOW], int(st[k.TRAINER]), int(st[k.TAKEN])
    one_step_off = state.scenario.policy.mode is Mode.ONE_STEP_OFF
    whole = taken
    partial: dict[int, float] = {}
    if trainer == k.TRAINING:
        whole = taken - 1
        work = math.fsum(state.parts[:3, whole])
        passed = work - (clocks[k.TRAINER_END] - now)
        for part in range(3):
            partial[part] = float(min(max(passed, 0.0), state.parts[part, whole]))
            passed -= partial[part]
    elif trainer == k.DRAINING:
        clocks[k.T_DRAINING] += now
    elif trainer == k.SYNCING:
        if one_step_off:
            whole = taken - 1  # its work comes after this sync
        own = state.parts[3, int(st[k.TRAINED_VERSION]) - 1]
        clocks[k.T_SYNCING] += own - (clocks[k.TRAINER_END] - now)
    found = {}
    for part, name in enumerate(TRAIN_CLASSES[:3]):
        found[name] = math.fsum(state.parts[part, warm:whole]) + partial.get(part, 0.0)
    for name, place in (("weight_sync", k.T_SYNCING), ("wait_drain", k.T_DRAINING)):
        found[name] = float(clocks[place] - before[place])
    window = float(now - before[k.NOW])
    found["wait_rollout"] = max(window - math.fsum(found.values()), 0.0)
    return found


def energy(scenario: Scenario, train_s: Mapping[str, float], rollout_s: Mapping[str, float]) -> dict[str, float | None]:
    """Joules by class, `train.<class>` and `rollout.<class>`; None where a count of GPUs or a power is unknown.

    Colocated GPUs are one pool: the rollout classes count while generation has them, the train classes otherwise.
    """
    pools = scenario.pools
    found: dict[str, float | None] = {}
    for side, seconds, gpus, watts in (
        ("train", train_s, pools.train_gpus, pools.train_watts),
        ("rollout", rollout_s, pools.rollout_gpus, pools.rollout_watts),
    ):
        for name, length in seconds.items():
            if scenario.policy.colocated and name == ("wait_rollout" if side == "train" else "wait_train"):
                continue  # the other side has the GPUs
            if scenario.policy.colocated and side == "rollout" and name == "weight_sync":
                continue  # counted on the train side
            power = watts.get(name)
            if length == 0:
                found[f"{side}.{name}"] = 0.0
            else:
                found[f"{side}.{name}"] = None if gpus is None or power is None else length * gpus * power
    return found
