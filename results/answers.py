"""How the trajectories of a live load ended, and what their answers were worth: from the reward spans."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.protocol.scalars import whole
from harness.protocol.spec import Load
from results.store import RunTables

NATIVE_NAME = "reward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Trajectories whose questions take the same number of hops (None: the data set does not say)."""

    hops: int | None
    trajectories: int
    right: int
    reward_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Of all trajectories of the run that were judged. `why_none` says why there are none, else None."""

    why_none: str | None = None
    trajectories: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)  # answered | turns | context | silent -> trajectories
    right: int | None = None  # answered exactly; None: no accepted answers are known
    known: int = 0  # trajectories for which it is known
    reward_mean: float | None = None
    groups: tuple[Group, ...] = ()
    turns: int = 0
    calls: int = 0  # that replies wrote, finish and malformed ones included
    tool_calls: int = 0  # that were made
    parse_errors: int = 0  # of them, the ones that could not be made
    thoughts: int = 0  # replies with a think block
    cut_replies: int = 0  # that did not end by themselves
    cut_observations: int = 0  # shown in part
    untrained_tokens: int = 0  # generated in replies whose think block was stripped


def answers(run: RunTables) -> Answers:
    """What a live run's trajectories came to."""
    if run.spec.load is not Load.LIVE:
        return Answers(why_none=f"load {run.spec.load.value}: the plan decides, nothing is answered")
    judged = _judged(run)
    lives = run.tables["trajectories"]
    ok = pc.and_(pc.equal(lives["status"], "ok"), pc.is_in(lives["trajectory_id"], pa.array(list(judged), pa.string())))
    rows: list[dict[str, Any]] = lives.filter(ok).to_pylist()
    if not rows:
        return Answers(why_none="no trajectory was judged")
    said = [judged[row["trajectory_id"]] for row in rows]
    known = [each for each in said if isinstance(each.get("right"), bool)]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]

    def total(name: str) -> int:
        return sum(whole(each.get(name), 0) or 0 for each in said)

    return Answers(
        trajectories=len(rows),
        ended=dict(Counter(str(each.get("ended")) for each in said).most_common()),
        right=sum(each["right"] for each in known) if known else None,
        known=len(known),
        reward_mean=sum(rewards) / len(rewards) if rewards else None,
        groups=_groups(rows, said),
        turns=sum(row["turns"] for row in rows),
        calls=total("calls"),
        tool_calls=sum(row["tool_calls"] for row in rows),
        parse_errors=total("parse_errors"),
        thoughts=total("thoughts"),
        cut_replies=total("cut_replies"),
        cut_observations=total("cut_observations"),
        untrained_tokens=total("untrained_tokens"),
    )


MOST = 0.5  # share above which what should be the exception is the rule


def doubts(found: Answers) -> tuple[str, ...]:
    """Why the answers may say more about limits and formats than about the policy; none where nothing hints at it."""
    said = []
    if found.turns and found.cut_replies > MOST * found.turns:
        said.append(
            f"{_of(found.cut_replies, found.turns, 'reply', 'replies')} cut, by --turn-tokens or the end of the"
            " context: what they were about to say is not known"
        )
    if found.trajectories and not found.calls:
        said.append("no reply had a call in it")
    elif found.parse_errors > MOST * found.calls:
        said.append(f"{_of(found.parse_errors, found.calls, 'call', 'calls')} written in a form that can't be made")
    if found.trajectories and not found.ended.get("answered"):
        said.append("no trajectory gave an answer")
    return tuple(said)


def _of(count: int, of: int, one: str, many: str) -> str:
    if count == of:
        return f"the only {one} was" if of == 1 else f"all {of:,} {many} were"
    return f"{count:,} of {of:,} {many} {'was' if count == 1 else 'were'}"


def _judged(run: RunTables) -> dict[str, dict[str, Any]]:
    """What was recorded of the judging, by trajectory."""
    found: dict[str, dict[str, Any]] = {}
    columns = ("native_name", "trajectory_id", "attributes_json")
    few = ("native_name", "trajectory_id")
    spans = run.where("spans", columns, lambda batch: pc.equal(batch.column("native_name"), NATIVE_NAME), text=few)
    for span in spans.to_pylist():
        if span["trajectory_id"] and span["attributes_json"]:
            found[span["trajectory_id"]] = json.loads(span["attributes_json"])
    return found


def _groups(rows: list[dict[str, Any]], said: list[dict[str, Any]]) -> tuple[Group, ...]:
    groups = []
    told = [whole(each.get("hops"), 0) for each in said]
    for hops in sorted(set(told), key=lambda value: (value is None, value or 0)):
        mine = [(row, each) for row, each, its in zip(rows, said, told, strict=True) if its == hops]
        groups.append(
            Group(
                hops=hops,
                trajectories=len(mine),
                right=sum(each.get("right") is True for _, each in mine),
                reward_mean=sum(row["reward"] or 0.0 for row, _ in mine) / len(mine),
            )
        )
    return tuple(groups)
