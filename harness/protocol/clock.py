"""The clock of a run's events: the host's monotonic one, but in a simulation, which has a virtual one."""

import time
from collections.abc import Callable

_source: Callable[[], int] = time.monotonic_ns


def now_ns() -> int:
    """The moment, in ns of the monotonic axis of this host. A virtual clock begins at the real one's moment."""
    return _source()


def wall_ns() -> int:
    """Wall time at that moment, in ns since 1970: real, or as far ahead of it as the virtual clock is."""
    return time.time_ns() + _source() - time.monotonic_ns()


def use(source: Callable[[], int]) -> None:
    """From now on this process's events are told by `source` (`time.monotonic_ns` gives the real clock back)."""
    global _source
    _source = source
