"""Recording around a backend, and playing the recording back."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from trace_calls import made

from harness.protocol.errors import SpecError
from workloads.deep_research.serving.backend import Backend
from workloads.deep_research.serving.gateway import Gateway
from workloads.deep_research.serving.recording import CallRecorder
from workloads.deep_research.serving.replay import ReplayBackend
from workloads.deep_research.tools import Observation, ToolRequest
from workloads.deep_research.trace import Trace, TraceWriter, read_trace, write_trace


class Echo:
    """Answers with what it is asked, after `wait_s`; raises where asked to."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        self.count = 0
        self.open: bool | None = None

    async def start(self) -> None:
        self.open = True

    async def call(self, request: ToolRequest) -> Observation:
        self.count += 1
        number = self.count
        await asyncio.sleep(self.wait_s)
        if request.argument == "raise":
            raise RuntimeError("a defect")
        status = "error" if request.argument == "bad" else "ok"
        return Observation(
            text=f"{number}: {request.argument}",
            status=status,
            http_status=200 if status == "ok" else 502,
            size=100 + number,
            detail=None if status == "ok" else "HTTP 502",
            links=((f"title {number}", f"http://x.test/{number}"),),
        )

    async def close(self) -> None:
        self.open = False

    def stats(self) -> Mapping[str, object]:
        return {"echoes": self.count}


def asked(argument: str, call: int = 0, trajectory: str = "t0", tool: str = "search_engine") -> ToolRequest:
    return ToolRequest(tool=tool, argument=argument, trajectory_id=trajectory, call=call, question="why?")


def content(answer: Observation) -> tuple[object, ...]:
    """All of it but its times."""
    return (answer.text, answer.status, answer.http_status, answer.size, answer.detail, answer.links)


def traced(path: Path, *calls: object) -> Trace:
    write_trace(path, calls, {})  # type: ignore[arg-type]
    return read_trace(path)


def recording(path: Path, inner: Backend, *, limit_s: float = 100.0, facts: dict[str, object] | None = None) -> Gateway:
    """The tool server's inside, recorded."""
    return Gateway(inner, limit_s=limit_s, recorder=CallRecorder(TraceWriter(path, facts)))


def play(backend: Backend | Gateway, *requests: ToolRequest) -> list[Observation]:
    async def all_of_them() -> list[Observation]:
        await (backend.backend if isinstance(backend, Gateway) else backend).start()
        answers = [await backend.call(request) for request in requests]
        await backend.close()
        return answers

    return asyncio.run(all_of_them())


def test_a_recording_replayed_gives_the_same_observations_after_the_same_latencies(tmp_path: Path) -> None:
    path, inner = tmp_path / "t.parquet", Echo(wait_s=0.02)
    requests = [asked("a"), asked("bad", 1), asked("a", 2), asked("a", 0, "t1", "web_browser")]
    gateway = recording(path, inner, facts={"tools": "echo"})
    first = play(gateway, *requests)
    stats = gateway.stats()
    assert (inner.open, stats["backend"], stats["recorded_calls"], stats["lost_calls"]) == (False, {"echoes": 4}, 4, 0)
    trace = read_trace(path)
    replay = ReplayBackend(trace)
    # In another order: what was asked says which answer it is.
    again = play(replay, *reversed(requests))[::-1]
    assert [content(answer) for answer in again] == [content(answer) for answer in first]
    calls = list(trace.calls())
    assert [answer.planned_s for answer in again] == [call.latency_s for call in calls]
    assert [answer.served_s for answer in first] == [call.latency_s for call in calls] == [c.served_s for c in calls]
    assert all(call.latency_s >= 0.02 for call in trace.calls())
    counts = replay.stats()
    assert (counts["exact"], counts["not_found"], counts["never_asked"]) == (4, 0, 0)
    assert "4 as recorded" in replay.in_words()


def test_the_replay_answers_at_once_and_scales(tmp_path: Path) -> None:
    trace = traced(tmp_path / "t.parquet", made(0, latency_s=1_000.0))
    start = time.monotonic()
    (answer,) = play(ReplayBackend(trace, scale=0.5), asked("query 0"))
    assert (answer.planned_s, answer.served_s) == (500.0, None)
    assert time.monotonic() - start < 100


def test_the_same_question_from_elsewhere_gets_the_recordings_in_their_order(tmp_path: Path) -> None:
    calls = [made(n, argument="a", text=f"{n}", trajectory_id=f"t{n}", call=0) for n in (1, 0, 2)]
    replay = ReplayBackend(traced(tmp_path / "t.parquet", *calls))
    answers = play(replay, *[asked("a", n, "other") for n in range(4)], asked("a", 0, "t2"), asked("a", 0, "t1"))
    assert [answer.text for answer in answers] == ["0", "1", "2", "0", "2", "1"]
    counts = replay.stats()
    assert (counts["by_argument"], counts["repeated"], counts["exact"]) == (4, 1, 2)
    assert "1 of them repeated" in replay.in_words()


def test_what_is_not_in_the_trace_is_not_found_and_told(tmp_path: Path) -> None:
    replay = ReplayBackend(traced(tmp_path / "t.parquet", made(0), made(1)))
    others = [asked("query 9"), asked("query 9"), asked("query 0", tool="web_browser"), asked("query 0")]
    answers = play(replay, *others)
    assert [answer.status for answer in answers] == ["not_found"] * 3 + ["ok"]
    assert answers[0].planned_s is None
    assert answers[0].detail == "not in the trace: search_engine 'query 9'"
    counts = replay.stats()
    assert (counts["calls"], counts["not_found"], counts["not_found_requests"], counts["never_asked"]) == (4, 3, 2, 1)
    assert counts["not_found_first"] == [
        {"tool": "search_engine", "argument": "query 9", "calls": 2},
        {"tool": "web_browser", "argument": "query 0", "calls": 1},
    ]
    assert replay.in_words().endswith("3 not found; the first: search_engine 'query 9'")


def test_a_failure_is_replayed_in_the_words_that_the_agent_read(tmp_path: Path) -> None:
    requests = [asked("a"), asked("raise", 1), asked("b", 2, tool="no_tool")]
    late = play(recording(tmp_path / "late.parquet", Echo(wait_s=100), limit_s=0.05), asked("a"))
    first = play(recording(tmp_path / "other.parquet", Echo()), *requests)
    assert late[0].text == "Calling search_engine failed: no answer within 0.05 s"
    assert first[1].text == "Calling search_engine failed: RuntimeError in the tool server: a defect"
    assert first[2].text.startswith("Calling no_tool failed: there is no such tool")
    again = play(ReplayBackend(read_trace(tmp_path / "late.parquet")), asked("a"))
    again += play(ReplayBackend(read_trace(tmp_path / "other.parquet")), *requests)
    assert [content(answer) for answer in again] == [content(answer) for answer in late + first]
    assert again[0].planned_s is not None
    assert again[0].planned_s >= 0.05


def test_a_call_that_was_cut_is_recorded_as_a_timeout_with_words(tmp_path: Path) -> None:
    gateway = recording(tmp_path / "t.parquet", Echo(wait_s=100))

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gateway.call(asked("a")), 0.05)
        await gateway.close()

    asyncio.run(give_up())
    (call,) = read_trace(tmp_path / "t.parquet").calls()
    assert (call.status, call.detail) == ("timeout", "the agent gave up waiting")
    assert call.text == "Calling search_engine failed: the agent gave up waiting"
    assert call.latency_s >= 0.05


def test_a_failure_whose_words_were_not_recorded_is_not_silence(tmp_path: Path) -> None:
    trace = traced(tmp_path / "t.parquet", made(0), made(1, text=None, status="timeout", detail="late"))
    _, late = play(ReplayBackend(trace), asked("query 0"), asked("query 1"))
    assert (late.text, late.status) == ("Calling search_engine failed: late", "timeout")


def test_a_replay_recorded_again_keeps_its_latencies(tmp_path: Path) -> None:
    trace = traced(tmp_path / "one.parquet", made(0, latency_s=7.0))
    again = recording(tmp_path / "two.parquet", ReplayBackend(trace, scale=2.0))
    play(again, asked("query 0"))
    (call,) = read_trace(tmp_path / "two.parquet").calls()
    assert (call.latency_s, call.text) == (14.0, made(0).text)


def test_many_agents_at_once_lose_no_call(tmp_path: Path) -> None:
    gateway = recording(tmp_path / "t.parquet", Echo(wait_s=0.01))

    async def crowd() -> None:
        await asyncio.gather(*(gateway.call(asked(f"q{n}", n, f"t{n % 256}")) for n in range(1_024)))
        await gateway.close()

    asyncio.run(crowd())
    calls = list(read_trace(tmp_path / "t.parquet").calls())
    assert {(call.trajectory_id, call.call) for call in calls} == {(f"t{n % 256}", n) for n in range(1_024)}
    assert all((call.text or "").endswith(f": {call.argument}") for call in calls)


@pytest.mark.parametrize(("calls", "says"), [([], "no calls to replay"), ([made(0, text=None)], "no observations")])
def test_a_trace_that_cannot_be_replayed_is_a_wrong_request(tmp_path: Path, calls: list[object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        ReplayBackend(traced(tmp_path / "t.parquet", *calls))
