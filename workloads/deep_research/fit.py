"""A preset fitted to recorded tool calls: how many a trajectory makes, of which tool, how long, and what fails."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.protocol.errors import SpecError
from workloads.deep_research.faults import EMPTY, ERROR, REFUSED, TIMEOUT, Fault
from workloads.deep_research.fit_law import Floats, LawFit, discrete, empirical, fit_law
from workloads.deep_research.laws import Law, LogNormal
from workloads.deep_research.presets import BROWSE, SEARCH, Preset
from workloads.deep_research.trace import Trace

CALL_COUNTS = "calls_per_trajectory"
"""Fact of a trace that was made of a run: {calls: trajectories that made so many}, of those that came to their end."""

BYTES_PER_TOKEN = 4  # of English text, about
_OK = "ok"
_KIND = {"timeout": TIMEOUT, "error": ERROR, "refused": REFUSED, "empty": EMPTY, "not_found": EMPTY}
_FAULT_VALUES = 64  # of the latency law of a kind of failure
_FEW_TRAJECTORIES = 30
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share with its 95 % interval (Wilson 1927, Journal of the American Statistical Association 22)."""

    count: int
    of: int

    @property
    def value(self) -> float:
        """The share."""
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end."""
        p, n = self.value, self.of
        centre, spread = p + _Z**2 / (2 * n), _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        low, high = (centre - spread) / (1 + _Z**2 / n), (centre + spread) / (1 + _Z**2 / n)
        # Exactly 0 and 1 at the ends, where rounding would leave a bit.
        return (0.0 if self.count == 0 else max(low, 0.0), 1.0 if self.count == n else min(high, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFit:
    """One tool: its share of the calls, the latency (s) of those that went well, and how often which failure came."""

    tool: str
    share: Rate
    latency_s: LawFit
    failures: Mapping[str, Rate]  # by kind of fault


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFit:
    """A preset and what it rests on; `notes` say what was assumed, left out or is too little."""

    preset: Preset
    calls: int
    trajectories: int
    calls_per_trajectory: Mapping[int, int]
    tools: tuple[ToolFit, ...]
    lengths: Mapping[str, LawFit]  # in tokens: prompt, generated, observation, where they are known
    notes: tuple[str, ...]


def fit_trace(
    trace: Trace,
    *,
    name: str,
    base: Preset,
    lengths: Mapping[str, Sequence[int]] | None = None,
    fit_lengths: bool = True,
    seed: int = 1,
) -> TraceFit:
    """Fits a preset to a trace.

    Args:
        name: of the preset.
        base: its lengths stand where none are known: no trace knows the model's.
        lengths: tokens of `prompt` (per trajectory) and `generated` (per turn), where a run knows them.
        fit_lengths: whether lengths are fitted where they are known; else all of them are those of `base`.
        seed: of the simulations behind the p-values.

    Raises:
        SpecError: no call of a tool that a preset has.
    """
    notes: list[str] = []
    table = _usable(trace, notes)
    tools = tuple(
        _tool(tool, part, table.num_rows, notes, seed)
        for tool in (SEARCH, BROWSE)
        if (part := table.filter(pc.equal(table["tool"], tool))).num_rows
    )
    counts = _call_counts(trace, table, notes)
    observed, estimated = _observations(table, notes) if fit_lengths else (None, False)
    given = (lengths or {}) if fit_lengths else {}
    known = {name: np.asarray(values, dtype=np.float64) for name, values in given.items() if len(values)}
    if observed is not None:
        known["observation"] = observed
    fitted = {name: fit_law(values, seed=seed) for name, values in known.items()}
    laws = {name: fit.law for name, fit in fitted.items()}
    if estimated:
        laws["observation"] = _not_below(laws["observation"], base.observation.least)
    if not fit_lengths:
        notes.append(f"all lengths are those of the preset {base.name}, as asked for")
    for each in ("prompt", "generated", "observation"):
        if each not in fitted and fit_lengths:
            notes.append(f"{each} lengths are not recorded: those of the preset {base.name} stand")
    calls = [count for count, times in counts.items() for _ in range(times)]
    if len(calls) < _FEW_TRAJECTORIES:
        notes.append(
            f"too few trajectories to know how many calls one makes: {len(calls)} of at least {_FEW_TRAJECTORIES}"
        )
    searches = sum(each.share.count for each in tools if each.tool == SEARCH)
    preset = replace(
        base,
        name=name,
        least_calls=min(calls),
        most_calls=max(calls),
        calls=discrete(calls),
        search_share=searches / table.num_rows,
        latency_s={each.tool: each.latency_s.law for each in tools},
        faults={each.tool: _faults(each, table) for each in tools if each.failures},
        **laws,
    )
    return TraceFit(
        preset=preset,
        calls=table.num_rows,
        trajectories=len(calls),
        calls_per_trajectory=counts,
        tools=tools,
        lengths=fitted,
        notes=tuple(notes),
    )


def _usable(trace: Trace, notes: list[str]) -> pa.Table:
    """The calls that say something of a preset's tools."""
    table = trace.table
    scale = trace.facts.get("latency_scale", 1.0)
    if scale != 1.0:
        notes.append(f"it was recorded with latency scale {scale}: latencies are fitted as they were recorded")
    if not trace.complete:
        notes.append(f"its recording was killed; calls of it that can't be read: {trace.damaged_lines}")
    known = pc.is_in(table["tool"], pa.array([SEARCH, BROWSE]))
    others = Counter(table.filter(pc.invert(known))["tool"].to_pylist())
    if others:
        said = ", ".join(f"{tool} ({count})" for tool, count in sorted(others.items()))
        notes.append(f"calls of tools that a preset does not have are left out: {said}")
    table = table.filter(known)
    judged = pc.is_in(table["status"], pa.array([_OK, *_KIND]))
    cut = table.num_rows - (pc.sum(judged).as_py() or 0)
    if cut:
        notes.append(f"calls without an outcome (cancelled or unknown) are left out: {cut}")
    table = table.filter(judged)
    if table.num_rows == 0:
        raise SpecError(f"{trace.path}: has no call of {SEARCH} or {BROWSE} to fit a preset to")
    return table


def _tool(tool: str, table: pa.Table, calls: int, notes: list[str], seed: int) -> ToolFit:
    went_well = table.filter(pc.equal(table["status"], _OK))
    if went_well.num_rows == 0:
        notes.append(f"{tool}: no call went well; its usual latency is that of its failures")
        went_well = table
    kinds = Counter(_KIND[status] for status in table["status"].to_pylist() if status != _OK)
    return ToolFit(
        tool=tool,
        share=Rate(count=table.num_rows, of=calls),
        latency_s=fit_law(_floats(went_well["latency_s"]), seed=seed),
        failures={kind: Rate(count=count, of=table.num_rows) for kind, count in sorted(kinds.items())},
    )


def _faults(fit: ToolFit, table: pa.Table) -> dict[str, Fault]:
    """The rates of a tool's failures, each with the latencies that it had."""
    mine = table.filter(pc.equal(table["tool"], fit.tool))
    found = {}
    for kind, rate in fit.failures.items():
        statuses = [status for status, its_kind in _KIND.items() if its_kind == kind]
        failed = mine.filter(pc.is_in(mine["status"], pa.array(statuses)))
        found[kind] = Fault(rate=rate.value, latency_s=empirical(_floats(failed["latency_s"]), _FAULT_VALUES))
    return found


def _call_counts(trace: Trace, table: pa.Table, notes: list[str]) -> dict[int, int]:
    facts = trace.facts.get(CALL_COUNTS)
    if isinstance(facts, Mapping) and facts:
        try:
            return {int(calls): int(times) for calls, times in sorted(facts.items(), key=lambda each: int(each[0]))}
        except (TypeError, ValueError):
            raise SpecError(f"{trace.path}: its fact {CALL_COUNTS} is not a count of trajectories by calls") from None
    notes.append("trajectories are known by their calls: those that made none, and those cut short, can't be told")
    by_trajectory = Counter(table["trajectory_id"].to_pylist())
    return dict(sorted(Counter(by_trajectory.values()).items()))


def _observations(table: pa.Table, notes: list[str]) -> tuple[Floats | None, bool]:
    """(tokens of the answers of calls that went well, None: not known; whether they are estimated)."""
    table = table.filter(pc.equal(table["status"], _OK))
    tokens = table["observation_tokens"].drop_null()
    if len(tokens):
        return _floats(tokens), False
    texts = table["text"].drop_null()
    if len(texts) == 0:
        return None, False
    notes.append(f"observation lengths are estimated from the text: {BYTES_PER_TOKEN} bytes a token")
    return np.ceil(_floats(pc.binary_length(texts)) / BYTES_PER_TOKEN), True


def _not_below(law: Law, least: float) -> Law:
    """The law with nothing below `least`: the text's template, which is not in the trace, is that long."""
    if law.least >= least:
        return law
    if isinstance(law, LogNormal):
        return replace(law, least=least, cap=max(law.cap, least))
    raised = [max(value, least) for value in law.values]
    first = raised.count(least) - 1 if least in raised else 0
    return replace(law, values=tuple(raised[first:]), shares=law.shares[first:])


def _floats(column: Any) -> Floats:
    return np.asarray(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy(), float
    )
