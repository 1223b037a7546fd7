"""How runs vary, taken from runs of elsewhere: of each side's own cell, and of no other.

A cell is what two runs share that may differ by chance alone: the work, the system under test, the kind of machine.
The spread of another one says nothing: a quiet small model's would tell any two single runs of a large one apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.protocol.errors import SpecError
from results.comparing.alike import fact_name, machine_facts
from results.comparing.measures import MEASURES, Measure, RunMeasures
from results.comparing.paired import on_common_plans, same_seeds
from results.comparing.welch import Noise, noise_of, noise_of_both

if TYPE_CHECKING:
    from results.comparing.comparison import Side

FEWEST = 3  # runs that tell how runs vary
SEEDS = "both sides have the same seeds, whose differences tell how runs vary"
_STEPS = "steps"
_NONE = "not on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The noise of one pair of sides: of claims and of effects, by measure; where it is from, and of how many runs."""

    claims: Mapping[str, Noise]
    effects: Mapping[str, Noise]
    label: str
    runs: int


def spread_of(
    cells: Sequence["Side"], base: "Side", side: "Side", measures: Sequence[Measure], parts: Sequence[Measure]
) -> Spread | None:
    """The noise of that pair, from those of the cells that its sides are of; None where their seeds are blocks.

    Raises:
        SpecError: no cell is that of a side's runs (names what differs), or the one that is has too few runs.
    """
    if same_seeds([base.runs, side.runs]):
        return None
    of = [_cell_of(cells, each) for each in (base, side)]
    of = of[:1] if of[0] is of[1] else of
    seconds = [replace(part, kind="difference") for part in (*parts, MEASURES["step_time_s"])]
    return Spread(
        claims={one.name: _noise(of, one) for one in measures},
        effects={one.name: _noise(of, one) for one in seconds},
        label=" and ".join(each.label for each in of),
        runs=sum(len(each.runs) for each in of),
    )


def _noise(cells: Sequence["Side"], measure: Measure) -> Noise:
    made = []
    for cell in cells:
        runs, _ = on_common_plans(cell.runs)
        made.append(noise_of([run.value(measure.name) for run in runs], measure.kind))
    return made[0] if len(made) == 1 else noise_of_both(*made)


def _cell_of(cells: Sequence["Side"], side: "Side") -> "Side":
    """The cell that the side's runs are of."""
    told = [(differing(cell.runs, side.runs), cell) for cell in cells if cell.runs]
    if not told:
        where = ", ".join(cell.label for cell in cells) or "nothing"
        raise SpecError(f"--noise-from {where}: no run in it may be compared")
    found, cell = min(told, key=lambda each: len(each[0]))
    if found:
        other = f" (the nearest of its {len(told)} cells)" if len(told) > 1 else ""
        raise SpecError(
            f"--noise-from {cell.label}{other}: its runs are of another cell than those of {side.label}: "
            f"{'; '.join(found)}; how runs vary is taken from runs of the same cell"
        )
    if len(cell.runs) < FEWEST:
        raise SpecError(
            f"--noise-from {cell.label}: {len(cell.runs)} run(s) of the cell; {FEWEST} or more tell how runs vary"
        )
    return cell


def differing(noise: Sequence[RunMeasures], runs: Sequence[RunMeasures]) -> list[str]:
    """In what runs differ that must be of one cell, in words: `model (small, not large)`; empty: in nothing.

    Runs with more steps vary less: they are not of the cell of shorter ones, though shorter ones may stand for longer.
    """
    said = []

    def held(name: str, one: Sequence[str | None], other: Sequence[str | None]) -> None:
        x, y = ({value if value is not None else _NONE for value in values} for values in (one, other))
        if x != y:
            said.append(f"{name} ({' and '.join(sorted(x))}, not {' and '.join(sorted(y))})")

    for name in ("framework", "placement", "device", "granularity"):
        held(name, [getattr(run, name) for run in noise], [getattr(run, name) for run in runs])
    for fields in ([run.work for run in (*noise, *runs)], [run.system for run in (*noise, *runs)]):
        for name in dict.fromkeys(name for each in fields for name in each):
            if name not in ("framework", "placement", "device", _STEPS):
                values = [each.get(name) for each in fields]
                held(name, values[: len(noise)], values[len(noise) :])
    for fact in machine_facts((*noise, *runs)):
        held(fact_name(fact), [run.machine.get(fact) for run in noise], [run.machine.get(fact) for run in runs])
    longest, shortest = max(map(_steps, noise)), min(map(_steps, runs))
    if longest > shortest:
        said.append(f"steps (it has runs of {longest} steps, and they of {shortest}: longer runs vary less)")
    return said


def _steps(run: RunMeasures) -> int:
    """The steps that were asked for."""
    asked = run.system.get(_STEPS, "")
    return int(asked) if asked.isdigit() else run.steps
