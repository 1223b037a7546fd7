"""Which runs a check may use: what makes a run unfit by itself, and a baseline's run unlike the new ones."""

import math
from collections.abc import Callable, Mapping, Sequence

from results.baselines.occasions import began
from results.comparing.measures import Measure, RunMeasures

DEFAULT_GATES = ("step_time_s", "phase_train_s", "goodput_tokens_per_s_gpu")
MACHINE = ("cpu", "cores", "gpus", "gpu_count")  # what must be equal; driver and kernel may differ, and are listed
# In which new runs of one cell must not differ among themselves: what would be judged is a mixture.
ALIKE: Mapping[str, Callable[[RunMeasures], str | None]] = {
    "framework version": lambda run: run.framework_version,
    "commit of bench": lambda run: run.commit,
    "granularity of the time accounts": lambda run: run.granularity,
    "number of steps": lambda run: asked_steps(run),
}


def asked_steps(run: RunMeasures) -> str | None:
    """How many steps were asked for: their number is no part of a cell, and decides which plans are trained on."""
    return run.system.get("steps")


def unfit(run: RunMeasures) -> tuple[str, ...]:
    """Why a run proves nothing, new or in a baseline; the reasons of one that may not be compared come alone.

    That it did other work than was planned, that its samples are lost (on GPUs: that there is no power figure).
    """
    if run.problems:
        return run.problems
    said = []
    if run.adherence is not None and run.adherence < 1:
        share = math.floor(1000 * run.adherence) / 10  # never up to 100
        said.append(f"only {share:g}% of its trajectories did the work that was planned")
    if run.lost:
        said.append(f"lost its samples: {run.lost}")
    elif run.device == "cuda" and unknown(run.value("power_utilisation_ratio")):
        said.append(f"no power figure: {run.why('power_utilisation_ratio') or 'not a number'}")
    return tuple(said)


def no_baseline(run: RunMeasures) -> str:
    """Why no check could hold new runs against this one; empty where one could."""
    if reasons := unfit(run):
        return reasons[0]
    if began(run) is None:
        return "when it began is not on record, so that it is of no occasion"
    if all(unknown(run.value(name)) for name in DEFAULT_GATES):
        return f"it has none of {', '.join(DEFAULT_GATES)} ({run.why(DEFAULT_GATES[0]) or 'not a number'})"
    return ""


def baseline_of(runs: Sequence[RunMeasures], known: Sequence[RunMeasures]) -> tuple[list[RunMeasures], list[str]]:
    """The baseline's runs that count against new ones, and those that don't, with why."""
    held, left_out = [], []
    own = {run.run_id for run in runs}
    machine = {fact: {run.machine.get(fact) for run in runs} for fact in MACHINE}
    granularity = {run.granularity for run in runs if run.granularity is not None}
    steps = {asked_steps(run) for run in runs}
    for run in known:
        other = [fact for fact in MACHINE if run.machine.get(fact) not in machine[fact]]
        if run.run_id in own:
            why = "it is checked itself"
        elif other:
            why = f"another machine ({other[0]}: {run.machine.get(other[0])})"
        elif granularity and run.granularity not in granularity:
            why = f"accounts by {run.granularity}, the new runs' by {'/'.join(sorted(granularity))}"
        elif asked_steps(run) not in steps:
            why = f"of {_told(asked_steps(run))} steps, the new runs of {'/'.join(sorted(map(_told, steps)))}"
        else:
            why = no_baseline(run)
        if why:
            left_out.append(f"{run.run_id}: {why}")
        else:
            held.append(run)
    return held, left_out


def mixed(runs: Sequence[RunMeasures]) -> list[str]:
    """In what new runs differ among themselves, so that no check of them together says anything."""
    facts = {f"machine ({fact})": {str(run.machine.get(fact)) for run in runs} for fact in MACHINE}
    facts |= {name: {_told(of(run)) for run in runs} for name, of in ALIKE.items()}
    return [
        f"the new runs differ in {name}: {', '.join(sorted(values))}; check them apart"
        for name, values in facts.items()
        if len(values) > 1
    ]


def doubts(runs: Sequence[RunMeasures], held: Sequence[RunMeasures]) -> list[str]:
    """What the runs themselves say of their figures, each once, with the runs that say it."""
    said = []
    for title, of in (("new", runs), ("baseline", held)):
        notes = dict.fromkeys(note for run in of for note in run.notes)
        for note in notes:
            names = [run.run_id for run in of if note in run.notes]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            said.append(f"{title}: {note} ({', '.join(names[:3])}{more})")
    return said


def unknown(value: float | None) -> bool:
    """Whether a value is none to judge by."""
    return value is None or not math.isfinite(value)


def without(run: RunMeasures, measure: Measure) -> str:
    """Why a run can't be judged by a measure; empty where it can. Of 0 there is no ratio."""
    value = run.value(measure.name)
    if unknown(value):
        return f"has none: {run.why(measure.name) or 'not a number'}"
    if measure.kind == "ratio" and (value or 0.0) <= 0:
        return f"has {value:g} {measure.unit} of it, and to that there is no ratio"
    return ""


def _told(value: str | None) -> str:
    return "unknown" if value is None else value
