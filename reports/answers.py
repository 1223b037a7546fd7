"""The section of a live run: how its trajectories ended, and what their answers were worth."""

from harness.protocol.spec import Load
from reports.case import Case
from reports.markdown import Footnotes, escape, number, percent, plural, table
from results.answers import Answers, answers, doubts

_ENDED = {
    "answered": "the answer was given",
    "turns": "the turn limit",
    "context": "the context was full",
    "silent": "two replies without a call",
}


def answers_section(case: Case, notes: Footnotes) -> list[str]:
    """The section's lines with its heading; none for a fixed load."""
    spec = case.run.spec
    if spec.load is not Load.LIVE:
        return []
    lines = ["## Answers", ""]
    found = answers(case.run)
    if found.why_none is not None:
        return [*lines, f"No answers: {escape(found.why_none)}."]
    if warned := doubts(found):
        lines += [f"> **{escape(text[0].upper() + text[1:])}.**" for text in warned]
        lines += [""]
    lines += table(["Trajectories", "count", "share"], _counts(found, notes), "l")
    if len(found.groups) > 1 or found.groups[0].hops is not None:
        rows = [
            [
                notes.unknown("the data set does not say") if group.hops is None else str(group.hops),
                f"{group.trajectories:,}",
                notes.unknown("no accepted answers are known") if found.right is None else f"{group.right:,}",
                number(group.reward_mean),
            ]
            for group in found.groups
        ]
        lines += ["", *table(["Hops of the question", "trajectories", "right", "mean reward"], rows)]
    return [*lines, "", f"n = {plural(found.trajectories, 'trajectory')} of the whole run, judged."]


def _counts(found: Answers, notes: Footnotes) -> list[list[str]]:
    def row(what: str, count: int, of: int) -> list[str]:
        return [what, f"{count:,} of {of:,}", percent(count / of) if of else notes.unknown("there was none")]

    rows = [
        row(f"ended by: {_ENDED.get(name, name)}", count, found.trajectories) for name, count in found.ended.items()
    ]
    if found.right is None:
        rows.append(["answered right (exactly)", notes.unknown("no accepted answers are known"), ""])
    else:
        rows.append(row("answered right (exactly)", found.right, found.known))
    mean = notes.unknown("no reward") if found.reward_mean is None else number(found.reward_mean)
    return [
        *rows,
        ["mean reward", mean, ""],
        row("calls that could not be made (malformed, unknown, wrong arguments)", found.parse_errors, found.calls),
        row("replies with a think block", found.thoughts, found.turns),
        row("replies that were cut", found.cut_replies, found.turns),
        row("answers of tools shown in part", found.cut_observations, found.tool_calls),
        *(
            [["tokens not trained (thinking stripped)", f"{found.untrained_tokens:,}", ""]]
            if found.untrained_tokens
            else []
        ),
    ]
