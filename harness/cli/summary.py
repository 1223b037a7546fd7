"""The few figures that `bench run` ends with; the report has all of them, with their definitions."""

from collections.abc import Mapping
from pathlib import Path

from harness.cli.output import table
from results.metrics import Figure, RunFigures

# Figure, words, how its value is shown. SLOT: GPU, or process on a machine without.
_SHOWN: tuple[tuple[str, str, str], ...] = (
    ("wall_s", "worker, start to end", "{:.0f} s"),
    ("step_time_s", "step", "{:.2f} s"),
    ("throughput_tokens_per_s_gpu", "throughput", "{:.1f} generated tokens/s/SLOT"),
    ("goodput_tokens_per_s_gpu", "goodput", "{:.1f} tokens/s/SLOT"),
    ("rollout_busy_share", "rollout generating", "{:.1%} of the window"),
    ("wait_rollout_share", "training waits for data", "{:.1%} of the window"),
    ("tail_gap_share", "straggler gap", "{:.1%} of the rollout phase"),
    ("staleness_at_start_mean", "staleness at start, mean", "{:.2f}"),
    ("staleness_at_start_max", "staleness at start, max", "{:.0f}"),
    ("staleness_violations", "beyond max_staleness", "{:.0f} trajectories"),
    ("power_utilisation_ratio", "GPU power utilisation", "{:.1%}"),
    ("joules_per_trained_trajectory", "energy", "{:.0f} J/trained trajectory"),
    ("adherence_ratio", "plan adherence", "{:.1%}"),
    ("other_share", "time without a name", "{:.2%}"),
    ("recorder_cost_ratio", "recording's own cost", "{:.2%}"),
)
_OF_GPUS = frozenset({"power_utilisation_ratio", "joules_per_trained_trajectory"})


def summary(found: RunFigures, report: Path, *, gpus: bool) -> str:
    """A small table and the report's path. Without GPUs no GPU figure is shown at all, not even as unknown."""
    slot = "GPU" if gpus else "process"
    rows = [
        _row(found.figures, metric, words, form.replace("SLOT", slot))
        for metric, words, form in _SHOWN
        if gpus or metric not in _OF_GPUS
    ]
    proof = found.sync_proof
    if proof.proven:
        sync = "proven"
    else:
        parts = (("fresh", proof.fresh), ("changed", proof.changed), ("follows", proof.follows))
        sync = "NOT proven: " + "; ".join(f"{name}: {part.why}" for name, part in parts if part.passed is not True)
    rows.append(("weight sync", sync, "", ""))
    if found.window is not None:
        n = found.window.steps
        steady = "steady" if not found.window.not_steady else "not steady: " + "; ".join(found.window.not_steady)
        head = f"steady window: {n} steps, {found.window.seconds:.1f} s, {steady}"
    else:
        head = f"no steady window: {found.no_window}"
    return f"{head}\n\n{table(rows, ('figure', 'value', 'n', ''))}\n\nreport: {report}"


def _row(figures: Mapping[str, Figure], metric: str, words: str, form: str) -> tuple[str, str, str, str]:
    figure = figures.get(metric)
    if figure is None or figure.value is None:
        return words, "unknown", "", (figure.note if figure else None) or ""
    n = "" if figure.n is None else str(figure.n)
    mark = figure.verdict.upper() + " " if figure.verdict not in (None, "ok") and figure.verdict else ""
    return words, form.format(figure.value), n, mark + (figure.note or "")
