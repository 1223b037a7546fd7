"""Plan adherence: whether every trajectory did what its plan asked, from what was recorded and the plan drawn again.

MEASURING.md, "Plan adherence": content must be 100 % over all started trajectories; timing is told apart from it.

Mock tools are imposed by the plan, faults included: a latency or an outcome that it did not ask for is a deviation.
All other tools take what they take and end as they end: that is data (`results.tool_figures`), not a deviation. Where
such a call had a latency imposed nevertheless, as in a replay, its timing is compared with that. A call of a replay
that got no recording had nothing imposed: that is a deviation.
"""

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.counters import CounterCheck, check_counters
from results.joins import OPEN
from results.plans import CACHED_PLANS, Plans, planned_ns
from results.stats import quantile
from results.store import RunTables
from results.tracks import floats
from results.trained import may_be_cut
from workloads.deep_research.faults import status_of
from workloads.deep_research.plan import TrajectoryPlan, Turn

MOCK = "mock"  # the tools that a plan imposes
REPLAY = "replay"  # the tools that a trace imposes
OK = "ok"  # the status of a call that answered
UNANSWERED = ("timeout", "cancelled")  # of calls that the agent or something else ended, whatever the trace had
SHOWN = 20  # deviations told in words
DISTORTED_NS = 50_000_000  # an overshoot that never distorts
DISTORTED_SHARE = 0.05  # of the planned latency: nor does this

_COLUMNS = (
    *("trajectory_id", "prompt", "sample", "status", "end_ns", "turns", "tool_calls"),
    *("prompt_tokens", "generated_tokens", "observation_tokens", "step_consumed"),
)
_TURN_COLUMNS = ("turn", "prompt_tokens", "generated_tokens")
_CALL_COLUMNS = ("turn", "tool", "status", "planned_ns", "observation_tokens", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adherence:
    """What was done against what was planned. Times in ns; None where there is nothing to tell it from."""

    why_none: str | None
    """Why nothing was compared (nothing is planned, no trajectory started), else None."""
    started: int
    """Trajectories that began, retries among them."""
    unfinished: int
    """Of those, compared only up to their last turn: still open or cancelled, or failed after the last step ended."""
    adhering: int
    """Of those that began, trajectories whose content is as planned."""
    turns: int
    """Replies compared."""
    tool_calls: int
    """Tool calls compared."""
    imposed: bool
    """Whether the plan says the latencies and outcomes of the tool calls too: mock tools."""
    planned_faults: int
    """Finished calls that were planned to fail or to answer badly."""
    failed_calls: int
    """Finished calls that did not end as planned (a deviation, whatever stood in for the answer); of tools that the
    plan does not impose, those that did not end as `ok` (no deviation)."""
    not_replayed: int | None
    """Calls of a replay that got no recording: the trace has none, or the tool server was gone. None: no replay."""
    generated_tokens: int
    """Ids the engine returned in them."""
    deviation_count: int
    """Deviations in all."""
    deviations: tuple[str, ...]
    """The first 20 of them, in words."""
    consumed: int
    """Trajectories that a step trained on."""
    consumed_digest: str | None
    """Names the plans of the consumed trajectories, in any order (async selects)."""
    consumed_generated_tokens: int | None
    """Ids the engine returned for the consumed trajectories of the steps whose loss mask is known, and that are to be
    trained: none of a trajectory that did not end well, and where thoughts are stripped, what was left of them."""
    loss_tokens: int | None
    """Sum of the trainer's loss mask over the same steps."""
    loss_steps_unknown: int
    """Steps that trained and did not record the sum of their loss mask."""
    engine_tokens: CounterCheck
    """The engines' own token counters against the replies recorded here."""
    calls_timed: int
    """Tool calls that ended as planned, whose latency was compared."""
    overshoot_p50_ns: int | None
    """Median of recorded - planned latency."""
    overshoot_p99_ns: int | None
    """99th percentile of recorded - planned latency (order statistic)."""
    finished_calls: int
    """Tool calls that were not cut from outside, whatever their status."""
    undercut: int
    """Of the finished calls, those that took less than planned: must be 0."""
    timing_distorted: bool | None
    """More than 1 % of the calls passed their plan by more than max(50 ms, 5 % of the planned latency)."""

    @property
    def content_ratio(self) -> float | None:
        """Share of the started trajectories whose content is as planned: must be 1.0."""
        return None if self.why_none is not None else self.adhering / self.started

    @property
    def loss_tokens_match(self) -> bool | None:
        """Whether the trainer's loss mask counts the tokens that the engine returned and that are to be trained.

        False as soon as the recorded steps differ; True only when every step that trained was recorded; else None.
        """
        if self.loss_tokens is None or self.consumed_generated_tokens is None:
            return None
        if self.loss_tokens != self.consumed_generated_tokens:
            return False
        return True if self.loss_steps_unknown == 0 else None


class _Groups:
    """The rows of a table by trajectory, each group in the order of its turns."""

    def __init__(self, table: pa.Table, columns: Sequence[str]) -> None:
        keys = [("trajectory_id", "ascending"), ("turn", "ascending"), ("start_ns", "ascending")]
        self._table = table.sort_by(keys).select([*columns]).combine_chunks()
        names = table["trajectory_id"].value_counts().to_pylist()
        self._where: dict[str, tuple[int, int]] = {}
        begin = 0
        for name, count in sorted((entry["values"], entry["counts"]) for entry in names):
            self._where[name] = (begin, count)
            begin += count

    def of(self, names: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The rows of each; empty where it has none. They are made together: what a table's rows cost is the call."""
        places = [self._where.get(name, (0, 0)) for name in names]
        wanted = np.concatenate([np.arange(begin, begin + count) for begin, count in places])
        rows = iter(self._table.take(pa.array(wanted, pa.int64())).to_pylist())
        return [list(islice(rows, count)) for _, count in places]


def check_adherence(run: RunTables) -> Adherence:
    """Compares every started trajectory of a run with its plan."""
    plans = Plans(run.spec)
    trajectories = run.tables["trajectories"]
    last_end_ns: int | None = pc.max(run.tables["steps"]["end_ns"]).as_py()
    why_none = plans.why_none or (None if trajectories.num_rows else "no trajectory started")
    tally = _Tally(imposed=run.spec.tools == MOCK, replay=run.spec.tools == REPLAY)
    if why_none is None:
        turns, calls = _Groups(run.tables["turns"], _TURN_COLUMNS), _Groups(run.tables["tool_calls"], _CALL_COLUMNS)
        for batch in trajectories.select([*_COLUMNS]).to_batches(max_chunksize=CACHED_PLANS):
            names = batch.column("trajectory_id").to_pylist()
            for row, replies, called in zip(batch.to_pylist(), turns.of(names), calls.of(names), strict=True):
                if row["step_consumed"] is not None:
                    plans.digest(row["prompt"], row["sample"])  # while the plan is at hand
                tally.compare(row, plans, replies, called, last_end_ns)
    consumed_tokens, loss_tokens, loss_unknown = _loss_tokens(run)
    over = tally.overshoots_ns
    p50, p99 = quantile(over, 0.5), quantile(over, 0.99)
    beyond = quantile(tally.excesses_ns, 0.99)
    return Adherence(
        why_none=why_none,
        started=trajectories.num_rows,
        unfinished=tally.unfinished,
        adhering=tally.adhering,
        turns=tally.turns,
        tool_calls=tally.tool_calls,
        imposed=tally.imposed,
        planned_faults=tally.planned_faults,
        failed_calls=tally.failed_calls,
        not_replayed=_not_replayed(run),
        generated_tokens=tally.generated_tokens,
        deviation_count=tally.deviation_count,
        deviations=tuple(tally.deviations),
        consumed=trajectories["step_consumed"].length() - trajectories["step_consumed"].null_count,
        consumed_digest=consumed_digest(run, plans=plans),
        consumed_generated_tokens=consumed_tokens,
        loss_tokens=loss_tokens,
        loss_steps_unknown=loss_unknown,
        engine_tokens=check_counters(run),
        calls_timed=len(over),
        overshoot_p50_ns=None if p50 is None else int(p50),
        overshoot_p99_ns=None if p99 is None else int(p99),
        finished_calls=tally.finished_calls,
        undercut=tally.undercut,
        timing_distorted=None if beyond is None else beyond > 0,
    )


def consumed_digest(run: RunTables, steps: Collection[int] | None = None, *, plans: Plans | None = None) -> str | None:
    """Names the plans of the trajectories that `steps` (None: all) trained on, whatever their order.

    None: nothing was consumed, or one of them has no plan. `plans`: of the run, where some were drawn already.
    """
    plans = Plans(run.spec) if plans is None else plans
    if plans.why_none is not None:
        return None
    lives = run.tables["trajectories"].select(["prompt", "sample", "step_consumed"])
    consumed = pc.is_valid(lives["step_consumed"])
    if steps is not None:
        consumed = pc.and_(consumed, pc.is_in(lives["step_consumed"], pa.array([*steps], pa.int64())))
    lives = lives.filter(consumed)
    digests = []
    for prompt, sample in zip(lives["prompt"].to_pylist(), lives["sample"].to_pylist(), strict=True):
        digest = plans.digest(prompt, sample)
        if digest is None:
            return None
        digests.append(digest)
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()[:12] if digests else None


def _loss_tokens(run: RunTables) -> tuple[int | None, int | None, int]:
    """(tokens to be trained, loss-mask sum) over the steps with a known loss mask, and the number of others."""
    # Where nothing is taken out, the engine's own count is the stronger check.
    counted = "loss_tokens" if may_be_cut(run) else "generated_tokens"
    lives = run.tables["trajectories"].select(["step_consumed", "status", counted])
    lives = lives.filter(pc.is_valid(lives["step_consumed"]))
    tokens = np.where(pc.equal(lives["status"], "ok").to_numpy(), floats(lives[counted]), 0.0)
    numbers, place = np.unique(lives["step_consumed"].to_numpy(), return_inverse=True)
    sums, sizes = np.bincount(place, weights=tokens).tolist(), np.bincount(place).tolist()
    by_step = dict(zip(numbers.tolist(), zip(sums, sizes, strict=True), strict=True))
    loss = 0
    engine: int | None = 0
    steps = run.tables["steps"].select(["step", "trajectories", "loss_tokens"]).to_pylist()
    known = [row for row in steps if row["loss_tokens"] is not None]
    for row in known:
        loss += row["loss_tokens"]
        total, size = by_step.get(row["step"], (0.0, 0))
        if engine is None or size != row["trajectories"] or math.isnan(total):
            engine = None  # a trajectory of the step is not on record: its tokens are not known
        else:
            engine += int(total)
    trained = [sum((row["trajectories"] or 0) > 0 for row in rows) for rows in (steps, known)]
    unknown = trained[0] - trained[1]
    return (engine, loss, unknown) if known else (None, None, unknown)


class _Tally:
    """What the comparison found, so far."""

    def __init__(self, *, imposed: bool, replay: bool) -> None:
        self.imposed = imposed
        self.replay = replay
        self.planned_faults = 0
        self.unfinished = self.adhering = self.turns = self.tool_calls = self.generated_tokens = 0
        self.failed_calls = self.finished_calls = self.undercut = 0
        self.deviation_count = 0
        self.deviations: list[str] = []
        self.overshoots_ns: list[int] = []
        self.excesses_ns: list[float] = []  # beyond what is allowed to each call

    def compare(
        self,
        row: dict[str, Any],
        plans: Plans,
        turns: list[dict[str, Any]],
        calls: list[dict[str, Any]],
        last_end_ns: int | None,
    ) -> None:
        """One trajectory against its plan."""
        whole = not _unfinished(row, last_end_ns)
        self.unfinished += not whole
        replies = [turn for turn in turns if turn["generated_tokens"] is not None]
        self.turns += len(replies)
        self.tool_calls += len(calls)
        self.generated_tokens += sum(turn["generated_tokens"] for turn in replies)
        plan = plans.get(row["prompt"], row["sample"])
        if plan is None:
            found = ["it is not known which plan it follows"]
        else:
            found = list(_content(row, plan, replies, calls, whole=whole, imposed=self.imposed))
            found += _missing(calls) if self.replay else ()
            self._time(plan, calls, whole=whole)
        self.adhering += not found
        self.deviation_count += len(found)
        for what in found[: SHOWN - len(self.deviations)]:
            self.deviations.append(f"{row['trajectory_id']}: {what}")

    def _time(self, plan: TrajectoryPlan, calls: list[dict[str, Any]], *, whole: bool) -> None:
        for number, call in enumerate(calls):
            if _cut(calls, number, whole=whole):
                continue
            number_of_turn = call["turn"]
            known = number_of_turn is not None and 0 <= number_of_turn < plan.tool_calls
            turn = plan.turns[number_of_turn] if known else None
            fine = call["status"] == _outcome(turn, imposed=self.imposed)
            self.finished_calls += 1
            self.failed_calls += not fine
            if turn is None:
                continue
            self.planned_faults += self.imposed and turn.fault is not None
            planned = planned_ns(turn.latency_s) if self.imposed else call["planned_ns"]
            if planned is None or not (fine or self.imposed):
                continue
            over = call["end_ns"] - call["start_ns"] - planned
            # A call that failed at once took less than planned too, but says nothing of the tools' own latency.
            self.undercut += over < 0
            if not fine:
                continue
            self.overshoots_ns.append(over)
            self.excesses_ns.append(over - max(DISTORTED_NS, DISTORTED_SHARE * planned))


def _not_replayed(run: RunTables) -> int | None:
    if run.spec.tools != REPLAY:
        return None
    calls = run.tables["tool_calls"].select(["turn", "tool", "status", "planned_ns"])
    return len(_missing(calls.filter(calls["planned_ns"].is_null()).to_pylist()))


def _missing(calls: Sequence[dict[str, Any]]) -> list[str]:
    """The calls of a replay that were answered without a recording: nothing was imposed on them."""
    return [
        f"turn {call['turn']}: {call['tool']} was not replayed, it ended as {call['status'] or 'unknown'}"
        for call in calls
        if call["planned_ns"] is None and call["status"] not in UNANSWERED
    ]


def _outcome(turn: Turn | None, *, imposed: bool) -> str:
    """The status that a call of this turn is to end with."""
    return status_of(turn.fault) if imposed and turn is not None else OK


def _unfinished(row: dict[str, Any], last_end_ns: int | None) -> bool:
    """Whether it ended from outside: what it did not get to is no deviation."""
    if row["status"] in (OPEN, "cancelled"):
        return True
    return row["status"] != "ok" and last_end_ns is not None and row["end_ns"] > last_end_ns


def _cut(calls: list[dict[str, Any]], number: int, *, whole: bool) -> bool:
    """Whether this call was ended from outside: the last one of a trajectory that was, and no answer came."""
    last = calls[number]
    return not whole and number == len(calls) - 1 and last["observation_tokens"] is None and last["status"] != OK


def _content(
    row: dict[str, Any],
    plan: TrajectoryPlan,
    replies: list[dict[str, Any]],
    calls: list[dict[str, Any]],
    *,
    whole: bool,
    imposed: bool,
) -> Iterator[str]:
    planned = len(plan.turns)
    if whole and row["status"] != "ok":
        yield f"ended as {row['status']} after {len(replies)} of {planned} turns"
    elif (whole and len(replies) != planned) or len(replies) > planned:
        yield f"{len(replies)} turns, planned {planned}"
    most = min(len(replies), plan.tool_calls)
    least = most if whole or len(replies) > plan.tool_calls else max(len(replies) - 1, 0)
    if not least <= len(calls) <= most:
        yield f"{len(calls)} tool calls after {len(replies)} turns, planned {most}"
    if row["prompt_tokens"] != plan.prompt_tokens and (whole or replies):
        yield f"prompt of {row['prompt_tokens']} tokens, planned {plan.prompt_tokens}"
    context = plan.prompt_tokens
    for number, (reply, turn) in enumerate(zip(replies, plan.turns, strict=False)):
        if reply["turn"] != number:
            yield f"turn {reply['turn']} was recorded where turn {number} was due"
            break  # all that follow are shifted: one deviation, not one for each
        if reply["generated_tokens"] != turn.generated_tokens:
            yield f"turn {number}: {reply['generated_tokens']} generated tokens, planned {turn.generated_tokens}"
        if reply["prompt_tokens"] != context:
            yield f"turn {number}: {reply['prompt_tokens']} tokens were sent, planned {context}"
        context += turn.generated_tokens + turn.observation_tokens
    for number, (call, turn) in enumerate(zip(calls, plan.turns, strict=False)):
        cut = _cut(calls, number, whole=whole)
        if call["turn"] != number:
            yield f"a tool call of turn {call['turn']} was recorded where that of turn {number} was due"
            break
        if call["tool"] != turn.tool:
            yield f"turn {number}: called {call['tool']}, planned {turn.tool}"
        if imposed and call["planned_ns"] != planned_ns(turn.latency_s):
            yield f"turn {number}: offered {call['planned_ns']} ns of tool time, planned {planned_ns(turn.latency_s)}"
        outcome = _outcome(turn, imposed=True)
        if imposed and call["status"] != outcome and not cut:
            yield f"turn {number}: {call['tool']} ended as {call['status'] or 'unknown'}, planned {outcome}"
        if call["observation_tokens"] != turn.observation_tokens and not cut:
            yield (f"turn {number}: {call['observation_tokens']} observation tokens, planned {turn.observation_tokens}")
    yield from _totals(row, replies, calls)


def _totals(row: dict[str, Any], replies: list[dict[str, Any]], calls: list[dict[str, Any]]) -> Iterator[str]:
    """The trajectory's own sums against its turns and calls: both were recorded, apart from each other."""
    if row["status"] == OPEN:
        return
    sums = {
        "turns": len(replies),
        "tool_calls": len(calls),
        "generated_tokens": sum(reply["generated_tokens"] for reply in replies),
        "observation_tokens": sum(call["observation_tokens"] or 0 for call in calls),
    }
    for name, total in sums.items():
        if row[name] != total:
            yield f"its {name} is {row[name]}, its parts have {total}"
