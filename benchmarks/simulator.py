"""The simulator's speed on one core: trajectories a second, beside the same model in SimPy and in a plain heapq loop.

The model: 64 workers, batches of 64, log-normal trajectories (median 20 s, sigma 1), updates of 15 s; uncapped, and
capped by the admission rule (max_staleness 2). All three get the same durations; SimPy and heapq get them for nothing,
the simulator draws its own. What they find is compared: the same updates, at the same moments. They take turns, ROUNDS
times; times are CPU seconds of the process, so that other load on the machine tells least.

Then, each in a process of its own: 10**7 trajectories, uncapped (wall and CPU seconds, peak memory), and a fleet of
10**5 workers with turns, tools and load. Last, a sweep of such fleets in one process and on all cores (wall seconds):
the same rows. Beside all: the compiled loop over the interpreted one.

Limits: 20 times SimPy uncapped, 10 times capped; 10**7 trajectories in 3 s of CPU time and 1 GB. Wall seconds are
recorded beside and have no limit: other load on the machine is in them.
"""

import heapq
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import simpy
import tracked

from results.planner import draws
from results.planner.engine import simulate
from results.planner.model import Composed, Fixed, LogNormal, Policy, Pools, Scenario, SlowDown
from results.planner.scenario_file import mapping_of
from results.planner.sweep import cells, run

WORKERS, BATCH, UPDATE_S = 64, 64, 15.0
LAW = LogNormal(20.0, 1.0)
ROUNDS = 5
UPDATES_OURS, UPDATES_THEIRS = 30_000, 1_500
MANY_UPDATES = 156_250  # of 64: 10**7
LIMITS = {"uncapped_over_simpy": 20.0, "capped_over_simpy": 10.0, "many_cpu_s": 3.0, "many_peak_bytes": 1e9}
PARTS = ("compiled", "draws", "engine", "heap", "kernel", "model", "scalar", "state", "sweep", "warm")
UPDATES_INTERPRETED = 1_000
FLEETS = 4  # of 10**5 workers, in a sweep
Model = Callable[[Sequence[float], int | None, int], list[float]]


def ours(cap: int | None, updates: int) -> Scenario:
    """The model as a scenario."""
    return Scenario(
        durations=LAW,
        policy=Policy(in_flight="keep", max_staleness=cap),
        pools=Pools(workers=WORKERS, train=Fixed(UPDATE_S)),
        batch_size=BATCH,
        horizon_updates=updates,
    )


def with_heapq(durations: Sequence[float], cap: int | None, updates: int) -> list[float]:
    """The model as a loop over one heap; returns when each update ended."""
    running: list[tuple[float, int]] = []  # end, version at the start; the trainer's end has version -1
    ended: list[float] = []
    started = finished = version = 0
    training = False
    ages = 0
    now = 0.0
    while len(ended) < updates:
        limit = started + WORKERS if cap is None else (cap + version + 1) * BATCH
        while started < limit and len(running) - training < WORKERS:
            heapq.heappush(running, (now + durations[started], version))
            started += 1
        if not training and finished >= BATCH:
            finished -= BATCH
            training = True
            heapq.heappush(running, (now + UPDATE_S, -1))
        now, begun = heapq.heappop(running)
        if begun < 0:
            training = False
            version += 1
            ended.append(now)
        else:
            finished += 1
            ages += version - begun
    return ended


def with_simpy(durations: Sequence[float], cap: int | None, updates: int) -> list[float]:
    """The model as SimPy processes: one per worker, and the trainer; returns when each update ended."""
    world = simpy.Environment()
    ended: list[float] = []
    state = {"started": 0, "finished": 0, "version": 0, "ages": 0}
    admitted = [world.event()]
    enough = [world.event()]

    def worker():
        while True:
            while cap is not None and state["started"] >= (cap + state["version"] + 1) * BATCH:
                yield admitted[0]
            duration = durations[state["started"]]
            state["started"] += 1
            begun = state["version"]
            yield world.timeout(duration)
            state["finished"] += 1
            state["ages"] += state["version"] - begun
            if state["finished"] >= BATCH and not enough[0].triggered:
                enough[0].succeed()

    def trainer():
        while len(ended) < updates:
            while state["finished"] < BATCH:
                enough[0] = world.event()
                yield enough[0]
            state["finished"] -= BATCH
            yield world.timeout(UPDATE_S)
            state["version"] += 1
            ended.append(world.now)
            admitted[0].succeed()
            admitted[0] = world.event()

    for _ in range(WORKERS):
        world.process(worker())
    world.run(until=world.process(trainer()))
    return ended


def rates(cap: int | None) -> dict[str, list[float]]:
    """Trajectories per CPU second, by simulator, one for each round."""
    durations = draws.seconds(LAW, 1, draws.GENERATION, 0, (UPDATES_THEIRS + 50) * BATCH).tolist()
    found: dict[str, list[float]] = {"ours": [], "heapq": [], "simpy": []}
    expected = simulate(ours(cap, UPDATES_THEIRS), backend="compiled").ended_s
    for _ in range(ROUNDS):
        begin = time.process_time()
        result = simulate(ours(cap, UPDATES_OURS), backend="compiled")
        found["ours"].append(result.ledger.trained / (time.process_time() - begin))
        for name, model in (("heapq", with_heapq), ("simpy", with_simpy)):
            begin = time.process_time()
            ended = model(durations, cap, UPDATES_THEIRS)
            found[name].append(UPDATES_THEIRS * BATCH / (time.process_time() - begin))
            np.testing.assert_allclose(ended, expected, rtol=1e-9, err_msg=name)
    return found


def interpreted() -> float:
    """How many times faster the compiled loop is than the interpreted one: CPU seconds, the median of ROUNDS."""
    ratios = []
    for _ in range(ROUNDS):
        spent = {}
        for backend, updates in (("compiled", UPDATES_OURS), ("interpreted", UPDATES_INTERPRETED)):
            begin = time.process_time()
            simulate(ours(None, updates), backend=backend)
            spent[backend] = (time.process_time() - begin) / updates
        ratios.append(spent["interpreted"] / spent["compiled"])
    return round(statistics.median(ratios), 1)


def many() -> dict[str, float]:
    """10**7 trajectories in this process: seconds, and its peak memory, machine code loaded before."""
    simulate(ours(None, 10), backend="compiled")
    wall, cpu = time.perf_counter(), time.process_time()
    result = simulate(ours(None, MANY_UPDATES), backend="compiled")
    return {
        "trajectories": result.ledger.trained,
        "wall_s": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def large(updates: int) -> Scenario:
    """10**5 workers, trajectories of 2 to 9 turns with tools, generation slowed by load."""
    return Scenario(
        durations=Composed(tuple(range(2, 10)), LogNormal(8.0, 0.6), LogNormal(16.0, 0.7)),
        policy=Policy(max_staleness=2, group_size=8),
        pools=Pools(
            workers=100_000,
            engines=2_000,
            slow_down=SlowDown((1.0, 64.0), (1.0, 3.0)),
            train=Fixed(60.0),
            transfer=Fixed(3.0),
        ),
        batch_size=4_096,
        horizon_updates=updates,
    )


def fleets() -> dict[str, object]:
    """A sweep of fleets of 10**5 workers, in one process and on all cores."""
    found = cells(mapping_of(large(5)), {"workers": [100_000]}, FLEETS)
    simulate(ours(None, 10), backend="compiled")
    spent, rows = {}, {}
    for jobs in (1, len(os.sched_getaffinity(0))):
        begin = time.perf_counter()
        rows[jobs] = run(found, jobs=jobs)
        spent[str(jobs)] = round(time.perf_counter() - begin, 2)
    return {
        "workers": 100_000,
        "fleets": FLEETS,
        "wall_s_by_jobs": spent,
        "same_rows": len(set(map(repr, rows.values()))) == 1,
    }


def fleet() -> dict[str, float]:
    """One fleet, with a core to itself."""
    scenario = large(20)
    simulate(ours(None, 10), backend="compiled")
    cpu = time.process_time()
    result = simulate(scenario, backend="compiled")
    spent = time.process_time() - cpu
    return {
        "workers": 100_000,
        "trajectories": result.ledger.started,
        "turns_per_s": round(5.5 * result.ledger.started / spent),
        "cpu_s": round(spent, 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> int:
    """Measures; returns 1 where a limit is missed."""
    alone = {"many": many, "fleet": fleet, "fleets": fleets}
    if len(sys.argv) == 2 and sys.argv[1] in alone:
        print(json.dumps(alone[sys.argv[1]]()))
        return 0
    record = tracked.options(__doc__ or "").parse_args().record
    simulate(ours(None, 10), backend="compiled")  # compiles, where no one has yet
    figures: dict[str, object] = {"rounds": ROUNDS}
    reached: dict[str, float] = {}
    for name, cap in (("uncapped", None), ("capped", 2)):
        found = rates(cap)
        medians = {simulator: statistics.median(values) for simulator, values in found.items()}
        figures[name] = {simulator: round(value) for simulator, value in medians.items()}
        for other in ("simpy", "heapq"):
            ratios = [mine / theirs for mine, theirs in zip(found["ours"], found[other], strict=True)]
            reached[f"{name}_over_{other}"] = round(statistics.median(ratios), 2)
            figures[f"{name}_over_{other}"] = {
                "median": reached[f"{name}_over_{other}"],
                "min": round(min(ratios), 2),
                "max": round(max(ratios), 2),
            }
    figures["compiled_over_interpreted"] = interpreted()
    for name in alone:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        figures[name] = json.loads(done.stdout)
    reached["many_cpu_s"] = figures["many"]["cpu_s"]  # type: ignore[index]
    reached["many_peak_bytes"] = figures["many"]["peak_bytes"]  # type: ignore[index]
    ok = all(reached[name] >= limit if "_over_" in name else reached[name] <= limit for name, limit in LIMITS.items())
    ok = ok and figures["fleets"]["same_rows"] is True  # type: ignore[index]
    return tracked.finish(
        "simulator",
        {**figures, "limits": LIMITS},
        ok=ok,
        description=__doc__ or "",
        sources=("benchmarks/simulator.py", *(f"results/planner/{name}.py" for name in PARTS)),
        record=record,
    )


if __name__ == "__main__":
    sys.exit(main())
