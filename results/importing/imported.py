"""What marks an imported run, and which of its figures are known: what its source does not say is None, never 0."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.protocol.spec import RunSpec
from results.figure import Figures

if TYPE_CHECKING:
    from results.metrics import RunFigures

WORKLOAD = "imported"
LABEL = "imported, partial"

# Figures that each kind of source tells; all others of such a run are not known.
KNOWN: Mapping[str, frozenset[str]] = {
    "verl-console": frozenset({"steps", "window_s", "step_time_s", "sync_s_mean"}),
    "areal-tracer": frozenset(),
}
NOTES: Mapping[str, str] = {
    "steps": "imported",
    "window_s": "the steps of the log laid end to end: gaps between them are not in it",
    "step_time_s": "the log's timing_s/step: gaps between steps are not in it",
    "sync_s_mean": "the log's timing_s/update_weights, per step",
}


def is_imported(spec: RunSpec) -> bool:
    """Whether a run was made from what somebody else recorded."""
    return spec.workload == WORKLOAD


def withhold(found: "RunFigures", spec: RunSpec) -> "RunFigures":
    """The figures of an imported run without those that its source does not tell; of any other run, all of them."""
    if not is_imported(spec):
        return found
    known = KNOWN.get(spec.preset, frozenset())
    kept = Figures()
    for metric, figure in found.figures.items():
        if metric in known and figure.value is not None:
            kept[metric] = replace(figure, note=NOTES.get(metric, figure.note))
        elif figure.value is None and found.window is None and metric in known:
            kept[metric] = figure
        else:
            note = f"{LABEL}: not told by a {spec.preset} file"
            kept.put(metric, figure.unit, None, note=note)
    return replace(
        found,
        figures=kept,
        account=None,
        engines=None,
        lifetimes=None,
        straggler=None,
        energy=None,
        throughput=None,
        selection=None,
    )
