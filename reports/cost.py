"""What runs cost at given prices, one column per run."""

from collections.abc import Sequence

from reports.case import Case, labels
from reports.markdown import Footnotes, escape, number, table
from results.cost import Cost, cost
from results.prices import Prices
from results.stats import Estimate


def cost_section(cases: Sequence[Case], prices: Prices, notes: Footnotes) -> list[str]:
    """The section of a report on cost; empty where no price was given."""
    if not prices.given:
        return []
    found = [cost(case.run, case.figures, prices) for case in cases]
    rows = []
    if prices.gpu_hour is not None:
        rows += [
            ["GPU hours, per step", *(_estimate(each.per_step, each, notes) for each in found)],
            ["GPU hours, per 1,000 trajectories trained on", *(_value(c.per_trajectories, c, notes) for c in found)],
            ["of them within the bound (good)", *(_value(c.per_good_trajectories, c, notes) for c in found)],
            ["GPU hours, per million generated tokens", *(_estimate(c.per_tokens, c, notes) for c in found)],
            [
                "GPU hours, per million trained tokens",
                *(_estimate(c.per_trained_tokens, c, notes) for c in found),
            ],
            ["GPU hours, per million good tokens", *(_estimate(c.per_good_tokens, c, notes) for c in found)],
        ]
    if prices.kwh is not None:
        rows += [
            ["energy, per step", *(_value(c.energy_per_step, c, notes) for c in found)],
            [
                "energy, per 1,000 trajectories trained on",
                *(_value(c.energy_per_trajectories, c, notes) for c in found),
            ],
            ["energy, per million generated tokens", *(_value(c.energy_per_tokens, c, notes) for c in found)],
            [
                "energy, per million trained tokens",
                *(_value(c.energy_per_trained_tokens, c, notes) for c in found),
            ],
            ["energy, per million good tokens", *(_value(c.energy_per_good_tokens, c, notes) for c in found)],
        ]
    asked = [f"{number(prices.gpu_hour)} per GPU hour"] if prices.gpu_hour is not None else []
    asked += [f"{number(prices.kwh)} per kWh"] if prices.kwh is not None else []
    said = (
        f"At {' and '.join(asked)}, in the currency of the price. Of the steady window, all GPUs, busy or not: start-up"
        " and warm-up are not in it. A hired GPU's price contains its energy: the two are not added. Trained tokens are"
        " those of the loss masks; good ones, of trajectories within the staleness bound."
    )
    return ["## Cost", "", *table(["Cost", *(escape(name) for name in labels(cases))], rows, "l"), "", said, ""]


def _estimate(found: Estimate, of: Cost, notes: Footnotes) -> str:
    if found.value is None:
        return notes.unknown(of.note or "the rate it follows from is not known")
    if found.ci_low is not None and found.ci_high is not None:
        return f"{number(found.value)} ({number(found.ci_low)} to {number(found.ci_high)})"
    return number(found.value)


def _value(value: float | None, of: Cost, notes: Footnotes) -> str:
    if value is None:
        return notes.unknown(of.note or "nothing was trained on in the window, or its energy is not known")
    return number(value)
