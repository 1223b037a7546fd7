"""How long `bench --help` takes, against a Python that does nothing.

Both are started by turns; the figure is the ratio of the medians. `-X importtime` names what is to blame when it grows.
"""

import statistics
import subprocess
import sys
import time

from tracked import finish

ROUNDS = 25
LIMIT_RATIO = 10.0
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "bench": [sys.executable, "-c", "import sys; from harness.cli import main; sys.argv = ['bench', '--help']; main()"],
}


def main() -> int:
    """Runs both, prints the figures."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append((time.perf_counter() - began) * 1e3)
    median = {name: round(statistics.median(values), 1) for name, values in times.items()}
    ratio = median["bench"] / median["python"]
    return finish(
        "help_start",
        {
            "ms": median,
            "ms_best": {name: round(min(values), 1) for name, values in times.items()},
            "ratio": round(ratio, 2),
            "limits": {"ratio": LIMIT_RATIO},
            "rounds": ROUNDS,
        },
        ok=ratio <= LIMIT_RATIO,
        description=__doc__ or "",
        sources=("harness/cli", "harness/__init__.py", "benchmarks/help_start.py"),
    )


if __name__ == "__main__":
    sys.exit(main())
