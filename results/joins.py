"""The trajectories table: what closed, what never did, which step consumed each, and what each was asked to do."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from results.plans import Plans, planned_ns
from results.rows import Rows
from results.schema import COLUMNS, TABLES

OPEN = "open"
JOINED = (
    "step_consumed",
    "step_dropped",
    "version_trained",
    "consumed_ns",
    "planned_turns",
    "planned_tool_calls",
    "planned_generated_tokens",
    "planned_observation_tokens",
    "planned_tool_ns",
)
RECORDED = tuple(column.name for column in COLUMNS["trajectories"] if column.name not in JOINED)

_NAME = re.compile(r"^p(?P<prompt>\d{1,15})-s(?P<sample>\d{1,15})-a(?P<attempt>\d{1,15})$")

Report = Callable[[str, str], None]  # (type of the defect, what was wrong)


def add_open_trajectories(rows: Rows, closed: set[str], opens: pa.Table, turns: pa.Table, tools: pa.Table) -> None:
    """Adds a row `open` for each trajectory that began and has no `Trajectory` event, from its recorded turns."""
    starts: dict[str, tuple[int, str, int]] = {}
    by_id: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = defaultdict(lambda: ([], []))
    for row in opens.filter(pc.is_valid(opens["trajectory_id"])).to_pylist():
        _earliest(starts, row, closed)
    for which, table in enumerate((turns, tools)):
        unknown = pc.invert(pc.is_in(table["trajectory_id"], pa.array(list(closed), pa.string())))
        for row in table.filter(unknown).to_pylist():
            _earliest(starts, row, closed)
            by_id[row["trajectory_id"]][which].append(row)
    for name in sorted(starts, key=lambda one: (starts[one][0], one)):
        start_ns, host, pid = starts[name]
        its_turns, its_tools = by_id[name]
        replies = [row for row in its_turns if row["generated_tokens"] is not None]
        match = _NAME.match(name)
        rows.add(
            host,
            pid,
            name,
            f"p{match['prompt']}" if match else None,
            int(match["prompt"]) if match else None,
            int(match["sample"]) if match else None,
            int(match["attempt"]) if match else None,
            OPEN,
            start_ns,
            None,
            len(replies),
            len(its_tools),
            sum(row["end_ns"] - row["start_ns"] for row in its_tools),
            its_turns[0]["prompt_tokens"] if its_turns else None,
            sum(row["generated_tokens"] for row in replies),
            _sum(row["observation_tokens"] for row in its_tools),
            None,
            replies[0]["version_start"] if replies else None,
            replies[-1]["version_end"] if replies else None,
            None,
            None,
            None,
            None,
        )


def join_trajectories(recorded: pa.Table, steps: pa.Table, plans: Plans, report: Report) -> pa.Table:
    """The trajectories table: `recorded` with the steps that consumed or dropped each, and its plan.

    Where one name was recorded more than once, the last one that had ended by the end of the step is the one it
    consumed. `report` hears of names that are not unique, trained on twice, or trained on and never recorded.
    """
    names: list[str] = recorded["trajectory_id"].to_pylist()
    ends: list[int | None] = recorded["end_ns"].to_pylist()
    where = dict(zip(names, range(len(names)), strict=True))  # the last row of each
    several: dict[str, list[int]] = {}  # rows of a name that has more
    if len(where) < len(names):
        for name, count in sorted(Counter(names).items()):
            if count > 1:
                report("duplicate_trajectory", f"trajectory {name} was recorded {count} times; all rows are kept")
                several[name] = []
        for index, name in enumerate(names):
            if name in several:
                several[name].append(index)
    joined: dict[str, list[int | None]] = {column: [None] * len(names) for column in JOINED}

    def row_of(name: str, step: Mapping[str, Any], what: str) -> int | None:
        row = where.get(name)
        if row is None:
            report("unknown_trajectory", f"step {step['step']} {what} trajectory {name}, which was never recorded")
            return None
        rows = several.get(name, ())
        done = [(end, one) for one in rows if (end := ends[one]) is not None and end <= step["end_ns"]]
        return max(done)[1] if done else row

    for step in steps.select(["step", "trained_at", "end_ns", "trajectory_ids", "dropped_ids"]).to_pylist():
        for name in step["trajectory_ids"]:
            row = row_of(name, step, "trained on")
            if row is None:
                continue
            if joined["step_consumed"][row] is not None:
                first = joined["step_consumed"][row]
                report("trained_twice", f"trajectory {name} was trained on by step {first} and again by {step['step']}")
                continue
            joined["step_consumed"][row] = step["step"]
            joined["version_trained"][row] = step["trained_at"]
            joined["consumed_ns"][row] = step["end_ns"]
        for name in step["dropped_ids"]:
            row = row_of(name, step, "dropped")
            if row is not None:
                joined["step_dropped"][row] = step["step"]
    _plan(recorded, plans, joined)
    schema = TABLES["trajectories"]
    columns = [
        pa.array(joined[field.name], field.type) if field.name in joined else recorded[field.name] for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _plan(recorded: pa.Table, plans: Plans, joined: Mapping[str, list[int | None]]) -> None:
    if plans.why_none is not None:
        return
    prompts: Sequence[int | None] = recorded["prompt"].to_pylist()
    samples: Sequence[int | None] = recorded["sample"].to_pylist()
    for row, (prompt, sample) in enumerate(zip(prompts, samples, strict=True)):
        plan = plans.get(prompt, sample)
        if plan is None:
            continue
        joined["planned_turns"][row] = len(plan.turns)
        joined["planned_tool_calls"][row] = plan.tool_calls
        joined["planned_generated_tokens"][row] = plan.generated_tokens
        joined["planned_observation_tokens"][row] = plan.observation_tokens
        joined["planned_tool_ns"][row] = sum(planned_ns(turn.latency_s) for turn in plan.turns)


def _earliest(starts: dict[str, tuple[int, str, int]], row: Mapping[str, Any], closed: set[str]) -> None:
    name = row["trajectory_id"]
    if name not in closed and (name not in starts or row["start_ns"] < starts[name][0]):
        starts[name] = (row["start_ns"], row["host"], row["pid"])


def _sum(values: Any) -> int | None:
    """The sum; None when one of them is unknown (a part of a count is not the count)."""
    known = list(values)
    return None if any(value is None for value in known) else sum(known)
