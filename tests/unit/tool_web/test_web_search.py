"""Searching over providers: order, patience, rest, cache, and what a model reads when nothing helps."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from web_servers import HighDraw, StepClock, searching

from workloads.deep_research.serving.rendering import Hit
from workloads.deep_research.serving.web.cache import Cache
from workloads.deep_research.serving.web.limiter import Rate
from workloads.deep_research.serving.web.providers import ProviderAnswer, ProviderError
from workloads.deep_research.serving.web.retry import RetryPolicy
from workloads.deep_research.serving.web.search import Searcher, SearchLimits
from workloads.deep_research.tools import Observation

Step = Exception | ProviderAnswer | None
OK = ProviderAnswer(hits=(Hit(title="T", url="http://a.example/", snippet="s"),), size=10, http_status=200, credits=1.0)
BUSY = ProviderError("again", "HTTP 429: slow down", http_status=429)
DOWN = ProviderError("again", "HTTP 503", http_status=503)
LIMITS = SearchLimits(
    total_s=100.0,
    attempt_s=5.0,
    retry=RetryPolicy(attempts=3, base_s=1.0, cap_s=8.0, retry_after_cap_s=20.0),
    breaker_failures=3,
    breaker_rest_s=30.0,
)


class Script:
    """A provider that does what it is told, call by call; the last thing again and again."""

    key_variable = "X"
    rate = Rate()

    def __init__(self, name: str, *steps: Step) -> None:
        self.name = name
        self.steps = list(steps)
        self.calls: list[float] = []
        self.clock: StepClock | None = None

    async def search(self, session: aiohttp.ClientSession, query: str, k: int) -> ProviderAnswer:
        assert self.clock is not None
        self.calls.append(self.clock.now - 1_000.0)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step is None:
            await asyncio.sleep(30)
        if isinstance(step, Exception):
            raise step
        assert step is not None
        return step

    def secrets(self) -> tuple[str, ...]:
        return ("the-secret",)


def run(
    scripts: list[Script],
    *queries: str,
    limits: SearchLimits = LIMITS,
    at_once: bool = False,
    between: Callable[[StepClock], None] = lambda clock: None,
    **settings: Any,
) -> tuple[list[Observation], dict[str, Any]]:
    async def go() -> tuple[list[Observation], dict[str, Any]]:
        clock = StepClock()
        for script in scripts:
            script.clock = clock
        searcher = Searcher(scripts, limits=limits, clock=clock, draw=HighDraw(), **settings)  # type: ignore[arg-type]
        try:
            if at_once:
                found = list(await asyncio.gather(*(searcher.call(searching(query)) for query in queries)))
            else:
                found = []
                for query in queries:
                    found.append(await searcher.call(searching(query)))
                    between(clock)
            return found, dict(searcher.stats())
        finally:
            await searcher.close()

    return asyncio.run(go())


def test_results_as_a_model_reads_them() -> None:
    (found,), stats = run([Script("a", OK)], "  who\n won ")
    assert found.text == "[1] T\nhttp://a.example/\ns"
    assert (found.status, found.http_status, found.size) == ("ok", 200, 10)
    assert found.links == (("T", "http://a.example/"),)
    assert stats["calls"] == {"ok": 1}
    assert stats["providers"]["a"] == {"requests": {"ok": 1}, "credits": 1.0, "wire_bytes": 10, "rests": 0}


def test_busy_and_broken_providers_are_asked_again_with_growing_pauses() -> None:
    script = Script("a", BUSY, DOWN, OK)
    (found,), stats = run([script], "q")
    assert found.status == "ok"
    assert script.calls == [0.0, 1.0, 3.0]
    assert stats["providers"]["a"]["requests"] == {"again": 2, "ok": 1}


def test_connection_errors_and_hangs_are_asked_again_too() -> None:
    limits = SearchLimits(attempt_s=0.05, retry=LIMITS.retry)
    script = Script("a", aiohttp.ServerDisconnectedError(), None, OK)
    (found,), stats = run([script], "q", limits=limits)
    assert found.status == "ok"
    assert stats["providers"]["a"]["requests"] == {"again": 1, "timeout": 1, "ok": 1}


def test_retry_after_is_a_lower_bound_for_everyone() -> None:
    script = Script("a", ProviderError("again", "HTTP 429", http_status=429, retry_after_s=10.0), OK)
    found, _ = run([script], "q", "r", at_once=True, rates={"a": Rate(concurrency=1)})
    assert [each.status for each in found] == ["ok", "ok"]
    assert script.calls[0] == 0.0
    assert min(script.calls[1:]) >= 10.0  # the other question waited for its turn when the pause was named


def test_a_pause_that_is_too_long_sends_to_the_next_and_rests_the_first() -> None:
    first = Script("a", ProviderError("again", "HTTP 429", http_status=429, retry_after_s=500.0))
    second = Script("b", OK)
    found, stats = run([first, second], "q", "r")
    assert [each.status for each in found] == ["ok", "ok"]
    assert first.calls == [0.0]
    assert stats["providers"]["a"]["rests"] == 1


@pytest.mark.parametrize("kind", ["key", "quota"])
def test_a_key_that_is_not_accepted_is_not_tried_again(kind: str) -> None:
    first, second = Script("a", ProviderError(kind, "HTTP 403: no", http_status=403)), Script("b", OK)
    found, stats = run([first, second], "q", "r", "s")
    assert [each.status for each in found] == ["ok"] * 3
    assert len(first.calls) == 1
    assert stats["providers"]["a"]["requests"] == {kind: 1}


def test_a_question_that_is_not_taken_goes_to_the_next_at_once() -> None:
    first, second = Script("a", ProviderError("request", "HTTP 400: bad", http_status=400)), Script("b", OK)
    found, stats = run([first, second], "q", "r")
    assert [each.status for each in found] == ["ok", "ok"]
    assert first.calls == [0.0, 0.0]
    assert stats["providers"]["a"]["rests"] == 0


def test_a_provider_that_keeps_failing_rests_and_comes_back() -> None:
    first, second = Script("a", DOWN, DOWN, DOWN, OK), Script("b", OK)

    def later(clock: StepClock) -> None:
        clock.now += 20.0

    found, stats = run([first, second], "q", "r", "s", between=later)
    assert [each.status for each in found] == ["ok"] * 3
    assert len(first.calls) == 4  # three of the first question, none of the second, one of the third
    assert len(second.calls) == 2
    assert stats["providers"]["a"]["rests"] == 1


def test_no_provider_left_says_why_of_each() -> None:
    first, second = Script("a", DOWN), Script("b", ProviderError("key", "HTTP 401: the-secret is wrong"))
    (found,), stats = run([first, second], "q")
    assert found.status == "error"
    assert found.detail == "a: HTTP 503; b: HTTP 401: [key] is wrong"
    assert found.text == f"Searching failed: {found.detail}"
    assert stats["calls"] == {"error": 1}


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (BUSY, "refused"),
        (ProviderError("quota", "HTTP 432", http_status=432), "refused"),
        (DOWN, "error"),
        (None, "timeout"),
        (RuntimeError("the-secret"), "error"),
        (ValueError("the-secret"), "error"),
    ],
)
def test_statuses(step: Step, status: str) -> None:
    limits = SearchLimits(attempt_s=0.02, retry=RetryPolicy(attempts=2, base_s=0.1))
    (found,), _ = run([Script("a", step)], "q", limits=limits)
    assert found.status == status
    assert "the-secret" not in repr(found)


def test_the_total_time_ends_patience() -> None:
    limits = SearchLimits(total_s=10.0, retry=RetryPolicy(attempts=50, base_s=4.0, cap_s=4.0), breaker_failures=100)
    script = Script("a", DOWN)
    (found,), _ = run([script], "q", limits=limits)
    assert found.status == "error"
    assert script.calls == [0.0, 4.0, 8.0]


def test_a_turn_that_comes_too_late_goes_to_the_next() -> None:
    slow, fast = Script("a", OK), Script("b", OK)
    queries = [f"q{n}" for n in range(4)]
    limits = SearchLimits(total_s=10.0)
    found, stats = run([slow, fast], *queries, at_once=True, limits=limits, rates={"a": Rate(requests_per_s=0.1)})
    assert [each.status for each in found] == ["ok"] * 4
    assert len(slow.calls) + len(fast.calls) == 4
    assert stats["providers"]["a"]["requests"] == {"ok": 1, "limited": 3}


def test_no_results_are_an_answer_and_no_reason_to_ask_another() -> None:
    second = Script("b", OK)
    (found,), _ = run([Script("a", ProviderAnswer(hits=()))], "nothing like it")
    assert (found.status, found.text) == ("empty", "No results for: nothing like it")
    assert second.calls == []


@pytest.mark.parametrize("query", ["", "   ", "x" * 3_000])
def test_questions_that_are_none(query: str) -> None:
    script = Script("a", OK)
    (found,), _ = run([script], query)
    assert found.status == "error"
    assert script.calls == []


def cached(folder: Path, scripts: list[Script], *queries: str, **settings: Any) -> tuple[list[Observation], Any]:
    async def go() -> tuple[list[Observation], Any]:
        cache = Cache(folder, **settings)
        await cache.open()
        clock = StepClock()
        for script in scripts:
            script.clock = clock
        searcher = Searcher(scripts, limits=LIMITS, clock=clock, cache=cache)
        found = list(await asyncio.gather(*(searcher.call(searching(query)) for query in queries)))
        stats = {**searcher.stats(), **cache.stats()}
        await searcher.close()
        await cache.close()
        return found, stats

    return asyncio.run(go())


def test_a_repeated_run_costs_nothing(tmp_path: Path) -> None:
    first = Script("a", OK)
    once, _ = cached(tmp_path, [first], "q", "r")
    again = Script("a", DOWN)
    twice, stats = cached(tmp_path, [again], "q", " r ")
    assert [each.text for each in twice] == [each.text for each in once]
    assert [(each.status, each.size) for each in twice] == [("ok", None)] * 2  # nothing came over the wire
    assert again.calls == []
    assert stats["hits"] == 2


def test_one_request_for_a_group_that_asks_the_same(tmp_path: Path) -> None:
    script = Script("a", OK)
    found, stats = cached(tmp_path, [script], *["q"] * 8)
    assert [each.status for each in found] == ["ok"] * 8
    assert len(script.calls) == 1
    assert stats["shared"] == 7


def test_failures_are_not_kept(tmp_path: Path) -> None:
    cached(tmp_path, [Script("a", ProviderError("request", "no"))], "q")
    found, _ = cached(tmp_path, [Script("a", OK)], "q")
    assert found[0].status == "ok"
