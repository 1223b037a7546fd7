"""What runs were given and what they trained on: the same work or no comparison, and the work consumed beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.protocol.errors import SpecError
from harness.protocol.spec import Load, RunSpec
from reports.markdown import Footnotes, code, escape, number, percent, table
from reports.provenance import work_differences
from reports.served import cache_use, imposed
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


def uneven_tools(runs: Sequence[tuple[RunTables, Consumed]]) -> str | None:
    """Why times of those runs hold differences of their tools; None where latencies are imposed, or came out equal.

    What is compared: tool seconds per trained trajectory, and the share of answers that came from the tools' cache.
    """
    if not runs or all(imposed(run.spec) for run, _ in runs):
        return None
    said = []
    tool_s = [work.tool_s for _, work in runs if work.trajectories]
    known = [value for value in tool_s if value is not None]
    if len(known) < len(tool_s):
        said.append("tool seconds are not on record for all of them")
    elif known and max(known) > min(known) * (1 + TOLERANCE):
        least, most = number(min(known), 4), number(max(known), 4)
        said.append(f"tool calls took from {least} s to {most} s per trained trajectory")
    shares = [None if (use := cache_use(run)) is None else use.share for run, _ in runs]
    found = [share for share in shares if share is not None]
    if found and len(found) < len(shares):
        said.append("what came from the tools' cache is not on record for all of them")
    elif found and max(found) - min(found) > TOLERANCE:
        said.append(f"from {percent(min(found))} to {percent(max(found))} of the answers came from the tools' cache")
    if not said:
        return None
    tools = " and ".join(dict.fromkeys(run.spec.tools for run, _ in runs))
    return f"nothing imposed the latencies of the tools ({tools}): {'; '.join(said)}"


def _why_different(spec: RunSpec) -> str:
    """What it means that runs of equal work digests consumed different work."""
    so = "so their step times are not of equal work"
    why = []
    if spec.load is Load.LIVE:
        why.append("The policy decided what was done, and may decide otherwise in each run")
    else:
        why.append("The runs were offered the same plans and trained on different parts of them")
    if not imposed(spec):
        why.append(f"nothing imposed the latencies and answers of the tools ({escape(spec.tools)})")
    return f"{'; '.join(why)}: {so}."


def consumed_table(
    spec: RunSpec, names: Sequence[str], work: Sequence[Consumed], digests: Sequence[str | None], notes: Footnotes
) -> list[str]:
    """Consumed work per trained trajectory, one row per run; beside each number its difference from the first run's.

    `spec`: of one of the runs; they were offered the same work.
    """
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
            f"**Consumed work differs by more than {percent(TOLERANCE)}**: {', '.join(flagged)}. {_why_different(spec)}"
        )
    else:
        lines.append(f"Consumed work differs by at most {percent(TOLERANCE)} from the first run's, where it is known.")
    return lines
