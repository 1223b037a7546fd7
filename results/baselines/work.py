"""Whether new runs did the work of the baseline's: a step that trains on less is shorter, and no faster."""

from collections.abc import Sequence

from results.comparing.alike import TOLERANCE
from results.comparing.measures import MEASURES, WORK, RunMeasures
from results.comparing.welch import compare, holm, mean_of

ALPHA = 0.001  # of all of it together: that equal work is called different
SECONDS = "consumed_tool_s"  # time and no work: a slower agent makes it longer


def work_differs(held: Sequence[RunMeasures], runs: Sequence[RunMeasures]) -> tuple[list[str], list[str]]:
    """Differences of the work per trajectory trained on, over the tolerance: those shown, and those only seen.

    Shown: Welch's t over runs, Holm-corrected, at ALPHA. Placements that train on the same plans have no spread, and
    there any difference is shown.
    """
    sides = [(one, _values(held, one.name), _values(runs, one.name)) for one in WORK]
    sides = [(one, a, b) for one, a, b in sides if a and b and any((*a, *b))]
    contrasts = [compare(a, b, "ratio") or compare(a, b, "difference") for _, a, b in sides]
    ps = holm([None if found is None else found.p for found in contrasts])
    shown, seen = [], []
    for (measure, a, b), p in zip(sides, ps, strict=True):
        before, after = mean_of(a, "difference") or 0.0, mean_of(b, "difference") or 0.0
        if abs(after - before) <= TOLERANCE * before:
            continue
        what = MEASURES[measure.name].doc.removeprefix("work: ")
        change = f"{after / before - 1:+.1%}" if before else "from none"
        text = f"{what}: {before:.4g} in the baseline, {after:.4g} in the new runs ({change})"
        if measure.name != SECONDS and p is not None and p <= ALPHA:
            shown.append(f"the work differs: {text}; times of different work are not compared")
        else:
            seen.append(f"{text}; compare times with that in mind")
    return shown, seen


def _values(runs: Sequence[RunMeasures], name: str) -> list[float]:
    return [value for run in runs if (value := run.value(name)) is not None]
