"""Async foretold from one colocated run of the same framework, on CPU, and held against runs that followed.

Runs, one after the other: one colocated run (seed 1), then RUNS async ones with seeds it has not seen, each long enough
for 30 steady steps. The calibration sees the colocated run only. Runs that lie in the folder already are used again, so
that an interrupted benchmark goes on where it was. On CPU both pools share the cores: this checks the planner's
arithmetic, and is no statement about GPUs.

Named alternative: the naive guess, max(generation, training) + sync.
Runs of fewer than 30 steady steps are no evidence: they are named, and nothing is said.
Limit: the error of the step time is at most 15 %, or the measured half-width if that is more; the 80 % interval holds
the measured mean; and the error is less than the naive guess's.
"""

import math
import statistics
import subprocess
import sys
from pathlib import Path

from tracked import finish
from tracked import options as options_of

from results.comparing.kept import measures_of
from results.comparing.measures import RunMeasures
from results.comparing.welch import t_quantile
from results.metrics import compute
from results.planner.calibration.from_run import calibrate_run
from results.planner.candidates import Candidate, naive_step_s
from results.planner.plans import plan
from results.planner.predictions import Range
from results.store import load_run

RUNS = 3
COLOCATED_STEPS, ASYNC_STEPS = 14, 38
STEADY_STEPS = 30
DRAWS = 240  # five times the usual: which side of a limit a prediction lies must not hang on its own chance
LIMIT = 0.15
SECONDS_PER_RUN = 900


def main() -> int:
    """Runs, predicts, compares."""
    parser = options_of(__doc__ or "")
    parser.add_argument("--framework", choices=["skyrl", "areal", "verl", "simulated"], required=True)
    parser.add_argument("--runs-dir", type=Path, required=True, help="where the runs lie, and are put")
    options = parser.parse_args()
    folder = options.runs_dir / options.framework
    colocated = made(folder, options.framework, "colocated", 1, COLOCATED_STEPS)
    follow = [made(folder, options.framework, "async", 2 + k, ASYNC_STEPS) for k in range(RUNS)]
    run = load_run(colocated)
    calibration = calibrate_run(run, compute(run))
    candidate = Candidate(placement="async", train_gpus=1, rollout_gpus=1, max_staleness=1)
    (found,) = plan(calibration, [candidate], gpus=1, draws=DRAWS).predictions
    measured = [measures_of(path) for path in follow]
    steps = steps_of(measured)
    verdict = held(steps, found.step_s, naive_step_s(calibration))
    result = {
        "framework": options.framework,
        "device": "cpu",
        "calibrated_on": calibration.name,
        "colocated_step_s": calibration.step_s,
        "steady_steps": [one.steps for one in measured],
        **verdict,
        "leans_on": list(found.leans_on),
        "said_of_colocated": said(measures_of(colocated)),
        "said_of_async": [said(one) for one in measured],
    }
    return finish("predict_async", result, ok=bool(verdict["ok"]), description=__doc__ or "", record=options.record)


def held(steps: list[float], predicted: Range, naive: float | None) -> dict[str, object]:
    """The prediction beside the runs' steps, in seconds, with what decides."""
    mean, count = statistics.fmean(steps), len(steps)
    half = t_quantile(0.975, count - 1) * statistics.stdev(steps) / math.sqrt(count) if count > 1 else 0.0
    error, allowed = predicted.value / mean - 1, max(LIMIT, half / mean)
    naive_error = None if naive is None else naive / mean - 1
    inside = predicted.low <= mean <= predicted.high
    beats = naive_error is not None and abs(error) < abs(naive_error)
    return {
        "measured_step_s": steps,
        "measured_mean_s": mean,
        "measured_half_width_s": half,
        "predicted_step_s": {"median": predicted.value, "low80": predicted.low, "high80": predicted.high},
        "error": error,
        "naive_step_s": naive,
        "naive_error": naive_error,
        "allowed_error": allowed,
        "within": abs(error) <= allowed,
        "interval_holds_the_mean": inside,
        "beats_naive": beats,
        "ok": abs(error) <= allowed and inside and beats,
    }


def steps_of(measured: list[RunMeasures]) -> list[float]:
    """Their mean step times; too short a run ends the benchmark."""
    if short := [one.run_id for one in measured if one.steps < STEADY_STEPS]:
        raise SystemExit(f"{', '.join(short)}: fewer than {STEADY_STEPS} steady steps")
    return [step_of(one) for one in measured]


def made(folder: Path, framework: str, placement: str, seed: int, steps: int) -> Path:
    """The folder of that run: the one that is there, finished, or a new one."""
    place = folder / f"{placement}-{seed}"
    for path in sorted(place.glob("*/sealed")):
        if measures_of(path.parent).status == "finished":
            return path.parent
    words = ["--framework", framework, "--placement", placement, "--device", "cpu", "--seed", str(seed)]
    command = [
        str(Path(sys.executable).with_name("bench")),
        "run",
        *words,
        "--steps",
        str(steps),
        "--runs-dir",
        str(place),
    ]
    subprocess.run(command, check=True, timeout=SECONDS_PER_RUN, stdin=subprocess.DEVNULL)
    return next(path.parent for path in sorted(place.glob("*/sealed")))


def said(one: RunMeasures) -> str:
    """What a comparison would say beside the run; "" for nothing."""
    return "; ".join([*one.problems, *one.notes])


def step_of(one: RunMeasures) -> float:
    """Its mean step time."""
    value = one.value("step_time_s")
    if value is None:
        raise SystemExit(f"{one.run_id}: {one.why('step_time_s')}")
    return value


if __name__ == "__main__":
    sys.exit(main())
