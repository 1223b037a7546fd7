"""One benchmark's result: printed as JSON, and with --record appended to results.jsonl with machine and commit."""

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("results.jsonl")

# What is measured is what users run: modules that were compiled once, not at each start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def finish(
    benchmark: str,
    figures: Mapping[str, object],
    *,
    ok: bool,
    description: str,
    sources: Sequence[str] = (".",),
    record: bool | None = None,
) -> int:
    """Prints the figures; returns 0, or 1 when a stated limit was missed.

    `sources` are the paths (from the repository's top) whose code is measured: `dirty` is about them only. `record`
    None: as --record on the command line says, with nothing else there; `options` reads it before a long measurement.
    """
    if record is None:
        record = options(description).parse_args().record
    row = {
        "benchmark": benchmark,
        "utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", *sources)),
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
        },
        **figures,
        "ok": ok,
    }
    print(json.dumps(row, indent=2))
    if record:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return 0 if ok else 1


def options(description: str) -> argparse.ArgumentParser:
    """A parser that knows --record."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"append the result to {RESULTS.name}")
    return parser


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=RESULTS.parent.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str | None:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None
