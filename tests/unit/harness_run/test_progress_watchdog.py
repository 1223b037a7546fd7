"""The state of a run from its events, the limits it is held to, and what a person is shown."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from harness.live import LiveDisplay, PlainDisplay, describe, make_display
from harness.progress import Progress
from harness.protocol.errors import SpecError
from harness.protocol.events import Bye, Event, Failure, Hello, Metric, Open, Span, Step, Trajectory, encode
from harness.tail import Tail
from harness.watchdog import Limits, Watchdog

S = 1_000_000_000


def hello(role: str = "controller") -> Hello:
    return Hello(protocol=1, run_id="r", host="h", pid=1, role=role, wall_ns=0, mono_ns=0, versions={"vllm": "1"})


def trajectory(name: str, *, first: int | None = 0, open_id: int | None = None, status: str = "ok") -> Trajectory:
    return Trajectory(
        trajectory_id=name, group_id="g", prompt=0, sample=0, attempt=0, status=status, start_ns=0, end_ns=S, turns=1,
        tool_calls=0, tool_ns=0, prompt_tokens=1, generated_tokens=1, observation_tokens=0, version_first=first,
        open_id=open_id,
    )  # fmt: skip


def step(number: int, end_s: float, *names: str, version: int = 1) -> Step:
    end = round(end_s * S)
    return Step(step=number, policy_version=version, start_ns=end - S, end_ns=end, trajectory_ids=names)


def turn(name: str, end_s: float, tokens: int) -> Span:
    end = round(end_s * S)
    attributes = {"generated_tokens": tokens}
    return Span(
        phase="generation", native_name="turn", start_ns=end - S, end_ns=end, trajectory_id=name, attributes=attributes
    )


def fed(*events: Event | ValueError, source: str = "h-1.jsonl") -> Progress:
    progress = Progress()
    for event in (hello(), *events):
        progress.add(source, event)
    return progress


def test_in_flight_and_waiting_follow_opens_and_ends() -> None:
    progress = fed()
    for number in (1, 2, 3):
        progress.add("h-1.jsonl", Open(id=number, start_ns=0, phase=None, native_name="t", trajectory_id=f"t{number}"))
        progress.add("h-1.jsonl", turn(f"t{number}", 2, 30))
    assert (progress.in_flight, progress.tools_waiting) == (3, 3)
    tool = Span(phase="tool", native_name="search", start_ns=0, end_ns=S, trajectory_id="t1")
    progress.add("h-1.jsonl", tool)
    assert progress.tools_waiting == 2
    progress.add("h-1.jsonl", trajectory("t2", open_id=2, status="timeout"))
    assert (progress.in_flight, progress.tools_waiting) == (2, 1)
    assert (progress.trajectories_done, progress.trajectories_failed) == (1, 1)
    assert progress.tokens_per_s(4 * S) == pytest.approx(90 / 3)  # since the first turn's begin, at 1 s
    assert progress.tokens_per_s(100 * S) == 0.0
    assert fed().tokens_per_s(S) is None


def test_ids_of_two_processes_are_not_mixed_up() -> None:
    progress = fed(Open(id=1, start_ns=0, phase="train", native_name="policy_train", step=2))
    progress.add("h-2.jsonl", hello("rollout"))
    progress.add("h-2.jsonl", Open(id=1, start_ns=5, phase="generation", native_name="generate"))
    assert progress.phase == "train"  # the controller's, not the newest
    close = Span(phase="generation", native_name="generate", start_ns=5, end_ns=9, open_id=1)
    progress.add("h-2.jsonl", close)
    (left,) = progress.open_phases()
    assert left.describe(60 * S) == "train step 2 (policy_train), open for 60 s, controller of h-1"


def test_steps_staleness_and_end() -> None:
    progress = fed(trajectory("a", first=0), trajectory("b", first=2), trajectory("c", first=None))
    assert progress.median_step_s is None
    progress.add("h-1.jsonl", step(0, 1.0, "a", "b", "c", version=3))
    assert progress.staleness == (1.0, 2)  # trained at 2: ages 2 and 0; unknown is left out
    progress.add("h-1.jsonl", step(1, 11.0))
    progress.add("h-1.jsonl", step(2, 41.0))
    assert progress.staleness is None
    assert progress.median_step_s == 10.0  # boundary to boundary: 1, 10, 30
    assert not progress.said_bye
    bye = Bye(mono_ns=0, wall_ns=0, events=1, lost_events=2, recorder_ns=0)
    progress.add("other.jsonl", hello("rollout"))
    progress.add("other.jsonl", bye)
    assert not progress.said_bye
    progress.add("h-1.jsonl", bye)
    assert progress.said_bye
    assert progress.lost_events == 4


def test_the_start_up_ends_with_the_first_work() -> None:
    limits = Limits(startup_s=100, stall_s=10)
    watchdog, progress = Watchdog(limits, 0.0), fed()
    assert watchdog.check(progress, 99.0) is None
    sync = Span(phase="weight_sync", native_name="first sync", start_ns=0, end_ns=1)
    progress.add("h-1.jsonl", sync)
    assert watchdog.check(progress, 99.5) is None
    overrun = watchdog.check(progress, 101.0)
    assert overrun is not None
    assert overrun.status == "stalled"
    assert "start-up" in overrun.reason
    progress.add("h-1.jsonl", turn("t", 1, 1))
    assert watchdog.check(progress, 101.0) is None


def test_a_metric_is_no_movement_and_an_open_is() -> None:
    watchdog, progress = Watchdog(Limits(stall_s=10), 0.0), fed(turn("t", 1, 1))
    assert watchdog.check(progress, 5.0) is None
    progress.add("h-1.jsonl", Metric(name="engine.running", mono_ns=0, value=1.0))
    progress.add("h-1.jsonl", Failure(mono_ns=0, boundary="tool", type="x", message=""))
    overrun = watchdog.check(progress, 15.5)
    assert overrun is not None
    assert overrun.status == "stalled"
    progress.add("h-1.jsonl", Open(id=1, start_ns=0, phase="train", native_name="x"))
    assert watchdog.check(progress, 15.6) is None
    assert watchdog.check(progress, 25.5) is None
    assert watchdog.check(progress, 25.7) is not None


def test_the_stall_limit_is_the_largest_of_three() -> None:
    assert Limits().stall_limit_s(None) == 300
    assert Limits().stall_limit_s(40.0) == 400
    assert Limits(longest_trajectory_s=200.0).stall_limit_s(40.0) == 600
    assert Limits(stall_s=1.0, longest_trajectory_s=200.0).stall_limit_s(40.0) == 1


def test_the_timeout_counts_from_the_start() -> None:
    watchdog, progress = Watchdog(Limits(timeout_s=50), 1000.0), fed()
    assert watchdog.check(progress, 1049.0) is None
    overrun = watchdog.check(progress, 1051.0)
    assert overrun is not None
    assert overrun.status == "timeout"


def test_limits_from_the_environment() -> None:
    limits = Limits.of(7.0, 3.0, {"BENCH_STALL_S": "2.5", "BENCH_STARTUP_S": ""})
    assert limits == Limits(startup_s=1800, stall_s=2.5, timeout_s=7.0, longest_trajectory_s=3.0)
    for bad in ("soon", "0", "-1", "nan"):
        with pytest.raises(SpecError, match=f"BENCH_STALL_S = {bad}"):
            Limits.of(None, None, {"BENCH_STALL_S": bad})


def test_tail_gives_each_whole_line_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "events")
    assert list(tail.poll()) == []
    (tmp_path / "events").mkdir()
    path = tmp_path / "events" / "h-1.jsonl"
    text = encode(hello()) + "\n" + encode(Metric(name="ü", mono_ns=1)) + "\n"
    data = text.encode()
    got = []
    for begin in range(0, len(data), 7):  # cuts lines, and characters, anywhere
        with path.open("ab") as file:
            file.write(data[begin : begin + 7])
        got += list(tail.poll())
    assert [(name, type(event)) for name, event in got] == [("h-1.jsonl", Hello), ("h-1.jsonl", Metric)]
    with path.open("ab") as file:
        file.write(b"\n{broken}\n" + encode(hello()).encode()[:10])
    ((_, damaged),) = tail.poll()
    assert isinstance(damaged, ValueError)
    assert tail.cut() == ["h-1.jsonl"]
    assert list(tail.poll()) == []


def test_plain_lines_one_per_step_and_nothing_unknown() -> None:
    stream = io.StringIO()
    display = make_display(stream)
    assert isinstance(display, PlainDisplay)
    progress = fed()
    display.stage("starting")
    display.update(progress, 4, None)
    progress.add("h-1.jsonl", trajectory("a"))
    progress.add("h-1.jsonl", step(0, 1.0, "a"))
    for _ in range(3):
        display.update(progress, 4, None)
    display.close()
    lines = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        "starting",
        "step 1/4 (median 1.00 s) · trajectories 1 done, 0 in flight · tool calls waiting ~0 · "
        "staleness mean 0.00, max 0",
    ]


def test_the_live_table_shows_what_is_known() -> None:
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, force_terminal=True, width=100))
    progress = fed(Open(id=1, start_ns=0, phase="train", native_name="x", step=1), turn("t", 1, 5))
    display.stage("in /runs/[odd]")
    display.update(progress, 4, 512.4)
    display.stage("stopping")
    display.close()
    shown = stream.getvalue()
    for text in ("in /runs/[odd]", "step", "0/4", "train", "in flight", "tool calls waiting", "512 W"):
        assert text in shown
    assert "[dim]" not in shown
    assert "power" not in dict(describe(progress, 4, None))


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    for display in (PlainDisplay(Closed()), LiveDisplay(Console(file=Closed(), force_terminal=True))):
        display.stage("stopping")
        display.update(fed(step(0, 1.0)), 4, None)
        display.close()


def test_a_step_is_named_once() -> None:
    (one,) = fed(Open(id=1, start_ns=0, phase=None, native_name="step", step=2)).open_phases()
    assert one.describe(60 * S) == "step 2, open for 60 s, controller of h-1"


def test_the_start_up_says_what_goes_on_and_for_how_long() -> None:
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, force_terminal=True, width=100))
    display.begin -= 75
    display.update(fed(), 4, None)
    display.close()
    shown = stream.getvalue()
    for text in ("starting engine and trainer", "imports take a minute on CPU", "1:15", "bench logs latest -f"):
        assert text in shown
    assert "trajectories" not in shown
