"""Occasions: which runs were made together, and so share what a machine is like at one time.

An occasion is a stretch of runs in which each began within OCCASION of the one before, and all within LONGEST of the
first. Without the second rule a machine that never rests would have one occasion for ever.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from results.comparing.measures import RunMeasures

OCCASION = timedelta(hours=6)  # between a run and the one before; began it later, it is of another occasion
LONGEST = timedelta(hours=24)  # from the first run of an occasion to its last


def began(run: RunMeasures) -> datetime | None:
    """When a run began; None where that is not on record."""
    if not run.started_utc:
        return None
    start = datetime.fromisoformat(run.started_utc)
    return start if start.tzinfo else start.replace(tzinfo=UTC)


def grouped(runs: Iterable[RunMeasures]) -> list[list[RunMeasures]]:
    """Runs by occasion, in time; those without a start on record are of no occasion, and in none of the groups."""
    dated = [(start, run.run_id, run) for run in runs if (start := began(run)) is not None]
    groups: list[list[RunMeasures]] = []
    first = last = None
    for start, _, run in sorted(dated, key=lambda each: each[:2]):
        if first is None or last is None or start - last > OCCASION or start - first > LONGEST:
            groups.append([])
            first = start
        groups[-1].append(run)
        last = start
    return groups


def occasions(runs: Iterable[RunMeasures]) -> int:
    """On how many occasions runs were made."""
    return len(grouped(runs))
