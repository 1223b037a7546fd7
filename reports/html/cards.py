"""The few figures that stand first on the page, each with its unit, its n, and why it is not known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.case import Case
from reports.markdown import number, percent, seconds
from reports.tables import GPU_FIGURES
from results.figure import Figure

Form = Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One figure. `value` is a dash where it is not known, and `note` says why; `verdict`: ok | warn | bad | ""."""

    name: str
    value: str
    unit: str
    spread: str
    note: str
    verdict: str


def _two(value: float) -> str:
    return f"{value:.2f}"


# Metric, name on the card, how it is written (the unit, where it is part of that, is not repeated).
_SHOWN: tuple[tuple[str, str, Form, str], ...] = (
    ("step_time_s", "Step time", seconds, ""),
    ("throughput_tokens_per_s_gpu", "Throughput", number, "token/s/GPU"),
    ("goodput_tokens_per_s_gpu", "Goodput", number, "token/s/GPU"),
    ("power_utilisation_ratio", "GPU power utilisation", percent, ""),
    ("joules_per_trained_trajectory", "Energy per trained trajectory", number, "J"),
    ("mfu_ratio", "MFU", percent, ""),
    ("coverage_ratio", "Named time, worst unit", percent, ""),
    ("rollout_busy_share", "Rollout pool generating", percent, ""),
    ("wait_rollout_share", "Trainer waiting for rollout", percent, ""),
    ("tail_gap_share", "Straggler gap", percent, ""),
    ("group_tail_share", "Group tail", percent, ""),
    ("staleness_at_start_mean", "Staleness at start, mean", _two, "versions"),
)
_SYNCHRONOUS = ("tail_gap_share",)
_ASYNCHRONOUS = ("group_tail_share", "wait_rollout_share")


def cards_of(case: Case, *, asynchronous: bool) -> tuple[Card, ...]:
    """The cards of one run: those that its placement has; those of a GPU only where there is one."""
    left_out = _SYNCHRONOUS if asynchronous else _ASYNCHRONOUS
    made = []
    for metric, name, form, unit in _SHOWN:
        figure = case.figures.figures.get(metric)
        if figure is None or metric in left_out or (not case.gpu and metric.startswith(GPU_FIGURES)):
            continue
        made.append(_card(figure, name, form, unit if case.gpu else unit.replace("GPU", "process")))
    return tuple(made)


def side_by_side(runs: Sequence[Sequence[Card]]) -> tuple[tuple[str, tuple[Card | None, ...]], ...]:
    """The runs' cards as rows: a figure's name, and its card in each run; None where the run's placement has none."""
    names = dict.fromkeys(name for _, name, _, _ in _SHOWN)
    rows = []
    for name in names:
        cells = tuple(next((card for card in cards if card.name == name), None) for cards in runs)
        if any(cell is not None for cell in cells):
            rows.append((name, cells))
    return tuple(rows)


def _card(figure: Figure, name: str, form: Form, unit: str) -> Card:
    if figure.value is None:
        why = figure.note or "not known"
        return Card(name=name, value="–", unit="", spread="", note=why, verdict=figure.verdict or "")
    spread = "" if figure.n is None else f"n = {figure.n:,}"
    if figure.ci_low is not None and figure.ci_high is not None:
        spread = f"{form(figure.ci_low)} to {form(figure.ci_high)} (95 %)" + (f", {spread}" if spread else "")
    return Card(
        name=name,
        value=form(figure.value),
        unit=unit,
        spread=spread,
        note=figure.note or "",
        verdict=figure.verdict or "",
    )
