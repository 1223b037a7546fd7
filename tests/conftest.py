"""What a plain `pytest` leaves out is named at its end, with the reason and the way to run it."""

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

NEEDS = {
    "framework": "checks real runs that .ci/run makes first: BENCH_RUNS=<runs folder> pytest -m framework",
    "gpu": "needs an NVIDIA GPU: pytest -m gpu",
    "browser": "needs Chromium: pytest -m browser",
}
_LEFT_OUT = pytest.StashKey[dict[str, int]]()

# How long an example takes is the machine's affair.
settings.register_profile(
    "any machine", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Starts the count, and lets Ctrl-C reach what tests start.

    A shell starts what it runs in its background with SIGINT ignored, and children inherit that; a handler they don't.
    Options of this pytest that came by its environment are not meant for the ones that tests start.
    """
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):  # else its workers need them too
        os.environ.pop("PYTEST_ADDOPTS", None)
    config.stash[_LEFT_OUT] = {}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Counts what was left out, by marker."""
    for item in items:
        counts = item.config.stash[_LEFT_OUT]
        for marker in NEEDS:
            if item.get_closest_marker(marker) is not None:
                counts[marker] = counts.get(marker, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With several workers only they collect: each tells the process that reports."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Hears a worker; all collect the same."""
    node.config.stash[_LEFT_OUT].update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says it."""
    for marker, count in config.stash[_LEFT_OUT].items():
        terminalreporter.write_line(f"not run: {count} test(s) marked `{marker}`: {NEEDS[marker]}")
