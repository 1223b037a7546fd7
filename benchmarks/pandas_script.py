"""What someone would write with pandas to see where time and joules went, without the care of the real accounts.

    python benchmarks/pandas_script.py RUN

Energy per phase of the train GPUs (power x time to the next reading, each in the phase that ran then), shares of the
phases, percentiles of turn and tool latencies. No clocks, gaps, resets, intervals, units or verdicts.
"""

import sys
from pathlib import Path

import pandas as pd


def main(run: Path) -> None:
    """Prints the figures."""
    tables = run / "tables"
    spans = pd.read_parquet(
        tables / "spans.parquet", columns=["phase", "pool", "container", "start_ns", "end_ns", "trajectory_id"]
    )
    train = spans[(spans["pool"] == "train") & ~spans["container"]].sort_values("start_ns")
    seconds = (train["end_ns"] - train["start_ns"]).groupby(train["phase"]).sum() / 1e9
    print(seconds / seconds.sum())
    for phase in ("generation", "tool"):
        mine = spans[spans["phase"] == phase]
        print(phase, ((mine["end_ns"] - mine["start_ns"]) / 1e9).quantile([0.5, 0.9, 0.95, 0.99]).to_dict())
    del spans
    samples = pd.read_parquet(tables / "samples.parquet", columns=["mono_ns", "gpu", "power_instant_watts"])
    samples = samples.dropna().sort_values("mono_ns")
    samples["joules"] = (
        samples["power_instant_watts"] * samples.groupby("gpu")["mono_ns"].diff(-1).abs().fillna(0) / 1e9
    )
    joined = pd.merge_asof(samples, train[["start_ns", "end_ns", "phase"]], left_on="mono_ns", right_on="start_ns")
    joined = joined[joined["mono_ns"] < joined["end_ns"]]
    print(joined.groupby("phase")["joules"].sum())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
