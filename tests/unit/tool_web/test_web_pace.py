"""Pace, patience and rest: deterministic under a clock and a draw of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_servers import HighDraw, StepClock

from workloads.deep_research.serving.web.flights import Flights
from workloads.deep_research.serving.web.limiter import LimitedError, Limiter, Rate
from workloads.deep_research.serving.web.retry import Breaker, RetryPolicy, retry_after_s


def turns(rate: Rate, count: int, *, hold: float = 0.0, body_s: float = 0.0, until: float = 1e9) -> list[float | None]:
    """When each of `count` callers that come at once gets its turn, in seconds; None for one that gets none."""

    async def all_of_them() -> list[float | None]:
        clock = StepClock()
        start = clock.now
        limiter = Limiter(rate, clock)
        if hold:
            limiter.hold(hold)

        async def one() -> float | None:
            try:
                async with limiter.slot(start + until):
                    at = clock.now - start
                    if body_s:
                        await clock.sleep(body_s)
                    return at
            except LimitedError:
                return None

        return list(await asyncio.gather(*(one() for _ in range(count))))

    return asyncio.run(all_of_them())


def test_requests_a_second_are_kept_with_a_burst_first() -> None:
    assert turns(Rate(requests_per_s=2.0), 4) == pytest.approx([0, 0.5, 1.0, 1.5])
    assert turns(Rate(requests_per_s=2.0, burst=3), 5) == pytest.approx([0, 0, 0, 0.5, 1.0])
    assert turns(Rate(), 5) == [0, 0, 0, 0, 0]


def test_as_many_at_once_as_allowed() -> None:
    assert turns(Rate(concurrency=2), 5, body_s=3.0) == pytest.approx([0, 0, 3, 3, 6])


def test_a_turn_that_comes_too_late_is_refused_at_once_and_takes_nothing() -> None:
    assert turns(Rate(requests_per_s=1.0), 5, until=2.0) == [0, 1, 2, None, None]


def test_a_hold_stops_everyone_even_those_who_wait_already() -> None:
    assert turns(Rate(requests_per_s=1.0), 3, hold=10.0) == pytest.approx([10, 11, 12])

    async def held_while_waiting() -> float:
        clock = StepClock()
        limiter = Limiter(Rate(requests_per_s=1.0), clock)
        start = clock.now
        async with limiter.slot(1e9):
            pass
        waiter = asyncio.create_task(limiter.slot(1e9).__aenter__())
        await asyncio.sleep(0)
        limiter.hold(7.0)
        await waiter
        return clock.now - start

    assert asyncio.run(held_while_waiting()) == pytest.approx(7.0)


@given(st.floats(0.5, 50), st.integers(1, 5), st.integers(1, 12))
def test_no_window_has_more_than_rate_and_burst_allow(rate: float, burst: int, count: int) -> None:
    moments = [each for each in turns(Rate(requests_per_s=rate, burst=burst), count) if each is not None]
    assert len(moments) == count
    for index, first in enumerate(moments):
        for later, moment in enumerate(moments[index:], start=1):
            assert later <= burst + (moment - first) * rate + 1e-6


@pytest.mark.parametrize("wrong", [{"requests_per_s": 0.0}, {"burst": 0}, {"concurrency": 0}])
def test_impossible_rates_are_no_rates(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Rate(**wrong)  # type: ignore[arg-type]


def test_back_off_grows_to_its_cap_and_ends() -> None:
    policy = RetryPolicy(attempts=6, base_s=1.0, cap_s=5.0)
    assert [policy.wait_s(n, None, HighDraw()) for n in range(6)] == [1, 2, 4, 5, 5, None]  # type: ignore[arg-type]


def test_jitter_is_over_the_whole_interval() -> None:
    draws = [RetryPolicy(base_s=8.0).wait_s(0, None, Random(seed)) for seed in range(200)]
    values = [each for each in draws if each is not None]
    assert len(values) == 200
    assert all(0 <= each <= 8 for each in values)
    assert min(values) < 1
    assert max(values) > 7


def test_what_the_server_asks_for_is_a_lower_bound_up_to_a_cap() -> None:
    policy = RetryPolicy(attempts=3, base_s=1.0, retry_after_cap_s=30.0)
    for seed in range(50):
        wait = policy.wait_s(0, 10.0, Random(seed))
        assert wait is not None
        assert 10.0 <= wait <= 11.0
    assert policy.wait_s(0, 31.0, Random(1)) is None


def test_retry_after_in_seconds_or_as_a_date() -> None:
    clock = StepClock()
    later = datetime.fromtimestamp(clock.wall() + 90, UTC)
    assert retry_after_s({"Retry-After": "7"}, clock) == 7.0
    assert retry_after_s({"Retry-After": " 1.5 "}, clock) == 1.5
    assert retry_after_s({"Retry-After": format_datetime(later, usegmt=True)}, clock) == pytest.approx(90.0, abs=1)
    assert retry_after_s({"Retry-After": "Tue, 15 Nov 1994 08:12:31 GMT"}, clock) == 0.0
    for nothing in ("", "soon", "-3", "²"):
        assert retry_after_s({"Retry-After": nothing}, clock) is None
    assert retry_after_s({}, clock) is None


def test_a_breaker_rests_tries_once_and_closes() -> None:
    clock = StepClock()
    breaker = Breaker(clock, failures=3, rest_s=10.0)
    for _ in range(2):
        assert breaker.admits()
        breaker.failed("down")
    assert breaker.admits()
    breaker.failed("down")
    assert not breaker.admits()
    assert breaker.reason == "down"
    clock.now += 10
    assert breaker.admits()
    assert not breaker.admits()  # one trial at a time
    breaker.failed("still down")
    assert not breaker.admits()
    clock.now += 10
    assert breaker.admits()
    breaker.left()  # the trial was cancelled
    assert breaker.admits()
    breaker.succeeded()
    assert breaker.admits()
    assert breaker.admits()
    breaker.failed("once")
    assert breaker.admits()
    assert breaker.trips == 2


def test_one_piece_of_work_for_all_who_ask_at_once() -> None:
    async def all_of_them() -> tuple[list[object], int, int]:
        flights: Flights[int] = Flights()
        started = 0
        go = asyncio.Event()

        async def work() -> int:
            nonlocal started
            started += 1
            await go.wait()
            return 42

        callers = [asyncio.create_task(flights.join("same", work)) for _ in range(4)]
        await asyncio.sleep(0)
        callers[0].cancel()  # the one that began it goes away
        await asyncio.sleep(0)
        go.set()
        results: list[object] = list(await asyncio.gather(*callers, return_exceptions=True))
        await flights.join("same", work)
        return results, started, flights.shared

    results, started, shared = asyncio.run(all_of_them())
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [42, 42, 42]
    assert started == 2
    assert shared == 3


def test_work_that_fails_fails_for_all_and_is_not_kept() -> None:
    async def all_of_them() -> list[str]:
        flights: Flights[int] = Flights()

        def failing(name: str) -> Callable[[], Awaitable[int]]:
            async def work() -> int:
                await asyncio.sleep(0)
                raise ValueError(name)

            return work

        first = await asyncio.gather(*(flights.join("k", failing("a")) for _ in range(2)), return_exceptions=True)  # type: ignore[arg-type]
        second = await asyncio.gather(flights.join("k", failing("b")), return_exceptions=True)  # type: ignore[arg-type]
        return [str(each) for each in (*first, *second)]

    assert asyncio.run(all_of_them()) == ["a", "a", "b"]


def test_closing_fails_those_who_wait_and_cancels_nobody() -> None:
    async def run() -> object:
        flights: Flights[int] = Flights()

        async def work() -> int:
            await asyncio.sleep(60)
            return 1

        waiter = asyncio.create_task(flights.join("k", work))
        await asyncio.sleep(0)
        await flights.close()
        (result,) = await asyncio.gather(waiter, return_exceptions=True)
        return result

    assert isinstance(asyncio.run(run()), RuntimeError)
