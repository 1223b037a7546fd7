"""Whether what was trained on is like what was admitted: the selection test, of every async run."""

from collections.abc import Sequence

from harness.protocol.spec import Placement
from reports.case import Case
from reports.markdown import Footnotes, escape, plural, table
from results.selection import QUANTITIES, RESAMPLES, TOLERANCE, Ratio

_WORDS = {"tokens": "generated tokens", "tool_seconds": "tool seconds", "tool_calls": "tool calls"}
_HOW = (
    "Planned work of what was trained on over that of what was admitted, of one admission interval: ratio of means, "
    f"with the 95 % interval of {RESAMPLES:,} bootstrap draws of groups. Flagged: more than {TOLERANCE:.0%} from 1, "
    "and the interval does not hold 1. A pipeline that passes long trajectories over looks faster than it is."
)


def selection_section(cases: Sequence[Case], names: Sequence[str], notes: Footnotes) -> list[str]:
    """The section of a report: a row per async run; empty where there is none (synchronous runs train on all)."""
    mine = [(case, name) for case, name in zip(cases, names, strict=True) if _asynchronous(case)]
    if not mine:
        return []
    rows = []
    for case, name in mine:
        found = case.figures.selection
        why = (found.note if found is not None else case.no_window) or "the plans are not known"
        ratios = {} if found is None else found.ratios
        cells = [_cell(ratios.get(quantity), notes, why) for quantity in QUANTITIES]
        counts = (
            f"{found.trained:,} of {found.admitted:,} in {plural(found.groups, 'group')}"
            if found is not None and found.groups
            else notes.unknown(why)  # a note that nothing refers to would be printed too
        )
        rows.append([escape(name), *cells, counts])
    heads = [f"{_WORDS[quantity]}, trained / admitted" for quantity in QUANTITIES]
    return ["## Selection", "", *table(["Run", *heads, "trained, of the admitted"], rows, "l"), "", _HOW, ""]


def _asynchronous(case: Case) -> bool:
    return case.run.spec.placement is Placement.ASYNC


def _cell(ratio: Ratio | None, notes: Footnotes, why: str) -> str:
    if ratio is None:
        return notes.unknown(why)
    text = f"{ratio.value:.3f} ({ratio.ci_low:.3f} to {ratio.ci_high:.3f})"
    return f"**{text}, differs**" if ratio.flagged else text
