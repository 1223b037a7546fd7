"""How long a comparison of 200 runs takes, beside a plain pandas script that computes the same aggregates.

One simulated run is made (or given with --run) and copied; each copy has a name of its own. Told are `kept`: as runs
leave their folders (they keep their measures); `computed`: the same with what they kept taken away, as after a change
of the code that measures, on --computed runs and all cores; `computed_alone`: that on one core; `pandas`: a script that
reads the runs' tables and takes step time, phases, throughput and tool latency per run, and Welch's t over runs (no
window rules, no accounts, no checks). The limit is on `kept`, 5 s for 200 runs.
"""

import io
import json
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy import stats
from tracked import finish, options

from harness.cli import call
from results.comparing import many
from results.comparing.kept import KEPT, stamp_of, write_measures
from results.comparing.measuring import measure_run
from results.store import load_run

LIMIT_S = 5.0
PHASES = ("train", "logprob", "weight_sync", "generation", "data", "advantage")


def plain(folders: list[Path]) -> dict[str, float]:
    """The aggregates of the runs by pandas alone, and the p value of each between the halves."""
    rows = []
    for folder in folders:
        tables = folder / "tables"
        steps = pd.read_parquet(tables / "steps.parquet", columns=["step", "end_ns"]).sort_values("step")
        begin, end = steps["end_ns"].iloc[1], steps["end_ns"].iloc[-1]
        count = len(steps) - 2
        spans = pd.read_parquet(tables / "spans.parquet")
        own = spans[spans["trajectory_id"].isna() & ~spans["container"]]
        seconds = (own["end_ns"].clip(upper=end) - own["start_ns"].clip(lower=begin)).clip(lower=0) / 1e9
        phases = seconds.groupby(own["phase"]).sum() / count
        turns = pd.read_parquet(tables / "turns.parquet", columns=["end_ns", "generated_tokens"])
        tools = pd.read_parquet(tables / "tool_calls.parquet", columns=["start_ns", "end_ns"])
        lives = pd.read_parquet(tables / "trajectories.parquet")
        used = lives[lives["consumed_ns"].between(begin, end, inclusive="right")]
        window = (end - begin) / 1e9
        row = {
            "step": window / count,
            "throughput": turns.loc[turns["end_ns"].between(begin, end), "generated_tokens"].sum() / window,
            "tool": ((tools["end_ns"] - tools["start_ns"])[tools["end_ns"].between(begin, end)] / 1e9).mean(),
            "staleness": (used["version_trained"] - used["version_first"]).mean(),
            "tokens": used["generated_tokens"].mean(),
        }
        rows.append(row | {phase: phases.get(phase, np.nan) for phase in PHASES})
    frame = pd.DataFrame(rows)
    frame *= np.random.default_rng(1).lognormal(0.0, 0.01, frame.shape)  # the runs are copies: a test needs a spread
    half = len(frame) // 2
    return {
        name: float(stats.ttest_ind(np.log(frame[name][:half]), np.log(frame[name][half:]), equal_var=False).pvalue)
        for name in frame
        if (frame[name] > 0).all()
    }


def timed(folder: Path) -> float:
    """Seconds of `bench compare` of the two halves, as its verb."""
    began = time.perf_counter()
    with redirect_stdout(io.StringIO()) as text:
        code = call(["compare", str(folder / "a"), str(folder / "b")])
    took = time.perf_counter() - began
    if code or "Where the change of a step comes from" not in text.getvalue():
        raise SystemExit(f"bench compare failed (exit {code})")
    return took


def cold_time(folder: Path, runs: list[Path], processes: int | None) -> float:
    """Seconds of a comparison whose runs keep no measures; `processes`: 1, or None for all cores."""
    for path in runs:
        (path / KEPT).unlink(missing_ok=True)
    with mock.patch.object(many, "cores", return_value=processes) if processes is not None else nullcontext():
        return timed(folder)


def copies(run: Path, folder: Path, count: int) -> list[Path]:
    """`count` runs like the one given, in two folders, each with a name and its measures, as runs leave them."""
    made = []
    for number in range(count):
        path = folder / ("a" if number < count // 2 else "b") / f"run-{number:03}"
        shutil.copytree(run, path, ignore=shutil.ignore_patterns("logs", "events", "samples", "figures", KEPT))
        meta = json.loads((path / "meta.json").read_text())
        (path / "meta.json").write_text(json.dumps({**meta, "run_id": path.name}))
        made.append(path)
    measured = measure_run(load_run(made[0]))
    rng = np.random.default_rng(1)
    for path in made:
        values = {
            name: type(value)(
                None if value.value is None else value.value * float(np.exp(rng.normal(0, 0.01))), value.why
            )
            for name, value in measured.values.items()
        }
        one = type(measured)(
            **{field: getattr(measured, field) for field in measured.__slots__ if field not in ("run_id", "values")},
            run_id=path.name,
            values=values,
        )
        write_measures(path / KEPT, [one], stamp=stamp_of(path))
    return made


def main() -> int:
    """Makes the runs, compares them three ways, prints the figures."""
    parser = options(__doc__ or "")
    parser.add_argument("--run", type=Path, help="a collected run folder to copy; default: a simulated one is made")
    parser.add_argument("--runs", type=int, default=200, help="runs compared (default: %(default)s)")
    parser.add_argument(
        "--computed", type=int, default=20, help="runs of the cold comparison, 6 or more (default: %(default)s)"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = given.run
        if run is None:
            command = [
                "run",
                "--framework",
                "simulated",
                "--placement",
                "colocated",
                "--runs-dir",
                str(folder / "runs"),
            ]
            with redirect_stdout(io.StringIO()):
                if call(command):
                    raise SystemExit("the simulated run failed")
            (run,) = (path for path in (folder / "runs").iterdir() if (path / "spec.json").is_file())
        made = copies(run, folder / "all", given.runs)
        timed(folder / "all")  # imports and the file cache are not what is measured, on either side
        kept = min(timed(folder / "all") for _ in range(3))
        times = []
        for _ in range(3):
            began = time.perf_counter()
            plain(made)
            times.append(time.perf_counter() - began)
        cold = copies(run, folder / "cold", given.computed)
        computed, alone = (cold_time(folder / "cold", cold, cores) for cores in (None, 1))
    pandas_s = min(times)
    return finish(
        "compare_runs",
        {
            "runs": given.runs,
            "kept_s": round(kept, 2),
            "pandas_s": round(pandas_s, 2),
            "ratio": round(kept / pandas_s, 3),
            "computed_runs": given.computed,
            "computed_s": round(computed, 2),
            "computed_s_per_run": round(computed / given.computed, 3),
            "computed_alone_s_per_run": round(alone / given.computed, 3),
            "computed_s_of_all_runs": round(computed / given.computed * given.runs, 1),  # extrapolated
            "pandas_s_per_run": round(pandas_s / given.runs, 4),
            "limits": {"kept_s": LIMIT_S},
        },
        ok=kept <= LIMIT_S,
        description=__doc__ or "",
        sources=("results", "reports/compared", "benchmarks/compare_runs.py"),
        record=given.record,
    )


if __name__ == "__main__":
    sys.exit(main())
