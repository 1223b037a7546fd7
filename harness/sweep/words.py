"""A sweep in words: durations, the plan, and the table of how it stands. Plain text, for terminals."""

from collections.abc import Sequence

from harness.sweep.folder import FAILED, FINISHED, REFUSED, Outcome, SweepFolder
from harness.sweep.plan import Plan


def took(seconds: float) -> str:
    """E.g. `8 s`, `4 min 10 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def order_line(plan: Plan) -> str:
    """How the runs are ordered."""
    rounds = f"{plan.repeats} round{'s' if plan.repeats > 1 else ''} of every cell"
    if plan.shuffle is None:
        return f"{rounds}, in the file's order"
    return f"{rounds}, each in an order of its own (shuffle seed {plan.shuffle})"


def plan_rows(plan: Plan) -> list[tuple[str, str, str, str]]:
    """One row per cell: number, cell, spec digest, places in the order or why not."""
    rows = []
    for cell in plan.cells:
        places = ", ".join(str(entry.number) for entry in plan.entries if entry.cell == cell.number)
        what = f"refused: {cell.refused}" if cell.refused else places
        rows.append((str(cell.number + 1), cell.label, cell.spec.spec_digest if cell.spec else "-", what))
    return rows


def state_rows(folder: SweepFolder, outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str, str]]:
    """One row per cell: cell, runs finished of planned, median time of those, other states, the first reason."""
    rows = []
    for cell in folder.plan.cells:
        if cell.refused:
            rows.append((cell.label, "-", "-", "refused", cell.refused))
            continue
        mine = [outcomes[entry.number - 1] for entry in folder.plan.entries if entry.cell == cell.number]
        times = sorted(each.took_s for each in mine if each.status == FINISHED and each.took_s is not None)
        other = [each for each in mine if each.status != FINISHED]
        states = list(dict.fromkeys(each.status for each in other))
        counted = ", ".join(f"{sum(each.status == state for each in other)} {state}" for state in states)
        reason = next((each.reason for each in other if each.reason), "")
        rows.append(
            (
                cell.label,
                f"{len(mine) - len(other)} of {len(mine)}",
                took(times[(len(times) - 1) // 2]) if times else "-",
                counted or "-",
                reason.partition("\n")[0],
            )
        )
    return rows


def summary_line(folder: SweepFolder, outcomes: Sequence[Outcome]) -> str:
    """E.g. `7 of 8 runs finished, 1 failed; 2 cells refused`."""
    count = {
        name: sum(each.status in states for each in outcomes)
        for name, states in (("finished", (FINISHED,)), ("failed", FAILED), ("refused", (REFUSED,)))
    }
    text = f"{count['finished']} of {len(outcomes)} runs finished"
    text += f", {count['failed']} failed" if count["failed"] else ""
    text += f", {count['refused']} refused here" if count["refused"] else ""
    left = len(outcomes) - sum(count.values())
    text += f", {left} to go" if left else ""
    cells = sum(cell.refused is not None for cell in folder.plan.cells)
    return text + (f"; {cells} cell{'s' if cells > 1 else ''} refused" if cells else "")
