"""How long a sweep will still take: medians of what its own finished runs took; unknown is said, not guessed."""

from collections.abc import Sequence
from statistics import median

from harness.sweep.folder import FINISHED, Outcome
from harness.sweep.plan import Entry, Plan
from harness.sweep.words import took


def remaining(plan: Plan, outcomes: Sequence[Outcome], todo: Sequence[Entry]) -> str:
    """The time for `todo`, in words: a run takes the median of the finished ones of the same framework.

    Where a framework has none yet, the rest is a lower bound and the framework is named.
    """
    seen: dict[str, list[float]] = {}
    for entry, outcome in zip(plan.entries, outcomes, strict=True):
        if outcome.status == FINISHED and outcome.took_s is not None:
            seen.setdefault(plan.cells[entry.cell].framework, []).append(outcome.took_s)
    known, unknown = 0.0, []
    for entry in todo:
        framework = plan.cells[entry.cell].framework
        if framework in seen:
            known += median(seen[framework])
        else:
            unknown.append(framework)
    if not unknown:
        return f"about {took(known)}"
    names = " and ".join(dict.fromkeys(unknown))
    why = f"no {names} run has finished yet"
    return f"unknown ({why})" if not known else f"more than {took(known)} ({why})"
