"""Taps on SkyRL's own timers and on the named functions between them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from adapters.child.track import Track, require


def tap_timers(track: Track) -> None:
    """Every `Timer` of SkyRL enters and leaves the track; the timer itself works as before.

    Raises:
        TapError: Timer is gone, or has lost `__enter__`, `__exit__` or `message`.
    """
    from skyrl.train.utils import utils

    timer: Any = require(utils, "Timer")
    enter: Any = require(timer, "__enter__")
    leave: Any = require(timer, "__exit__")
    if "message" not in inspect.signature(timer.__init__).parameters:
        require(timer, "message")

    def __enter__(self: Any) -> Any:  # noqa: N807
        track.enter(self.message)
        return enter(self)

    def __exit__(self: Any, *args: Any) -> Any:  # noqa: N807
        try:
            return leave(self, *args)
        finally:
            track.leave(self.message)

    timer.__enter__ = __enter__
    timer.__exit__ = __exit__


def tap_function(owner: Any, name: str, native: str, track: Track) -> None:
    """Gives a named framework function its own block on the track.

    Raises:
        TapError: the function is gone.
    """
    real: Callable[..., Any] = require(owner, name)  # type: ignore[assignment]
    if inspect.iscoroutinefunction(real):

        @functools.wraps(real)
        async def tapped_async(*args: Any, **kwargs: Any) -> Any:
            with track.block(native):
                return await real(*args, **kwargs)

        setattr(owner, name, tapped_async)
        return

    @functools.wraps(real)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        with track.block(native):
            return real(*args, **kwargs)

    setattr(owner, name, tapped)


def unshuffle() -> None:
    """One unshuffled epoch: SkyRL's `build_dataloader` always shuffles, and rows are the plan's prompts.

    Raises:
        TapError: the loader's name is gone.
    """
    from skyrl.train.utils import trainer_utils

    real: Any = require(trainer_utils, "StatefulDataLoader")

    def loader(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **{**kwargs, "shuffle": False, "generator": None})

    trainer_utils.StatefulDataLoader = loader
