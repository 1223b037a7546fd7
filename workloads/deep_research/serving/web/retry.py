"""Asking again: back-off, what a server says about when, and giving a provider a rest."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from workloads.deep_research.serving.web.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how long between.

    The wait before attempt n + 1 is drawn evenly from 0 to min(cap, base * 2**n) ("full jitter", M. Brooker, AWS
    Architecture Blog 2015: of the jittered forms the one with the least work for the same completion time).
    """

    attempts: int = 4  # in all
    base_s: float = 0.5
    cap_s: float = 20.0
    retry_after_cap_s: float = 60.0  # a server that asks for a longer pause is not waited for

    def wait_s(self, attempt: int, retry_after_s: float | None, draw: random.Random) -> float | None:
        """Seconds to wait after attempt `attempt` (from 0) failed; None if there is no next one.

        What the server asked for is a lower bound: the jitter is added to it, or all who were told the same come
        back in the same moment.
        """
        if attempt + 1 >= self.attempts:
            return None
        if retry_after_s is not None and retry_after_s > self.retry_after_cap_s:
            return None
        jitter = draw.uniform(0, min(self.cap_s, self.base_s * 2**attempt))
        return jitter + (retry_after_s or 0.0)


def retry_after_s(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Seconds that an answer's Retry-After asks to wait (RFC 9110, 10.2.3: seconds or a date); None without one."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - clock.wall())


class Breaker:
    """Leaves a provider alone for a while after it failed several times in a row, then tries it with one request."""

    def __init__(self, clock: Clock, *, failures: int = 5, rest_s: float = 30.0) -> None:
        self._clock = clock
        self._limit = failures
        self._rest_s = rest_s
        self._failures = 0
        self._open_until: float | None = None
        self._trying = False
        self.reason = ""
        self.trips = 0

    def admits(self) -> bool:
        """Whether a request may go now. One that may must be followed by `succeeded`, `failed`, `trip` or `left`."""
        if self._open_until is None:
            return True
        if self._trying or self._clock.monotonic() < self._open_until:
            return False
        self._trying = True
        return True

    def succeeded(self) -> None:
        """The request was answered."""
        self._failures = 0
        self._open_until = None
        self._trying = False

    def failed(self, reason: str) -> None:
        """It failed in a way that says something about the provider."""
        self._failures += 1
        if self._trying or self._failures >= self._limit:
            self.trip(self._rest_s, reason)

    def trip(self, seconds: float, reason: str) -> None:
        """Nothing is to be asked for a time."""
        self._open_until = self._clock.monotonic() + seconds
        self._trying = False
        self.reason = reason
        self.trips += 1

    def left(self) -> None:
        """It ended without a word about the provider (the caller went away)."""
        self._trying = False
