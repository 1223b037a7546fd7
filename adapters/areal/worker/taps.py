"""Taps on AReaL's own timers and on the named functions between them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from adapters.child.track import Track, require


def tap_timers(track: Track) -> None:
    """Every `record_timing` of the trainer enters and leaves the track; the timing itself works as before.

    Raises:
        TapError: record_timing is gone.
    """
    from areal.utils import stats_tracker

    module: Any = stats_tracker
    real: Any = require(module, "record_timing")

    @contextmanager
    def record_timing(key: str) -> Iterator[None]:
        with track.block(key), real(key):
            yield

    module.record_timing = record_timing


def tap_function(owner: Any, name: str, native: str, track: Track) -> None:
    """Gives a named framework function its own block on the track.

    Raises:
        TapError: the function is gone.
    """
    real: Callable[..., Any] = require(owner, name)  # type: ignore[assignment]

    @functools.wraps(real)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        with track.block(native):
            return real(*args, **kwargs)

    setattr(owner, name, tapped)
