"""The ways in which a trajectory ends before its plan does."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from episode_parts import Broken, Codec, Engine, attempt, deaf, never, play, recorded, recording, shape, the

from harness.protocol.events import Failure, Span, Trajectory
from harness.protocol.recorder import RecorderFullError
from workloads.deep_research.episode import Generate, Generated, Sampling
from workloads.deep_research.tools import MockTools


def test_an_engine_error_ends_the_trajectory_as_failed(tmp_path: Path) -> None:
    engine = Engine()

    async def dies(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        if engine.asked:
            raise OSError("connection reset")
        return await engine(trajectory_id, ids, sampling)

    result = play(tmp_path, dies)
    events = recorded(tmp_path)
    assert [(kind, phase) for kind, phase, _ in shape(events)] == [
        ("open", None),
        ("span", "generation"),
        ("span", "tool"),
        ("span", "generation"),
        ("failure", None),
        ("trajectory", None),
    ]
    closed = the(events, Trajectory)[0]
    assert (closed.status, closed.turns, closed.generated_tokens, closed.reward) == ("failed", 1, 5, None)
    assert "turn 1: OSError: connection reset" in (closed.message or "")
    last = [s for s in the(events, Span) if s.phase == "generation"][-1]
    assert (last.attributes["stop_reason"], last.attributes["generated_tokens"]) == ("error", None)
    assert (result.status, result.reward, len(result.response_ids)) == ("failed", None, 12)
    assert the(events, Failure)[0].boundary == "engine"


def test_a_call_cancelled_by_others_is_a_failure_not_a_cancellation(tmp_path: Path) -> None:
    async def cancels(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        raise asyncio.CancelledError

    assert play(tmp_path, cancels).status == "failed"


def test_logprobs_of_another_length_are_a_failure(tmp_path: Path) -> None:
    async def uneven(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        return Generated(ids=[1, 2, 3], logprobs=[-1.0])

    result = play(tmp_path, uneven)
    assert (result.status, result.response_ids) == ("failed", [])
    assert "3 ids came back with 1 logprobs" in (result.message or "")


@pytest.mark.parametrize("stuck", [never, deaf])
def test_an_engine_that_hangs_is_left_at_the_trajectory_limit(tmp_path: Path, stuck: Callable[..., Any]) -> None:
    begin = time.monotonic()
    result = play(tmp_path, stuck, trajectory_timeout_s=0.15)
    assert time.monotonic() - begin < 20
    closed = the(recorded(tmp_path), Trajectory)[0]
    assert (result.status, closed.status, closed.turns) == ("timeout", "timeout", 0)
    assert closed.end_ns - closed.start_ns >= 150_000_000
    span = the(recorded(tmp_path), Span)[0]
    assert (span.attributes["stop_reason"], span.attributes["generated_tokens"]) == ("timeout", None)


@pytest.mark.parametrize("where", ["engine", "tool"])
def test_a_cancelled_trajectory_is_recorded_and_the_cancellation_goes_on(tmp_path: Path, where: str) -> None:
    async def main() -> None:
        async with recording(tmp_path) as recorder:
            generate: Generate = never if where == "engine" else Engine()
            tools = MockTools() if where == "engine" else Broken(never)
            task = asyncio.create_task(attempt(recorder, generate, tools=tools))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    events = recorded(tmp_path)
    closed = the(events, Trajectory)[0]
    assert (closed.status, closed.reward) == ("cancelled", None)
    last = the(events, Span)[-1]
    if where == "engine":
        assert (last.phase, last.attributes["stop_reason"]) == ("generation", "cancelled")
    else:
        assert (last.phase, last.attributes["status"]) == ("tool", "cancelled")
        assert closed.turns == 1


def test_a_broken_codec_is_a_bug_and_raises_after_it_was_recorded(tmp_path: Path) -> None:
    class Bad(Codec):
        def observation_ids(self, text: str, tokens: int) -> list[int]:
            raise LookupError("no such token")

    with pytest.raises(LookupError):
        play(tmp_path, Engine(), codec=Bad())
    closed = the(recorded(tmp_path), Trajectory)[0]
    assert (closed.status, closed.message) == ("failed", "LookupError: no such token")


def test_a_full_disk_is_not_taken_for_an_engine_error(tmp_path: Path) -> None:
    async def full(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        raise RecorderFullError(28, "no space left")

    with pytest.raises(RecorderFullError):
        play(tmp_path, full)
    assert not the(recorded(tmp_path), Trajectory)
