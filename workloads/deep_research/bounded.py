"""A time limit that holds whatever the call does."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class LateError(Exception):
    """A call did not return within its limit."""


_left_behind: set["asyncio.Future[Any]"] = set()


async def within(call: Awaitable[T], seconds: float) -> T:
    """The call's result, or `LateError` after `seconds` even if the call ignores its cancellation.

    Raises:
        LateError: it did not return in time; it was cancelled and left behind.
        RuntimeError: something else cancelled the call.
        asyncio.CancelledError: the caller was cancelled, and the call with it.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if not done:
        _leave(task)
        raise LateError
    if task.cancelled():  # not we were cancelled, but the call under us: that is a failure of the call
        raise RuntimeError("the call was cancelled from outside")
    return task.result()


def _leave(task: "asyncio.Future[Any]") -> None:
    """Cancels a call without waiting for it, and keeps it referenced until it ends."""

    def ended(future: "asyncio.Future[Any]") -> None:
        _left_behind.discard(future)
        if not future.cancelled():
            future.exception()  # read, or the loop reports it as never retrieved

    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(ended)
