"""What the page of a sweep says in words: its title, what it may claim, and the lines under its tables."""

from collections.abc import Iterable, Sequence

from harness.protocol.spec import Device
from harness.sweep.plan import POOLED
from reports.consumed import uneven_tools
from reports.markdown import code, escape, plural
from reports.provenance import (
    NON_STANDARD,
    SCRIPTED,
    commit_of,
    device_of,
    framework_of,
    is_scripted,
    kinds_of,
    non_standard,
    verified_on,
)
from reports.replicates import Pool, Seen


def title(cells: Sequence[Pool], seen: Sequence[Seen]) -> str:
    """Frameworks x placements, and what kind of runs they are."""
    frameworks = ", ".join(dict.fromkeys(cell.framework for cell in cells))
    placements = ", ".join(dict.fromkeys(cell.placement for cell in cells))
    kinds = kinds_of(each.run.spec for each in seen)
    if any(non_standard(each.run.spec) for each in seen):
        kinds.append(NON_STANDARD)
    return f"Sweep: {frameworks} x {placements}" + (f" ({', '.join(kinds)})" if kinds else "")


def claims(cells: Sequence[Pool], seen: Sequence[Seen]) -> list[str]:
    """What a reader may take from the sweep, and what not, as a quotation."""
    said = []
    if any(each.run.spec.device is Device.CPU for each in seen):
        said.append(
            "**No verdict.** Without GPUs this is a functional check: the frameworks run different engines and share "
            "the cores, so ratios between frameworks, and between placements, say nothing about GPUs."
        )
    if scripts := [cell.label for cell in cells if any(is_scripted(each.run.spec) for each in cell.seen)]:
        said.append(f"**{SCRIPTED}** ({escape(', '.join(scripts))})")
    if uneven := uneven_tools([(each.run, each.work) for each in seen]):
        said.append(f"**Tools took different times**: {escape(uneven)}. Ratios of times hold that difference too.")
    few = [cell.label for cell in cells if len(cell.seen) == 1]
    if few:
        said.append(f"One run only, so no interval and no claim about a difference: {escape(', '.join(few))}.")
    on_gpus = all(each.run.spec.device is Device.CUDA for each in seen)
    # On CPU a host differs from the next by what else runs there; GPU nodes of one kind are interchangeable.
    machine = ("cpu", "cores") if on_gpus else ("host", "cpu", "cores")
    for what, values in (
        *((f"the machines differ in {key}", {_machine(each, key) for each in seen}) for key in machine),
        ("the devices differ", {device_of(each.run) for each in seen}),
        ("the commits of bench differ", {commit(each) for each in seen}),
        ("the granularity of the time accounts differs", {each.granularity for each in seen if each.granularity}),
    ):
        if len(values) > 1:
            said.append(f"**Not comparable**: {what} ({escape(' and '.join(sorted(values)))}).")
    gone = [(cell.label, cell.missing_seeds) for cell in cells if cell.seen and cell.missing_seeds]
    said += [
        f"**Not the same work**: {escape(label)} has no finished run of seed {', '.join(map(str, seeds))}, whose work "
        "is in the other cells."
        for label, seeds in gone
    ]
    planned = {tuple(sorted(set(cell.planned_seeds))) for cell in cells if cell.planned_seeds}
    if len(planned) > 1:
        said.append("**Not the same work**: the cells were planned with different seeds.")
    odd = [f"{cell.label} ({why})" for cell in cells if cell.seen and (why := non_standard(cell.seen[0].run.spec))]
    if odd:
        said.append(f"**Non-standard**: {escape('; '.join(odd))}.")
    pairs = [(cell, verified_on(cell.seen[0].run.spec) or "") for cell in cells if cell.seen]
    never = [cell.label for cell, where in pairs if where.startswith("never")]
    if never:
        said.append(f"Cells that were never verified: {escape(', '.join(never))}.")
    return [line for text in said for line in (f"> {text}", ">")][:-1]


def pooling(cells: Sequence[Pool]) -> str:
    """What an interval is made of."""
    seeds = sorted({seed for cell in cells for seed in cell.planned_seeds})
    text = "intervals are 95 %, from the t distribution over the logs of runs (staleness: over runs)"
    if len(seeds) > 1:
        text += (
            f". A cell pools runs of equal specs but for the {POOLED} ({', '.join(map(str, seeds))}): the seeds "
            "differ by design, and the work with them, so an interval holds the differences between seeds too"
        )
    return text


def captions(shown: Sequence[Pool]) -> list[str]:
    """The line under a table: machine, device, commit, versions, n, steps and overrides of each cell."""
    lines = []
    for cell in shown:
        seen = cell.seen
        asked = [f"{key}={value}" for key, value in sorted(seen[0].run.spec.overrides.items())]
        steps = sorted({each.steps for each in seen})
        windows = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
        parts = [
            f"host {escape(joined(_machine(each, 'host') for each in seen))}",
            escape(joined(device_of(each.run) for each in seen)),
            f"bench {escape(joined(commit(each) for each in seen))}",
            escape(joined(framework_of(each.run) or cell.framework for each in seen)),
            f"n = {plural(len(seen), 'run')} of {windows} steps",
            f"seeds {', '.join(map(str, sorted({each.run.spec.seed for each in seen})))}",
            f"overrides: {', '.join(code(text) for text in asked)}" if asked else "no overrides",
        ]
        lines.append(f"<sub>{escape(cell.label)}: {' · '.join(parts)}</sub><br>")
    return lines


def _machine(seen: Seen, key: str) -> str:
    machine = seen.run.meta.get("machine")
    return str((machine.get(key) if isinstance(machine, dict) else None) or "unknown")


def commit(seen: Seen) -> str:
    """Commit of bench, or that it is not known."""
    return commit_of(seen.run) or "of unknown commit"


def joined(values: Iterable[str]) -> str:
    """Distinct texts, in order."""
    return " and ".join(dict.fromkeys(values))
