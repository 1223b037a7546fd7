"""Taps on verl's own timers and on the named functions between them, in the controller's process."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from adapters.child.track import Track, require


def trainer_modules() -> list[Any]:
    """The modules of the V1 trainer, each of which imports the timer by name."""
    import verl.trainer.ppo.v1.trainer_base as base
    import verl.trainer.ppo.v1.trainer_separate_async as separate_async
    import verl.trainer.ppo.v1.trainer_sync as sync

    return [base, sync, separate_async]


def tap_timers(track: Track, modules: list[Any]) -> None:
    """Every `marked_timer` of those modules enters and leaves the track; the timer itself works as before.

    Raises:
        TapError: a module has no `marked_timer`.
    """
    for module in modules:
        module.marked_timer = _timed(track, require(module, "marked_timer"))


def _timed(track: Track, real: Any) -> Callable[..., Any]:
    @contextmanager
    def marked_timer(name: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with track.block(name), real(name, *args, **kwargs) as value:
            yield value

    return marked_timer


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
