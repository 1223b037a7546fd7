"""What runs were given and what they trained on: the same work or no comparison, and the work consumed beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.protocol.errors import SpecError
from reports.markdown import Footnotes, code, number, percent, table
from reports.provenance import work_differences
from results.store import RunTables

TOLERANCE = 0.02  # consumed work that differs by more is flagged

_FEW = "no trajectory was trained on in the window"
_LOST = "a consumed trajectory has no count on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Work per trajectory trained on in the window; None where nothing was, or where a count is not on record."""

    trajectories: int
    generated_tokens: float | None
    observation_tokens: float | None
    tool_calls: float | None
    tool_s: float | None


FIGURES = (
    ("generated_tokens", "generated tokens"),
    ("observation_tokens", "observation tokens"),
    ("tool_calls", "tool calls"),
    ("tool_s", "tool seconds"),
)


def same_work(runs: Sequence[RunTables]) -> None:
    """Checks that all runs were offered the same work.

    Raises:
        SpecError: two work digests differ; names the runs and the fields, with both values.
    """
    first = runs[0]
    for other in runs[1:]:
        if first.spec.work_digest == other.spec.work_digest:
            continue
        fields = ", ".join(work_differences(first.spec, other.spec)) or "their specs hash differently"
        raise SpecError(
            f"{first.run_id} and {other.run_id} were offered different work: {fields}; runs are compared only on the "
            "same work: run one of them again with the other's values, or report each alone"
        )


def consumed(run: RunTables, steps: Sequence[int]) -> Consumed:
    """The work per trajectory that those steps trained on: ratios of sums."""
    frame = run.frame("trajectories")
    used = frame[frame["step_consumed"].isin(list(steps))]
    count = len(used)

    def mean(column: str, scale: float = 1.0) -> float | None:
        if not count or used[column].isna().any():
            return None
        return float(used[column].sum()) * scale / count

    return Consumed(
        trajectories=count,
        generated_tokens=mean("generated_tokens"),
        observation_tokens=mean("observation_tokens"),
        tool_calls=mean("tool_calls"),
        tool_s=mean("tool_ns", 1e-9),
    )


def consumed_table(
    names: Sequence[str], work: Sequence[Consumed], digests: Sequence[str | None], notes: Footnotes
) -> list[str]:
    """Consumed work per trained trajectory, one row per run; beside each number its difference from the first run's."""
    first = work[0]
    rows, flagged = [], []
    for name, one, digest in zip(names, work, digests, strict=True):
        cells = []
        for field, what in FIGURES:
            value, base = getattr(one, field), getattr(first, field)
            if value is None:
                cells.append(notes.unknown(_LOST if one.trajectories else _FEW))
                continue
            text = number(value, 4)
            if one is not first and base:
                text += f" ({value / base - 1:+.1%})"
                if abs(value / base - 1) > TOLERANCE:
                    text = f"**{text}**"
                    flagged.append(f"{what} of {name}")
            cells.append(text)
        plans = notes.unknown("a consumed trajectory has no plan") if digest is None else code(digest)
        rows.append([name, f"{one.trajectories:,}", *cells, plans])
    header = ["Run", "trained trajectories", *(what for _, what in FIGURES), "plans consumed"]
    lines = ["Per trajectory trained on in the window:", "", *table(header, rows, "l"), ""]
    if flagged:
        lines.append(
            f"**Consumed work differs by more than {percent(TOLERANCE)}**: {', '.join(flagged)}. The runs were offered "
            "the same work and trained on different parts of it, so their step times are not of equal work."
        )
    else:
        lines.append(f"Consumed work differs by at most {percent(TOLERANCE)} from the first run's, where it is known.")
    return lines
