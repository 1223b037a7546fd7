"""Whether a regression check keeps its word: false alarms, planted slow-downs, and power, with real runs' noise.

The noise is that of repeated real runs of one cell (--noise: a folder of their measures, as a baseline is kept). First
those runs themselves: they are split into two halves in every way (A/A), and each split is checked. Then runs are made
by a smoothed bootstrap of their residuals (Silverman and Young 1987, Biometrika 74): a run's parts of a step are moved
together, by what some real run was off, and a little more; so the spread and how the parts vary together are those
seen. Every made check is a new baseline and new candidates, judged by `bench check`'s own code.

Nights that differ by more than their runs are a study of their own (--between): each night's parts are off by that
much besides, half of the variance by the same amount for all parts. A baseline of several nights is held against the
runs of other nights.

    python benchmarks/false_alarms.py --make 12 --framework verl --noise NEW      (the noise, made first)
    python benchmarks/false_alarms.py [--noise NEW] [--record] [--figure docs/power-curve.svg]
    python benchmarks/false_alarms.py [--noise NEW] [--record] --between 0.05 [--within 0.01]
"""

import io
import itertools
import math
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from run_noise import OCCASIONS, PHASE, STEP_TIME, Noise
from scipy.special import betaincinv
from tracked import finish, options

from results.baselines import between as model
from results.baselines.check import Outcome, check
from results.comparing.blame import Blame, blame
from results.comparing.claims import GATE_RULE, GateRule
from results.comparing.kept import load_baseline, measures_of, write_measures
from results.comparing.measures import RunMeasures
from results.comparing.welch import compare, detectable_shift, t_quantile
from results.store import is_run_folder

NOISE = Path(__file__).with_name("noise")
GATES = {STEP_TIME: None, PHASE: None, "goodput_tokens_per_s_gpu": None}
SLOWER = (1.15, 1.05)
NIGHT_RUNS = 3  # runs of a night, as the nightly workflow makes them
NIGHTS = ((3, 1), (5, 1), (8, 1), (12, 1), (16, 8))  # of a baseline, and of the new runs
CURVE = tuple(range(1, 21))  # per cent
MOST = 200  # candidates


@dataclass(slots=True)
class Tally:
    """Checks of one kind: how many failed at all, failed by the training, were underpowered, and how blame fell."""

    checks: int = 0
    failed: int = 0
    by_phase: int = 0
    underpowered: int = 0
    blamed: int = 0
    shown: int = 0

    def add(self, baseline: Sequence[RunMeasures], candidates: Sequence[RunMeasures], *, blames: bool = True) -> None:
        """One more check; `blames`: and who is blamed, and whether the training's change is shown."""
        (cell,) = check(candidates, baseline, GATES)
        self.checks += 1
        self.failed += cell.outcome is Outcome.FAILED
        self.underpowered += any(gate.underpowered for gate in cell.gates)
        self.by_phase += any(gate.failed and gate.measure.name == PHASE for gate in cell.gates)
        if not blames:
            return
        found = blame(baseline, candidates)
        self.blamed += isinstance(found, Blame) and found.culprit is not None and found.culprit.name == PHASE
        contrast = compare([run.value(PHASE) for run in baseline], [run.value(PHASE) for run in candidates], "ratio")
        self.shown += contrast is not None and contrast.low is not None and contrast.low > 1

    def share(self, count: int) -> float:
        """A count as a share of the checks."""
        return round(count / self.checks, 4)


def upper_bound(count: int, of: int, confidence: float = 0.95) -> float:
    """The one-sided exact upper bound of a rate (Clopper and Pearson 1934, Biometrika 26)."""
    return 1.0 if count == of else float(betaincinv(count + 1, of - count, confidence))


def splits(runs: Sequence[RunMeasures]) -> Tally:
    """A/A over all splits of the real runs into halves. The splits share runs: their rate has no simple interval."""
    tally = Tally()
    half = len(runs) // 2
    for chosen in itertools.combinations(range(len(runs)), half):
        if len(runs) == 2 * half and 0 not in chosen:
            continue  # the same split, turned round
        a = [_on(run, place) for place, run in enumerate(runs) if place in chosen]
        tally.add(a, [run for place, run in enumerate(runs) if place not in chosen])
    return tally


def _on(run: RunMeasures, place: int) -> RunMeasures:
    return replace(run, started_utc=OCCASIONS[place % len(OCCASIONS)])


def make_runs(count: int, framework: str, placement: str, steps: int, folder: Path) -> None:
    """Makes real runs of one cell, one after the other, and keeps the measures of each as it ends.

    A run that fails is told and left out.
    """
    from harness.cli import call

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        asked = ["run", "--framework", framework, "--placement", placement, "--steps", str(steps), "--runs-dir", place]
        for number in range(1, count + 1):
            with redirect_stdout(io.StringIO()):
                code = call(asked)
            made = max(
                (path for path in Path(place).iterdir() if is_run_folder(path)), key=lambda path: path.stat().st_mtime
            )
            print(f"run {number} of {count}: exit {code}", file=sys.stderr)
            if not code:
                run = measures_of(made)
                write_measures(folder / f"{run.run_id}.parquet", [run])


def made_checks(
    noise: Noise, count: int, baseline: int, candidates: int, *, slower: float = 1.0, seed: int = 1
) -> Tally:
    """Made checks, each with runs of its own."""
    rng = np.random.default_rng((seed, round(1000 * slower)))
    tally = Tally()
    for _ in range(count):
        tally.add(
            noise.draw(rng, baseline, "baseline"),
            noise.draw(rng, candidates, "candidate", slower=slower),
        )
    return tally


def nights_checks(
    noise: Noise, count: int, nights: int, new_nights: int, between: float, *, slower: float = 1.0, seed: int = 3
) -> tuple[Tally, Tally]:
    """Made checks of NIGHT_RUNS new runs on each of `new_nights`, against as many on each of `nights` before.

    Beside them, the same runs by a test that takes them as independent.
    """
    rng = np.random.default_rng((seed, nights, new_nights, round(1000 * slower)))
    tally, plain, least = Tally(), Tally(), model.LEAST_OCCASIONS
    for _ in range(count):
        old = noise.draw(rng, NIGHT_RUNS * nights, "baseline", nights=dates(0, nights), between=between)
        new = noise.draw(
            rng,
            NIGHT_RUNS * new_nights,
            "candidate",
            slower=slower,
            nights=dates(nights, new_nights),
            between=between,
        )
        tally.add(old, new, blames=False)
        model.LEAST_OCCASIONS = MOST
        try:
            plain.add(old, new, blames=False)
        finally:
            model.LEAST_OCCASIONS = least
    return tally, plain


def dates(first: int, count: int) -> list[str]:
    """Starts of that many nights, a day apart."""
    begin = datetime(2026, 11, 1, 2, tzinfo=UTC)
    return [(begin + timedelta(days=night)).isoformat() for night in range(first, first + count)]


def between_nights(noise: Noise, count: int, between: float) -> dict[str, dict[str, float | int]]:
    """False alarms of nights that differ, by how many nights there are; and those of a test that knows no nights."""
    found: dict[str, dict[str, float | int]] = {}
    for nights, new_nights in NIGHTS:
        alike, plain = nights_checks(noise, count, nights, new_nights, between)
        slow, _ = nights_checks(noise, max(1, count // 8), nights, new_nights, between, slower=1.15)
        found[f"{nights} + {new_nights}"] = {
            "checks": alike.checks,
            "failed": alike.failed,
            "failed_upper_95": round(upper_bound(alike.failed, alike.checks), 4),
            "underpowered": alike.share(alike.underpowered),
            "failed_without_the_model": plain.share(plain.failed),
            "slower_15_failed": slow.share(slow.failed),
        }
    return found


def study_nights(noise: Noise, count: int, between: float, within: float, record: bool) -> int:
    """The study of nights that differ, printed."""
    nights = between_nights(noise, count, between)
    base = noise.template
    return finish(
        "false_alarms_between_nights",
        {
            "cell": f"{base.framework} {base.placement} {base.device}",
            "runs": len(noise.residuals),
            "between": between,
            "within": round(within, 4),
            "runs_a_night": NIGHT_RUNS,
            "nights": nights,
            "limits": {"failed_upper_95": 0.01},
        },
        ok=all(each["failed_upper_95"] <= 0.01 for each in nights.values()),
        description=__doc__ or "",
        sources=("results/comparing", "results/baselines", "benchmarks/false_alarms.py", "benchmarks/run_noise.py"),
        record=record,
    )


def runs_needed(sd: float, rule: GateRule = GATE_RULE, measures: int = len(GATES)) -> int | None:
    """Candidates that a check needs, with twice as many baseline runs, so that it is not underpowered.

    `sd`: of runs, on logs. None: more than MOST.
    """
    for count in range(2, MOST + 1):
        a, b = 1 / (2 * count), 1 / count
        df = (a + b) ** 2 / (a**2 / (2 * count - 1) + b**2 / (count - 1))  # Welch's, at equal spreads
        se = sd * math.sqrt(a + b)
        shift = detectable_shift(df, rule.alpha / measures, rule.power, one_sided=True)
        beyond = math.log1p(rule.tolerance) + t_quantile(rule.power, df) * se
        if shift is not None and max(shift * se, beyond) <= math.log1p(rule.most_detectable):
            return count
    return None


def draw_curve(path: Path, curve: dict[str, dict[str, float]], caption: str) -> None:
    """The power curve as an SVG, without a date in it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "power-curve"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6))
    slower = [int(name) for name in curve]
    for key, label, style in (("found", "check fails", "-"), ("shown", "interval off 1 (reported)", "--")):
        axes.plot(slower, [100 * curve[str(each)][key] for each in slower], style, label=label, marker="o", ms=3)
    axes.axvline(10, color="0.6", lw=0.8)
    axes.annotate("tolerance", (10, 3), xytext=(4, 0), textcoords="offset points", color="0.4", fontsize=8)
    axes.axhline(95, color="0.8", lw=0.8)
    axes.set(xlabel="training slower by, %", ylabel="of checks, %", xlim=(0, 20.5), ylim=(-2, 102))
    axes.legend(frameon=False, fontsize=8)
    axes.set_title(caption, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Runs the study, prints the figures."""
    parser = options(__doc__ or "")
    parser.add_argument("--noise", type=Path, default=NOISE, help="measures of real runs of one cell")
    parser.add_argument("--checks", type=int, default=2000, help="made A/A checks (default: %(default)s)")
    parser.add_argument("--injected", type=int, default=500, help="checks of each slow-down (default: %(default)s)")
    parser.add_argument("--curve", type=int, default=300, help="checks of each point of the curve; 0: none")
    parser.add_argument("--between", type=float, default=0.0, metavar="SD", help="how nights differ, e.g. 0.05; 0: not")
    parser.add_argument("--within", type=float, metavar="SD", help="scale the noise: how training varies, e.g. 0.01")
    parser.add_argument("--candidates", type=int, help="runs that are checked; default: as many as the noise needs")
    parser.add_argument("--baseline", type=int, help="runs of a made baseline; default: twice as many")
    parser.add_argument("--make", type=int, default=0, metavar="N", help="make N real runs first, and add to --noise")
    parser.add_argument("--framework", default="verl", help="of --make (default: %(default)s)")
    parser.add_argument("--placement", default="colocated", help="of --make (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=16, help="of --make (default: %(default)s)")
    parser.add_argument("--figure", type=Path, help="where to draw the power curve")
    given = parser.parse_args()
    if given.make:
        make_runs(given.make, given.framework, given.placement, given.steps, given.noise)
    runs = [run for run in load_baseline(given.noise) if not run.problems]
    noise = Noise.of(runs)
    if given.within:
        noise = noise.quieter(given.within)
    spread = {part: float(s) for part, s in zip(noise.parts, np.sqrt((noise.residuals**2).mean(axis=0)), strict=True)}
    if given.between:
        return study_nights(noise, given.checks, given.between, given.within or spread[PHASE], given.record)
    candidates = given.candidates or runs_needed(spread[PHASE]) or MOST
    sizes = (given.baseline or 2 * candidates, candidates)
    base = noise.template
    real = splits([run for run in runs if (run.spec_digest, run.steps) == (base.spec_digest, base.steps)])
    alike = made_checks(noise, given.checks, *sizes)
    slow = {factor: made_checks(noise, given.injected, *sizes, slower=factor) for factor in SLOWER}
    curve = {}
    for per_cent in CURVE if given.curve else ():
        point = made_checks(noise, given.curve, *sizes, slower=1 + per_cent / 100, seed=2)
        curve[str(per_cent)] = {"found": point.share(point.by_phase), "shown": point.share(point.shown)}
    bound = upper_bound(alike.failed, alike.checks)
    if given.figure and curve:
        about = (
            f"{runs[0].framework} {runs[0].placement}, noise of {len(runs)} runs; {sizes[0]} + {sizes[1]} runs a check"
        )
        draw_curve(given.figure, curve, about)
    large, small = slow[1.15], slow[1.05]
    return finish(
        "false_alarms",
        {
            "cell": f"{base.framework} {base.placement} {base.device}",
            "runs": len(noise.residuals),
            "cells": len({(run.spec_digest, run.steps) for run in runs}),
            "steps_per_run": base.steps,
            "part_sd": {part: round(each, 4) for part, each in spread.items()},
            "real_splits": real.checks,
            "real_splits_failed": real.failed,
            "made_checks": alike.checks,
            "made_failed": alike.failed,
            "made_failed_upper_95": round(bound, 4),
            "made_underpowered": alike.share(alike.underpowered),
            "sizes": list(sizes),
            "injected": large.checks,
            "slower_15": {
                "found": large.share(large.by_phase),
                "blamed": large.share(large.blamed),
                "underpowered": large.share(large.underpowered),
            },
            "slower_5": {"failed": small.share(small.failed), "reported": small.share(small.shown)},
            "curve": curve,
            "candidates_needed": {f"{sd:.0%}": runs_needed(sd) for sd in (0.01, 0.02, 0.03, 0.05, 0.08, 0.15)},
            "limits": {"made_failed_upper_95": 0.01, "found_15": 0.95, "blamed_15": 0.95},
        },
        ok=bound <= 0.01 and large.share(large.by_phase) >= 0.95 and large.share(large.blamed) >= 0.95,
        description=__doc__ or "",
        sources=("results/comparing", "results/baselines", "benchmarks/false_alarms.py", "benchmarks/run_noise.py"),
        record=given.record,
    )


if __name__ == "__main__":
    sys.exit(main())
