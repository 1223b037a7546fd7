"""The noise of repeated real runs, and runs made with it: a smoothed bootstrap of their residuals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.comparing.measures import PARTS, RunMeasures, Value

PHASE = "phase_train_s"
STEP_TIME = "step_time_s"
RATES = ("throughput_tokens_per_s_gpu", "goodput_tokens_per_s_gpu")
SMOOTHING = 0.5  # of the residuals' own spread: what is added to each, so that no two runs are equal
LARGE = 0.01  # parts above this share of a step vary; those below are kept as they were
OCCASIONS = ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z")  # of the made baselines: what a check asks for


@dataclass(frozen=True, slots=True)
class Noise:
    """What real runs of one cell were: their mean parts and rates, and each run's residuals (of logs), by part."""

    template: RunMeasures
    parts: tuple[str, ...]
    means: np.ndarray
    rest_s: float  # of a step: parts too small to vary
    residuals: np.ndarray  # runs x parts
    rate_residuals: np.ndarray  # runs x rates: of rate x step time, tokens a step

    @classmethod
    def of(cls, runs: Sequence[RunMeasures]) -> "Noise":
        """The noise of runs of one cell; of several cells, pooled: each run's residuals about its own cell's mean.

        What is made is a run of the cell with the most runs; its parts vary that are large there and known everywhere.
        """
        cells: dict[tuple[str, int], list[RunMeasures]] = {}
        for run in runs:
            cells.setdefault((run.spec_digest, run.steps), []).append(run)
        several = [each for each in cells.values() if len(each) > 1]
        if not several:
            raise SystemExit("no cell with two runs or more: how runs vary is not seen")
        base = max(several, key=len)
        table = _table(base)
        small = table.mean(axis=0) <= LARGE * table.sum(axis=1).mean()
        vary = ~small & np.all([(_table(each) > 0).all(axis=0) for each in several], axis=0)
        logs = [np.log(_table(each)[:, vary]) for each in several]
        work = [
            np.log([[(run.value(name) or np.nan) * (run.value(STEP_TIME) or np.nan) for name in RATES] for run in each])
            for each in several
        ]
        return cls(
            template=base[0],
            parts=tuple(part.name for part, varies in zip(PARTS, vary, strict=True) if varies),
            means=np.log(table[:, vary]).mean(axis=0),
            rest_s=float(table[:, ~vary].sum(axis=1).mean()),
            residuals=np.concatenate([_residuals(each) for each in logs]),
            rate_residuals=np.concatenate([_residuals(each) for each in work]),
        )

    def quieter(self, sd: float) -> "Noise":
        """The same noise, scaled so that training varies by `sd` from run to run."""
        factor = sd / float(np.sqrt((self.residuals[:, self.parts.index(PHASE)] ** 2).mean()))
        return replace(self, residuals=factor * self.residuals, rate_residuals=factor * self.rate_residuals)

    def draw(
        self,
        rng: np.random.Generator,
        count: int,
        name: str,
        *,
        slower: float = 1.0,
        nights: Sequence[str] = OCCASIONS,
        between: float = 0.0,
    ) -> list[RunMeasures]:
        """Made runs, spread over `nights`, with the training of each `slower` times as long.

        `between`: by how much nights differ, the standard deviation of each part's log.
        """
        runs, parts = self.residuals.shape
        off = math.sqrt(0.5) * between * (rng.normal(size=(len(nights), 1)) + rng.normal(size=(len(nights), parts)))
        of_night = np.arange(count) % len(nights)
        spread = (self.residuals.T @ self.residuals / runs).reshape(parts, parts)
        picked = rng.integers(0, runs, count)
        more = rng.multivariate_normal(np.zeros(parts), SMOOTHING**2 * spread, count)
        seconds = np.exp(self.means + off[of_night] + (self.residuals[picked] + more) / np.sqrt(1 + SMOOTHING**2))
        seconds[:, self.parts.index(PHASE)] *= slower
        made = []
        for place in range(count):
            step = float(seconds[place].sum()) + self.rest_s
            values = dict(self.template.values)
            for part in PARTS:
                values[part.name] = Value(0.0)
            values |= {part: Value(float(s)) for part, s in zip(self.parts, seconds[place], strict=True)}
            values["phase_other_s"] = Value(self.rest_s)
            values[STEP_TIME] = Value(step)
            for column, rate in enumerate(RATES):
                tokens = (self.template.value(rate) or 0.0) * (self.template.value(STEP_TIME) or 0.0)
                values[rate] = Value(tokens * float(np.exp(self.rate_residuals[picked[place], column])) / step)
            night = nights[of_night[place]]
            made.append(replace(self.template, run_id=f"{name}-{place}", values=values, started_utc=night))
        return made


def _table(runs: Sequence[RunMeasures]) -> np.ndarray:
    return np.array([[run.value(part.name) or 0.0 for part in PARTS] for run in runs])


def _residuals(logs: np.ndarray) -> np.ndarray:
    """About their own mean, and so too small by what that mean took: put right."""
    return (logs - logs.mean(axis=0)) * np.sqrt(len(logs) / (len(logs) - 1))
