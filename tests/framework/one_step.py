"""One step's time account, from the raw event lines alone: read, sorted and added up by hand, so to speak.

    python tests/framework/one_step.py RUN [STEP]

prints it beside what `bench` makes of the tables. The counting shares no code with it: from one moment at which
anything begins or ends to the next, it looks at what is open and asks the questions of docs/measuring.md in order.
Runs of one host. Where turns don't say their engine, its units are the engines that told how many requests they run.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

Line = dict[str, Any]
Seconds = dict[str, dict[str, float]]  # unit -> class -> seconds

HOST = ("reward", "advantage", "data", "overhead")
NAMED = ("weight_sync", "offload", "checkpoint", "eval", "train", "logprob", "host", "wait_rollout", "generation")
BUSY = NAMED[:-2]
FOREVER = 2**63 - 1
HIDDEN = "hidden "  # before a class: the part of it while the trainer trained


def lines(run: Path) -> Iterator[Line]:
    """Every event of every process, with the `process` that wrote it."""
    for path in sorted((run / "events").glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield {**json.loads(text), "process": path.name}
            except ValueError:
                continue  # a line that was cut


@dataclass(frozen=True)
class Near:
    """What can matter to one stretch of time; `turns_of`: of a trajectory, from its first."""

    leaves: list[Line]
    turns: list[Line]
    tools: list[Line]
    alive: list[str]
    turns_of: dict[str, list[Line]]
    grain: str


class Record:
    """What a run's raw lines say, as plain lists."""

    def __init__(self, run: Path) -> None:
        every = list(lines(run))
        spec = json.loads((run / "spec.json").read_text())
        self.placement = str(spec["placement"])
        spans = [each for each in every if each["k"] == "span" and not each.get("container")]
        closed = {(each["process"], each["open_id"]) for each in every if each["k"] == "span" and each.get("open_id")}
        self.ended = {e["trajectory_id"]: (e["start_ns"], e["end_ns"]) for e in every if e["k"] == "trajectory"}
        opens = [
            e for e in every if e["k"] == "open" and (e["process"], e["id"]) not in closed and e.get("trajectory_id")
        ]
        for each in opens:
            if each.get("phase") is None:
                self.ended.setdefault(each["trajectory_id"], (each["start_ns"], FOREVER))
        for each in opens:
            if each.get("phase") in ("generation", "tool"):
                spans.append({**each, "end_ns": self.ended.get(each["trajectory_id"], (0, each["start_ns"]))[1]})
        self.leaves = [e for e in spans if e.get("phase") and not e.get("trajectory_id")]
        self.turns = sorted(
            (e for e in spans if e.get("phase") == "generation" and e.get("trajectory_id")), key=lambda e: e["start_ns"]
        )
        self.tools = [e for e in spans if e.get("phase") == "tool" and e.get("trajectory_id")]
        self.gates = sorted((e for e in every if e["k"] == "gate"), key=lambda e: e["mono_ns"])
        self.step_end = {e["step"]: e["end_ns"] for e in every if e["k"] == "step"}
        self.left = {e["trajectory_id"]: e["end_ns"] for e in every if e["k"] == "trajectory" and e["status"] != "ok"}
        for each in (e for e in every if e["k"] == "step"):
            named = (*each["trajectory_ids"], *each.get("dropped_ids", ()))
            self.left |= dict.fromkeys(named, each["end_ns"])
        self.rewards = [e for e in spans if e.get("phase") == "reward" and e.get("trajectory_id")]
        byes = {e["process"]: e["mono_ns"] for e in every if e["k"] == "bye"}
        self.up = {e["process"]: (e["role"], e["mono_ns"], byes.get(e["process"])) for e in every if e["k"] == "hello"}
        told: dict[str, str] = {}
        for turn in self.turns:
            name = (turn.get("attributes") or {}).get("engine") or told.get(turn["trajectory_id"])
            turn["engine"] = name
            if name:
                told[turn["trajectory_id"]] = name
        self.engines = sorted(set(told.values()))
        gpus = spec["gpus"]
        self.replicas = max(int(gpus["rollout"]) // int(spec["rollout_tp"]), 1)
        self.readings: dict[str, list[Line]] = defaultdict(list)
        for path in sorted((run / "samples" / "engines").glob("*.jsonl")):
            for text in path.read_text().splitlines():
                row = json.loads(text)
                if row["family"] and row["running_requests"] is not None:
                    self.readings[row["engine"]].append(row)

    # -- what holds between two moments; `at` is the time half-way

    def train(self, at: float, leaves: list[Line]) -> str:
        """The class of the unit that trains (colocated: `generation` inside the native generate span)."""
        controllers = [(a, b) for role, a, b in self.up.values() if role in ("controller", "train")]
        if controllers and not any(a <= at < (b or FOREVER) for a, b in controllers):
            return "down"
        pools = ("train", "both") if self.placement == "colocated" else ("train",)
        by_process: dict[str, Line] = {}
        for leaf in leaves:
            if leaf["pool"] in pools and leaf["start_ns"] <= at < leaf["end_ns"] and _class(leaf) is not None:
                known = by_process.get(leaf["process"])
                if known is None or (leaf["start_ns"], -leaf["end_ns"]) > (known["start_ns"], -known["end_ns"]):
                    by_process[leaf["process"]] = leaf
        found = [_class(leaf) or "" for leaf in by_process.values()]
        return min(found, key=NAMED.index) if found else "other"

    def rollout(self, engine: str, at: float, train: str, near: Near) -> str:
        """The class of one engine."""
        if self.placement == "colocated" and train != "generation":
            return train
        if any(role == "controller" and not a <= at < (b or FOREVER) for role, a, b in self.up.values()):
            return "down"
        for phase in ("weight_sync", "offload"):
            for leaf in near.leaves:
                mine = leaf["pool"] == "rollout" and (near.grain == "pool" or leaf.get("unit") in (None, engine))
                if leaf["phase"] == phase and mine and leaf["start_ns"] <= at < leaf["end_ns"]:
                    return phase
        turns = [t for t in near.turns if t["start_ns"] <= at < t["end_ns"]]
        if near.grain != "engine":
            return self.unnamed(engine, at, train, near, {turn["trajectory_id"] for turn in turns})
        turns = [t for t in turns if t["engine"] == engine]
        if turns:
            return "queued" if all(self.unserved(engine, turn, at) for turn in turns) else "generating"
        mine_live, mine_in_tool, elsewhere = False, False, False
        for name in near.alive:
            start, end = self.ended[name]
            if not start <= at < end:
                continue
            begun = [turn for turn in near.turns_of[name] if turn["start_ns"] <= at]
            if begun and begun[-1]["engine"] == engine:
                mine_live = True
                called = [tool for tool in near.tools if tool["trajectory_id"] == name]
                mine_in_tool |= any(tool["start_ns"] <= at < tool["end_ns"] for tool in called)
            else:
                elsewhere = True
        if mine_live:
            return "tool_wait" if mine_in_tool else "agent"
        if elsewhere:
            return "empty"
        if not self.may_wait(at, train):
            return "other"
        return "agent" if self.placement == "colocated" else "wait_train"

    def unnamed(self, engine: str, at: float, train: str, near: Near, asked: set[str]) -> str:
        """The class of an engine by its own count, or of the pool by the clients' turns; `asked`: who has one open."""
        alive = [name for name in near.alive if self.ended[name][0] <= at < self.ended[name][1]]
        if near.grain == "pool":
            if asked:
                return "generating"
        else:
            row = self.nearest(engine, at)
            if row is None and asked:
                return "other"  # nothing tells whether it ran one of them
            if row is not None and (row["running_requests"] or row.get("waiting_requests")):
                return "generating" if row["running_requests"] else "queued"
        free = [name for name in alive if name not in asked]
        if free:
            called = {t["trajectory_id"] for t in near.tools if t["start_ns"] <= at < t["end_ns"]}
            return "tool_wait" if called & set(free) else "agent"
        if alive:
            return "empty"
        if not self.may_wait(at, train):
            return "other"
        return "agent" if self.placement == "colocated" else "wait_train"

    def nearest(self, engine: str, at: float) -> Line | None:
        """The reading of an engine that speaks for a moment: the nearest, no farther than two periods."""
        rows = self.readings.get(engine, [])
        if len(rows) < 2:
            return None
        period = statistics.median(b["mono_ns"] - a["mono_ns"] for a, b in pairwise(rows))
        row = min(rows, key=lambda each: abs(each["mono_ns"] - at))
        return row if abs(row["mono_ns"] - at) <= 2 * period else None

    def grain(self, low: int, high: int, turns: list[Line]) -> str:
        """What a rollout unit is in this step: engine | metric | pool."""
        answered = [t for t in turns if (t.get("attributes") or {}).get("generated_tokens") is not None]
        if answered and all((t.get("attributes") or {}).get("engine") for t in answered):
            return "engine"
        told = [
            engine
            for engine in self.readings
            if any(self.nearest(engine, at) for at in (low, high))
            or any(low <= row["mono_ns"] < high for row in self.readings[engine])
        ]
        return "metric" if self.readings and len(told) == max(self.replicas, len(self.readings)) else "pool"

    def may_wait(self, at: float, train: str) -> bool:
        """Whether anything says that the rollout side waits for training."""
        if self.placement == "disaggregated" and train in BUSY:
            return True
        said = [gate for gate in self.gates if gate["mono_ns"] <= at]
        if not said:
            return False
        last = said[-1]
        full = last.get("cap") is not None and (last.get("in_flight") or 0) >= last["cap"]
        return not last["open"] or full

    def unserved(self, engine: str, turn: Line, at: float) -> bool:
        """Whether the engine's own reading, the nearest, says that it ran nothing while the turn was open."""
        rows = self.readings.get(engine, [])
        if len(rows) < 2:
            return False
        period = statistics.median(b["mono_ns"] - a["mono_ns"] for a, b in pairwise(rows))
        row = min(rows, key=lambda each: abs(each["mono_ns"] - at))
        off = row["uncertainty_ns"]
        inside = turn["start_ns"] <= row["mono_ns"] - off and row["mono_ns"] + off <= turn["end_ns"]
        return bool(inside and row["running_requests"] == 0 and abs(row["mono_ns"] - at) <= 2 * period)

    def account(self, step: int) -> Seconds:
        """Seconds per class of each unit, from the end of the step before to the end of this one."""
        low, high = self.step_end[step - 1], self.step_end[step]

        def inside(rows: list[Line]) -> list[Line]:
            return [row for row in rows if row["start_ns"] < high and row["end_ns"] > low]

        turns_of: dict[str, list[Line]] = defaultdict(list)
        for turn in self.turns:
            turns_of[turn["trajectory_id"]].append(turn)
        alive = [name for name, (start, end) in self.ended.items() if start < high and end > low]
        turns = inside(self.turns)
        near = Near(inside(self.leaves), turns, inside(self.tools), alive, turns_of, self.grain(low, high, turns))
        pool = "both" if self.placement == "colocated" else "rollout"
        units = {"engine": self.engines, "metric": sorted(self.readings), "pool": [pool]}[near.grain]
        moments = {low, high}
        for rows in (near.leaves, near.turns, near.tools):
            moments |= {row[key] for row in rows for key in ("start_ns", "end_ns")}
        moments |= {time for each in alive for time in self.ended[each]}
        moments |= {gate["mono_ns"] for gate in self.gates}
        moments |= {time for _, a, b in self.up.values() for time in (a, b) if time}
        for rows in self.readings.values():
            period = statistics.median(b["mono_ns"] - a["mono_ns"] for a, b in pairwise(rows))
            for first, then in pairwise(rows):
                moments.add(first["mono_ns"] + (then["mono_ns"] - first["mono_ns"]) // 2)
            moments |= {row["mono_ns"] + way * round(2 * period) for row in rows for way in (-1, 1)}
        cuts = sorted(moment for moment in moments if low <= moment <= high)
        found: Seconds = defaultdict(lambda: defaultdict(float))
        for begin, end in pairwise(cuts):
            at, length = (begin + end) / 2, (end - begin) / 1e9
            train = self.train(at, near.leaves)
            if self.placement != "colocated":
                found["train"][train] += length
            for engine in units:
                name = self.rollout(engine, at, train, near)
                found[engine][name] += length
                if self.placement != "colocated" and train in ("train", "logprob", "host") and name != "other":
                    found[engine][HIDDEN + name] += 0.0 if name == "weight_sync" else length
        return {unit: {name: s for name, s in parts.items() if s} for unit, parts in found.items()}

    def lives(self, step: int) -> dict[str, float]:
        """Seconds of the trajectories' own lives in the step, to when each was trained on; `asked`: of open turns."""
        low, high = self.step_end[step - 1], self.step_end[step]
        found: dict[str, float] = defaultdict(float)

        def inside(start: int, end: int) -> float:
            return float(max(0, min(end, high) - max(start, low))) / 1e9

        for name, (start, end) in self.ended.items():
            left = max(self.left.get(name, FOREVER), start)
            if start >= high or left <= low:
                continue
            stops = min(end, left)
            alive = inside(start, stops)
            parts: dict[str, float] = defaultdict(float)
            for what, rows in (("asked", self.turns), ("tool", self.tools), ("reward", self.rewards)):
                for row in rows:
                    if row["trajectory_id"] == name:
                        parts[what] += inside(row["start_ns"], min(row["end_ns"], end))
            for turn in (turn for turn in self.turns if turn["trajectory_id"] == name):
                parts["paused"] += self._paused(turn, end, low, high)
            parts["asked"] -= parts["paused"]
            for what, length in parts.items():
                found[what] += length
            found["agent"] += alive - sum(parts.values())
            found["buffer_wait"] += inside(stops, left)
        return dict(found)

    def _paused(self, turn: Line, end: int, low: int, high: int) -> float:
        """Seconds of a turn inside the pauses of its engine, each counted once."""
        begin, stop = max(turn["start_ns"], low), min(turn["end_ns"], end, high)
        syncs = [
            (max(leaf["start_ns"], begin), min(leaf["end_ns"], stop))
            for leaf in self.leaves
            if leaf["phase"] == "weight_sync"
            and leaf["pool"] == ("both" if self.placement == "colocated" and leaf.get("unit") else "rollout")
            and (leaf.get("unit") not in self.engines or leaf.get("unit") == turn["engine"])
        ]
        total, reach = 0, begin
        for first, last in sorted(syncs):
            total += max(0, last - max(first, reach))
            reach = max(reach, last)
        return float(total) / 1e9


def _class(leaf: Line) -> str | None:
    name = "host" if leaf["phase"] in HOST else leaf["phase"]
    return name if name in NAMED else None


def of_bench(run: Path, step: int) -> Seconds:
    """The same by `bench`: from the tables, with the account that reports print."""
    from results.account import make_account

    tables, arrays = _loaded(run)
    account = make_account(tables, arrays, _window(tables, step))
    found: Seconds = {}
    for unit in account.units:
        hidden = {HIDDEN + name: s for name, s in unit.hidden_seconds.items() if name != "weight_sync"}
        found[unit.unit] = {**unit.seconds, **hidden}
    return found


def lives_of_bench(run: Path, step: int) -> dict[str, float]:
    """`Record.lives` by `bench`."""
    from results.lifetimes import lifetimes
    from results.throughput import Lives

    tables, arrays = _loaded(run)
    found = dict(lifetimes(tables, arrays, _window(tables, step), Lives.of(tables, arrays).left).seconds)
    asked = (found.pop("generating") or 0.0) + (found.pop("queued") or 0.0)
    return {"asked": asked, **{name: s or 0.0 for name, s in found.items()}}


@lru_cache(maxsize=1)
def _loaded(run: Path) -> tuple[Any, Any]:
    from results.store import load_run
    from results.tracks import tracks

    tables = load_run(run)
    return tables, tracks(tables)


def _window(tables: Any, step: int) -> Any:
    from results.window import Window

    ends = {row["step"]: row["end_ns"] for row in tables.tables["steps"].to_pylist()}
    edges = (ends[step - 1], ends[step])
    return Window(start_ns=edges[0], end_ns=edges[1], after_step=step - 1, last_step=step, boundaries_ns=edges)


def main(words: list[str]) -> int:
    """Prints both, side by side; 1 where they differ by more than a microsecond."""
    run = Path(words[0])
    record = Record(run)
    steps = sorted(record.step_end)
    step = int(words[1]) if len(words) > 1 else steps[len(steps) // 2]
    mine, theirs = record.account(step), of_bench(run, step)
    wall = (record.step_end[step] - record.step_end[step - 1]) / 1e9
    print(f"{run.name}, step {step}: {wall:.6f} s")
    worst = 0.0
    for unit in sorted(set(mine) | set(theirs)):
        a, b = mine.get(unit, {}), theirs.get(unit, {})
        for name in sorted(set(a) | set(b)):
            apart = abs(a.get(name, 0.0) - b.get(name, 0.0))
            worst = max(worst, apart)
            print(f"  {unit:32} {name:24} {a.get(name, 0.0):12.6f} {b.get(name, 0.0):12.6f} {apart:.1e}")
        total = sum(s for name, s in a.items() if not name.startswith(HIDDEN))
        print(f"  {unit:32} {'sum':24} {total:12.6f} {wall:12.6f} {abs(total - wall):.1e}")
    a, b = record.lives(step), lives_of_bench(run, step)
    for name in sorted(set(a) | set(b)):
        apart = abs(a.get(name, 0.0) - b.get(name, 0.0))
        worst = max(worst, apart)
        print(f"  {'trajectory-seconds':32} {name:24} {a.get(name, 0.0):12.6f} {b.get(name, 0.0):12.6f} {apart:.1e}")
    return int(worst > 1e-6)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
