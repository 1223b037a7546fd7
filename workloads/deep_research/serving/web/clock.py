"""The time that limits, back-off and caches go by; tests give their own."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def wall(self) -> float:
        """Seconds since 1970, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemClock:
    """The machine's."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970, UTC."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)
