"""How fast a provider is asked: requests a second, and how many at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from workloads.deep_research.serving.web.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Limits of one provider; None is no limit."""

    requests_per_s: float | None = None
    concurrency: int | None = None
    burst: int = 1  # requests that may follow at once after a pause

    def __post_init__(self) -> None:
        if self.requests_per_s is not None and not self.requests_per_s > 0:
            raise ValueError(f"requests a second must be above 0, not {self.requests_per_s}")
        if self.burst < 1 or (self.concurrency is not None and self.concurrency < 1):
            raise ValueError("burst and concurrency must be at least 1")


class LimitedError(Exception):
    """The turn would come too late."""


class Limiter:
    """A token bucket and a bound on how many hold a slot.

    The bucket is kept as the moment at which it would be full again (the generic cell rate algorithm of ATM's traffic
    control): one number, no timer. Waiters get their turns in the order in which they asked.
    """

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._places = asyncio.Semaphore(rate.concurrency) if rate.concurrency is not None else None
        self._full_at = clock.monotonic()
        self._held_until = self._full_at

    def hold(self, seconds: float) -> None:
        """Lets nothing through for a time: the provider said so."""
        self._held_until = max(self._held_until, self._clock.monotonic() + seconds)

    @asynccontextmanager
    async def slot(self, until: float) -> AsyncIterator[None]:
        """A turn, held for the body.

        Raises:
            LimitedError: it would come after `until` (of the clock's `monotonic`).
        """
        if self._places is None:
            await self._turn(until)
            yield
            return
        left = until - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left, 0)):
                await self._places.acquire()
        except TimeoutError:
            raise LimitedError from None
        try:
            await self._turn(until)
            yield
        finally:
            self._places.release()

    async def _turn(self, until: float) -> None:
        now = self._clock.monotonic()
        turn = max(now, self._held_until)
        if self._rate.requests_per_s is not None:
            interval = 1 / self._rate.requests_per_s
            full_at = max(self._full_at, now)
            turn = max(turn, full_at - (self._rate.burst - 1) * interval)
            if turn > until:
                raise LimitedError  # before anything is taken from the bucket
            self._full_at = max(full_at, turn) + interval
        while True:
            if turn > until:
                raise LimitedError
            if (wait := turn - self._clock.monotonic()) > 0:
                await self._clock.sleep(wait)
                continue
            if self._held_until <= self._clock.monotonic():
                return
            turn = self._held_until  # held while this one waited
