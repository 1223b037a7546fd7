"""One request for all who ask for the same thing at the same time: a group's trajectories begin with like queries."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Flights(Generic[T]):
    """Work under way, by key."""

    def __init__(self) -> None:
        self.shared = 0  # how often someone was given another's result
        self._tasks: dict[Hashable, asyncio.Task[T]] = {}

    async def join(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work under this key, begun now if it isn't under way.

        A caller that is cancelled leaves the others their result. Raises what the work raises.
        """
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(start())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        else:
            self.shared += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise RuntimeError("closed while the work was under way") from None
            raise

    async def close(self) -> None:
        """Cancels what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: Hashable, task: asyncio.Task[T]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # read, or the loop reports it when every caller has gone
