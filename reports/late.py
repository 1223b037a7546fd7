"""The table of the trajectories that came last."""

from collections.abc import Sequence

from harness.protocol.spec import Placement
from reports.markdown import Footnotes, code, number, seconds, table
from results.late import Late
from results.store import RunTables

NO_TOKENS = "the engine's reply gave no token count"
NO_VERSIONS = "a version was not recorded"


def late_table(run: RunTables, found: Sequence[Late], notes: Footnotes) -> list[str]:
    """The top stragglers, with what their time went into; empty where no trajectory was late."""
    if not found:
        return []
    asynchronous = run.spec.placement is Placement.ASYNC
    behind = "longer than the median of its batch" if asynchronous else "ended after its batch's median"
    rows = [
        [
            code(each.trajectory_id),
            f"{each.step:,}",
            seconds(each.late_s),
            seconds(each.duration_s),
            seconds(each.generating_s),
            seconds(each.tool_s),
            seconds(each.other_s),
            f"{each.turns:,}",
            f"{each.tool_calls:,}",
            notes.unknown(NO_TOKENS) if each.generated_tokens is None else number(each.generated_tokens),
            notes.unknown(NO_VERSIONS) if each.at_start is None else f"{each.at_start:,}",
        ]
        for each in found
    ]
    head = ["Top stragglers", "step", behind, "took", "turns open"]
    head += ["in tools", "neither", "turns", "tool calls", "generated tokens", "staleness at start"]
    return table(head, rows, "l")
