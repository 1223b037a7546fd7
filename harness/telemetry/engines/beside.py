"""The scraper as the sampler's child: started with it, ended with it, never in its threads."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PERIOD_VARIABLE = "BENCH_ENGINE_SCRAPE_S"  # seconds between two calls to an engine; 0: no engine is scraped
PERIOD_S = 1.0
FOLDER = "engines"  # under the folder of the samples
GRACE_S = 2.0  # the scraper itself waits at most 1 s; with this the sampler keeps within its own grace


class EngineScraper:
    """A handle on the scraper process; None inside where there is none."""

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._process = process

    @classmethod
    def start(cls, *, run_id: str, out: Path, events: Path, environ: Mapping[str, str] = os.environ) -> "EngineScraper":
        """Starts it. `out` is the samples' folder.

        Raises:
            ValueError: the period that the environment asks for is not one.
            OSError: the process cannot be started.
        """
        period_s = _period(environ)
        if not period_s:
            return cls(None)
        arguments = ["--run-id", run_id, "--out", str(out / FOLDER), "--events", str(events)]
        command = [sys.executable, "-P", "-m", "harness.telemetry.engines", *arguments, "--period", f"{period_s:g}"]
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE))

    def stop(self) -> str | None:
        """Ends it, and waits a moment; what went wrong, if something did."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            code = process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"the engine scraper did not end within {GRACE_S:g} s, and was killed"
        return None if code == 0 else f"the engine scraper ended with code {code}"


def _period(environ: Mapping[str, str]) -> float:
    text = environ.get(PERIOD_VARIABLE) or f"{PERIOD_S:g}"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value and not 0.05 <= value <= 60:
        raise ValueError(f"{PERIOD_VARIABLE} = {text}: allowed is 0, or seconds from 0.05 to 60")
    return value
