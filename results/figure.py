"""A computed number with all that a reader must know of it, and a collection of them by name."""

from dataclasses import dataclass

from results.stats import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its unit, what it was computed from (`n`), and what a reader must know (`note`).

    `value` None: unknown, and `note` says why. `verdict`: ok | warn | bad where the figure has one.
    """

    metric: str
    unit: str
    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int | None = None
    note: str | None = None
    verdict: str | None = None


class Figures(dict[str, Figure]):
    """Figures by name, as they are added."""

    def put(
        self,
        metric: str,
        unit: str,
        value: float | None,
        *,
        n: int | None = None,
        note: str | None = None,
        verdict: str | None = None,
    ) -> None:
        self[metric] = Figure(metric=metric, unit=unit, value=value, n=n, note=note, verdict=verdict)

    def estimate(self, metric: str, unit: str, found: Estimate, note: str | None = None) -> None:
        """A figure over steps: its interval, or the range where there are too few for one."""
        notes = [note] if note else []
        if found.value is not None and found.ci_low is None and found.low is not None and found.high is not None:
            notes.append(f"range {found.low:.4g} to {found.high:.4g}")
        self[metric] = Figure(
            metric=metric,
            unit=unit,
            value=found.value,
            ci_low=found.ci_low,
            ci_high=found.ci_high,
            n=found.n,
            note="; ".join(notes) or None,
        )
