"""What recording costs a real SkyRL run: pairs of runs, one recorded in full and one with its steps only.

Pairs alternate their order, so that a drifting machine favours neither. The figure is the ratio of the median step
time inside the steady window, on the log scale, with a two-sided 90 % t interval over pairs. The limit of 1.05 is met
when the interval's upper end is below it; with few pairs on a shared machine the interval may be too wide to say.

    PAIRS=3 python benchmarks/recording_pair.py [--record]
"""

import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tracked import finish, options

from adapters.base import load_adapter
from harness.protocol.recorder import DETAIL_VARIABLE
from harness.run import run
from harness.specs import resolve
from results.stats import t_quantile
from results.store import load_run

LIMIT = 1.05
STEPS = 16


def step_seconds(folder: Path, recorded: bool) -> float:
    """Median seconds of a step after warm-up, of one run."""
    os.environ[DETAIL_VARIABLE] = "all" if recorded else "steps"
    flags = {"framework": "skyrl", "placement": "colocated", "device": "cpu", "steps": STEPS}
    spec = resolve(flags).spec
    name = f"{'on' if recorded else 'off'}-{len(list(folder.iterdir()))}"
    result = run(spec, load_adapter("skyrl"), folder, name=name)
    if result.exit_code:
        raise SystemExit(f"{name}: {result.status}: {result.reason} (see {result.run_dir / 'logs'})")
    steps = load_run(result.run_dir).frame("steps").sort_values("step").iloc[spec.warmup_steps :]
    return float(((steps["end_ns"] - steps["start_ns"]) / 1e9).median())


def main() -> int:
    """Runs the pairs, prints the figures."""
    record = options(__doc__ or "").parse_args().record  # before minutes of runs: a mistyped flag is told at once
    given = os.environ.get("PAIRS", "3")
    if not given.isdigit() or int(given) < 1:
        raise SystemExit(f"PAIRS = {given}: allowed is a whole number from 1 up")
    pairs = int(given)
    logs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs):
            order = (True, False) if number % 2 == 0 else (False, True)
            seconds = {recorded: step_seconds(Path(folder), recorded) for recorded in order}
            logs.append(math.log(seconds[True] / seconds[False]))
            print(f"pair {number + 1}: on {seconds[True]:.3f} s, off {seconds[False]:.3f} s", file=sys.stderr)
    mean = statistics.fmean(logs)
    half = (
        t_quantile(0.95, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    )
    figures: dict[str, float | None] = {
        "pairs": pairs,
        "ratio": round(math.exp(mean), 4),
        "low": round(math.exp(mean - half), 4) if math.isfinite(half) else None,
        "high": round(math.exp(mean + half), 4) if math.isfinite(half) else None,
    }
    ok = figures["high"] is not None and figures["high"] <= LIMIT
    return finish(
        "recording_pair",
        figures,
        ok=ok,
        description=__doc__ or "",
        sources=("harness/protocol", "adapters", "workloads"),
        record=record,
    )


if __name__ == "__main__":
    raise SystemExit(main())
