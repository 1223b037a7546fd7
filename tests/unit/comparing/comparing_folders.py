"""Played runs on disk for the tests of comparing: small, of every placement, with what is to differ planted."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).parents[1] / "reports"))

import played_runs
from played_folders import write_run
from played_runs import S, World, make_spec, play

from results.collect import collect
from results.store import RunTables
from workloads.deep_research.plan import TrajectoryPlan, draw_plan

__all__ = ["S", "collected", "play_run"]

TRAIN_S = 33  # mean seconds of a played training


def play_run(
    folder: Path, placement: str, *, slower_train: float = 1.0, slower_tools_s: float = 0.0, noise: int = 0, **more: Any
) -> Path:
    """A run folder of a played run of 8 steps of 6 trajectories.

    `slower_train`: factor of each training; `slower_tools_s`: seconds that each tool call takes longer; `noise`:
    another number is another run of the same plans, with times of its own.
    """
    spec = make_spec(placement, steps=8, batch_size=2, seed=more.pop("seed", 1))

    def seconds(world: World, mean: float, sigma: float) -> int:
        factor = slower_train if mean == TRAIN_S else 1.0
        return int(factor * mean * world.random.lognormvariate(-sigma * sigma / 2, sigma) * S)

    def longer(*args: Any, **kwargs: Any) -> TrajectoryPlan:
        plan = draw_plan(*args, **kwargs)
        turns = [
            turn if turn.latency_s is None else replace(turn, latency_s=turn.latency_s + slower_tools_s)
            for turn in plan.turns
        ]
        return replace(plan, turns=tuple(turns))

    made = World.__init__

    def other_dice(world: World, *args: Any, **kwargs: Any) -> None:
        made(world, *args, **kwargs)
        world.random.seed(1000 * noise + spec.seed)

    with (
        mock.patch.object(World, "seconds", seconds),
        mock.patch.object(played_runs, "draw_plan", longer),
        mock.patch.object(World, "__init__", other_dice),
    ):
        events = play(spec)
    return write_run(folder, spec, events, **more)


def collected(folder: Path) -> RunTables:
    """Its tables."""
    return collect(folder)
