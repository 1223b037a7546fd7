"""Charts as rows of bars: what the page draws of the accounts, the step, the energy and the staleness of each run.

Lengths are shares of the chart's own width, so that a chart fits a phone and a desk alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.protocol.spec import Placement
from reports import style
from reports.case import Case
from reports.markdown import number, percent, seconds
from reports.tables import classes, in_order
from results.bounds import bounds
from results.energy import ClassEnergy
from results.staleness_counts import staleness_counts

_MOST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a bar: what it is coloured as, where it begins and how long it is (shares), and what it says."""

    name: str
    begin: float
    length: float
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: its name, its bar, and what stands at its end."""

    name: str
    parts: tuple[Part, ...]
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart. `why` stands in its place where there are no rows. `keys`: names and labels of its colours."""

    title: str
    how: str
    rows: tuple[Row, ...]
    keys: tuple[tuple[str, str], ...] = ()
    why: str = ""
    mark: tuple[float, str] | None = None  # a line across all rows: where (share), and what it is


def time_waterfall(case: Case) -> Chart:
    """The exposed parts of a step, one after the other, and what the step could win without each."""
    title = "Where a step goes, and what it could win"
    how = "What the step really waits for, in the order of the account. At the right: speed-up without it, at most."
    account = case.figures.account
    if account is None:
        return Chart(title=title, how=how, rows=(), why=case.no_window)
    found = bounds(case.run.spec, account)
    rows, begin = [], 0.0
    for each in found.exposed:
        gain = "–" if each.speed_up is None else f"{number(each.speed_up)}x"
        text = f"{style.duration(each.seconds)} · {percent(each.share)} · {gain}"
        part = Part(name=each.name, begin=begin, length=each.share, said=f"{style.label(each.name)}: {text}")
        rows.append(Row(name=style.label(each.name), parts=(part,), value=text))
        begin += each.share
    return Chart(
        title=f"A step of {style.duration(found.step_s)}: {title[0].lower()}{title[1:]}", how=how, rows=tuple(rows)
    )


def energy_waterfall(case: Case) -> Chart:
    """The joules of each class of each pool, one after the other; what is not known says why."""
    title = "Where the energy went"
    how = "Joules of the steady window by class, pool by pool, scaled to the energy counter. ± as far as it is known."
    found = case.figures.energy
    if found is None:
        return Chart(title=title, how=how, rows=(), why=case.no_window)
    if not found.classes:
        return Chart(title=title, how=how, rows=(), why=found.note or "no pool has a GPU")
    whole = found.joules or sum(each.joules or 0.0 for each in found.classes)
    rows, begin = [], 0.0
    for each in found.classes:
        share = (each.joules or 0.0) / whole if whole else 0.0
        rows.append(_energy_row(each, begin, share))
        begin += share
    total = "" if found.joules is None else f" {_joules(found.joules)} in all: {title.lower()}"
    verdict = f" Verdict on the sensors: {found.verdict}." if found.verdict else ""
    return Chart(title=total.strip() or title, how=how + verdict, rows=tuple(rows))


def account_stacks(case: Case) -> Chart:
    """Shares of the steady window per unit."""
    title = "Where the time of each unit went"
    account = case.figures.account
    if account is None:
        return Chart(title=title, how="", rows=(), why=case.no_window)
    how = (
        f"Share of the steady window ({seconds(account.window_s)}); a unit is the smallest part of a pool that works "
        f"as one (granularity: {account.granularity})."
    )
    units = account.units[:_MOST_ROWS]
    if len(units) < len(account.units):
        how += f" The first {len(units)} of {len(account.units)} units."
    names = classes([unit.seconds for unit in units])
    rows = [
        Row(
            name=unit.unit,
            parts=_stack({name: unit.seconds.get(name, 0.0) for name in names}, sum(unit.seconds.values())),
            value=f"{percent(unit.coverage)} named",
        )
        for unit in units
    ]
    return Chart(title=title, how=how, rows=tuple(rows), keys=_keys(names))


def step_stacks(cases: Sequence[Case], names: Sequence[str]) -> Chart:
    """The average step of each run, by phase of the track that trains; all on one scale."""
    title = "The average step, run by run" if len(cases) > 1 else "The average step"
    how = "Seconds of a step by phase, on the track of the pool that trains, over the steady window."
    shown = [(name, case) for name, case in zip(names, cases, strict=True) if case.figures.phases]
    if not shown:
        return Chart(title=title, how=how, rows=(), why=cases[0].no_window)
    totals = {name: sum(row.mean_s for row in case.figures.phases) for name, case in shown}
    longest = max(totals.values()) or 1.0
    rows = [
        Row(
            name=name,
            parts=_stack({row.phase: row.mean_s for row in in_order(case.figures.phases)}, longest),
            value=style.duration(totals[name]),
            note=f"n = {len(case.steps)}",
        )
        for name, case in shown
    ]
    phases = dict.fromkeys(row.phase for _, case in shown for row in in_order(case.figures.phases) if row.mean_s > 0)
    missing = [f"{name}: {case.no_window}" for name, case in zip(names, cases, strict=True) if not case.figures.phases]
    return Chart(title=title, how=" ".join([how, *missing]), rows=tuple(rows), keys=_keys(list(phases)))


def staleness_bars(case: Case) -> Chart:
    """How many trained trajectories were how stale at their start; those beyond the bound stand out."""
    bound = case.run.spec.max_staleness
    windowed = case.figures.window is not None
    title = "Staleness at start"
    how = (
        f"Trajectories trained on in the {'steady window' if windowed else 'run'}, by the versions between their first "
    )
    how += f"token and their training. Bound asked for: {bound}."
    counts = staleness_counts(case.run, case.steps if windowed else None)
    if not counts:
        return Chart(title=title, how=how, rows=(), why="no trained trajectory has its versions on record")
    whole, most = sum(counts.values()), max(counts.values())
    rows = []
    for version in range(min(0, *counts), max(*counts, bound) + 1):
        count = counts.get(version, 0)
        kind = "weight_sync" if version > bound else "generating"
        text = f"{count:,} · {percent(count / whole)}"
        said = f"staleness {version}: {text}" + (" (beyond the bound)" if version > bound else "")
        part = Part(name=kind, begin=0.0, length=count / most, said=said)
        note = "beyond the bound" if version > bound else ("allowed" if version == bound else "")
        rows.append(Row(name=str(version), parts=(part,) if count else (), value=text, note=note))
    keys = (("generating", "within the bound"), ("weight_sync", "beyond it: not counted as goodput"))
    return Chart(title=title, how=how, rows=tuple(rows), keys=keys)


def _energy_row(each: ClassEnergy, begin: float, share: float) -> Row:
    pool = "shared pool" if each.pool == "both" else f"{each.pool} pool"
    name = f"{pool}: {style.label(each.name)}"
    if each.joules is None:
        return Row(name=name, parts=(), value="–", note=each.note or "not known")
    text = _joules(each.joules)
    if each.uncertainty_joules is not None:
        text += f" ± {_joules(each.uncertainty_joules)}"
    text += f" · {percent(share)}"
    return Row(name=name, parts=(Part(name=each.name, begin=begin, length=share, said=f"{name}: {text}"),), value=text)


def _joules(value: float) -> str:
    for size, unit in ((1e6, "MJ"), (1e3, "kJ")):
        if value >= size:
            return f"{number(value / size)} {unit}"
    return f"{number(value)} J"


def _stack(parts: Mapping[str, float], whole: float) -> tuple[Part, ...]:
    made, begin = [], 0.0
    for name, value in parts.items():
        if value > 0 and whole > 0:
            said = f"{style.label(name)}: {style.duration(value)}"
            made.append(Part(name=name, begin=begin, length=value / whole, said=said))
            begin += value / whole
    return tuple(made)


def _keys(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, style.label(name)) for name in names)


def asynchronous(case: Case) -> bool:
    """Whether no step waits for a whole batch."""
    return case.run.spec.placement is Placement.ASYNC
