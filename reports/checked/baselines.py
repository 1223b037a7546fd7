"""A baseline in words, for the terminal."""

from results.baselines.check import LEAST_OCCASIONS, LEAST_RUNS, cell_name
from results.baselines.occasions import occasions
from results.baselines.store import Baseline


def lines(baseline: Baseline) -> list[str]:
    """Cells with their runs, who accepted them and why, what is ignored, and who is trusted."""
    said = [f"baseline {baseline.where}: {len(baseline.runs)} run(s)"]
    for cell in sorted({cell_name(run) for run in baseline.runs}):
        runs = [run for run in baseline.runs if cell_name(run) == cell]
        seen = occasions(runs)
        enough = len(runs) >= LEAST_RUNS and seen >= LEAST_OCCASIONS
        lacking = "" if enough else f" (a check needs {LEAST_RUNS} runs from {LEAST_OCCASIONS} occasions)"
        said += ["", f"{cell}: {len(runs)} run(s) from {seen} occasion(s){lacking}"]
        for run in runs:
            entry = baseline.accepted[run.run_id]
            machine = run.machine.get("gpus") or run.machine.get("cpu") or "machine unknown"
            said.append(f"  {run.run_id}  commit {run.commit or 'unknown'}, {machine}; {entry.utc} {entry.who}")
            said.append(f"    {entry.why}")
    if baseline.ignored:
        said += ["", "not used:", *(f"  {reason}" for reason in baseline.ignored)]
    return [*said, "", f"trusted: {', '.join(sorted(baseline.trusted)) or 'nobody yet'}"]
