"""The simulated child on a virtual clock: waits take no time, and the record is that of the time they stand for."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from simulated_runs import Played, make_spec, play

from adapters.base import load_adapter
from adapters.simulated.adapter import ADAPTER
from adapters.simulated.virtual import REAL, VIRTUAL, Choice, VirtualClock, VirtualLoop, choose, runner
from harness.live import SilentDisplay
from harness.progress import Progress
from harness.protocol import clock
from harness.protocol.events import Span
from harness.protocol.spec import Device, RunSpec
from harness.run import read_status, run
from harness.specs import resolve
from harness.watchdog import STALL_S, Limits
from results.store import load_run
from workloads.deep_research.plan import PRESETS, draw_plan

DAY_S = 86_400.0


def full_size(placement: str) -> RunSpec:
    """The study's step, 12 times: calls of 16 s, 600 tokens a turn."""
    return make_spec(
        placement,
        preset="deep-research",
        model="random:qwen3-14b",
        steps=12,
        batch_size=8,
        group_size=3,
        context_tokens=40_960,
        micro_batch_tokens=40_960,
        latency_scale=1.0,
    )


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(full_size("colocated"), tmp_path_factory.mktemp("virtual") / "long")


def on_virtual_clock(coroutine):
    moving = VirtualClock()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(moving)) as running:
        return running.run(coroutine)


def test_days_of_waiting_pass_at_once_and_in_order():
    async def sleeper(name: str, seconds: float, woken: list[tuple[str, float]]) -> None:
        begin = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        woken.append((name, asyncio.get_running_loop().time() - begin))

    async def all_of_them() -> list[tuple[str, float]]:
        woken: list[tuple[str, float]] = []
        waits = {"c": 3 * DAY_S, "a": 0.001, "b": DAY_S}
        await asyncio.gather(*(sleeper(name, seconds, woken) for name, seconds in waits.items()))
        return woken

    woken = on_virtual_clock(all_of_them())

    assert [name for name, _ in woken] == ["a", "b", "c"]
    assert [seconds for _, seconds in woken] == pytest.approx([0.001, DAY_S, 3 * DAY_S], abs=1e-4)


def test_a_time_limit_is_of_virtual_time():
    async def limited() -> float:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5000):
                await asyncio.sleep(DAY_S)
        return asyncio.get_running_loop().time() - begin

    assert on_virtual_clock(limited()) == pytest.approx(5000, abs=1e-3)


def test_the_clock_stands_while_a_thread_works():
    release = threading.Event()

    async def both() -> list[str]:
        order: list[str] = []

        async def timer() -> None:
            await asyncio.sleep(DAY_S)
            order.append("timer")

        async def thread() -> None:
            threading.Timer(0.05, release.set).start()
            begin = asyncio.get_running_loop().time()
            await asyncio.to_thread(release.wait)
            assert asyncio.get_running_loop().time() - begin < 1
            order.append("thread")

        await asyncio.gather(timer(), thread())
        return order

    assert on_virtual_clock(both()) == ["thread", "timer"]


def test_events_are_told_by_the_virtual_clock_and_the_real_one_comes_back():
    async def two_moments() -> tuple[int, int, int]:
        first, wall = clock.now_ns(), clock.wall_ns()
        await asyncio.sleep(DAY_S)
        return clock.now_ns() - first, clock.wall_ns() - wall, clock.now_ns() - time.monotonic_ns()

    try:
        with runner(Choice(VIRTUAL, "")) as running:
            passed, wall_passed, ahead = running.run(two_moments())
    finally:
        clock.use(time.monotonic_ns)

    assert passed == pytest.approx(DAY_S * 1e9, rel=1e-9)
    assert wall_passed == pytest.approx(DAY_S * 1e9, rel=1e-6)
    assert ahead > 0.9 * DAY_S * 1e9
    assert clock.now_ns() <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, VIRTUAL),
        ({"overrides": {"clock": "real"}}, REAL),
        ({"overrides": {"clock": "virtual"}, "faults": ("no-sync",)}, VIRTUAL),
        ({"faults": ("no-sync",)}, REAL),
        ({"device": Device.CUDA}, REAL),
        ({"tools": "local", "corpus": "generated:1000"}, REAL),
    ],
)
def test_which_clock_a_run_has(changes, name):
    spec = make_spec("colocated", **changes)

    assert choose(spec).name == name
    launch = ADAPTER.launch(spec, Path("run"))
    assert launch.virtual_time == (name == VIRTUAL)
    assert any(note.startswith(f"{name} time: ") for note in launch.notes)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"overrides": {"clock": "sundial"}}, "clock = sundial: allowed is virtual or real"),
        ({"overrides": {"clock": "virtual"}, "device": Device.CUDA}, "GPUs are sampled in real time"),
        ({"overrides": {"clock": "virtual"}, "tools": "local", "corpus": "generated:1000"}, "answer in real time"),
    ],
)
def test_a_clock_that_cannot_be_has_a_reason(changes, part):
    reason = ADAPTER.supports(make_spec("colocated", **changes))

    assert reason is not None
    assert part in reason


def test_an_hour_of_full_size_steps_is_recorded_as_an_hour(long_run: Played):
    assert (long_run.code, long_run.stderr) == (0, "")
    assert len(long_run.steps) == 12
    steps_s = [(step.end_ns - step.start_ns) / 1e9 for step in long_run.steps]
    assert sum(steps_s) > 1800
    assert 200 < sorted(steps_s)[6] < 900  # the study's colocated step took 451 s
    assert long_run.hello.versions["clock"] == VIRTUAL
    assert max(abs(long_run.other_s(step)) for step in long_run.steps) < 0.001


def test_no_latency_is_undercut_and_none_is_late(long_run: Played):
    spec = full_size("colocated")
    calls = [span for span in long_run.spans if span.phase == "tool"]
    assert len(calls) > 1000
    for span in calls:
        trajectory = long_run.trajectories[span.trajectory_id]
        plan = draw_plan(PRESETS[spec.preset], spec.seed, trajectory.prompt, trajectory.sample, spec.latency_scale)
        planned_ns = round(plan.turns[span.turn].latency_s * 1e9)
        assert 0 <= span.end_ns - span.start_ns - planned_ns < 1_000


def test_two_runs_of_a_spec_have_the_same_events(tmp_path: Path):
    def told(name: str) -> list[tuple[object, ...]]:
        run_ = play(make_spec("async", steps=5), tmp_path / name)
        zero = run_.steps[0].start_ns
        return [
            (span.native_name, span.step, span.trajectory_id, span.turn, span.start_ns - zero, span.end_ns - zero)
            for span in run_.spans
        ]

    assert told("one") == told("two")


def test_a_virtual_run_has_no_samples_and_says_why(tmp_path: Path):
    spec = resolve({"framework": "simulated", "placement": "async", "steps": 5}).spec

    result = run(spec, load_adapter("simulated"), tmp_path, display=SilentDisplay())

    status = read_status(result.run_dir)
    assert (result.status, status.sealed) == ("finished", True)
    assert status.meta["clock"] == "virtual"
    assert any("no machine is sampled" in note for note in status.meta["note"])
    assert list((result.run_dir / "samples").iterdir()) == []
    tables = load_run(result.run_dir).tables
    assert tables["samples"].num_rows == 0
    assert tables["steps"].num_rows == 5
    assert tables["failures"].num_rows == 0


def test_how_long_virtual_steps_took_is_no_reason_to_wait_for_a_stall():
    limits = Limits(longest_trajectory_s=2_000.0)
    assert limits.stall_limit_s(400.0) == 6_000

    assert limits.of_virtual_time().stall_limit_s(400.0) == STALL_S
    assert Limits(stall_s=7.0).of_virtual_time().stall_limit_s(400.0) == 7


def test_a_virtual_run_that_hangs_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BENCH_STALL_S", "2")
    wanted = {"framework": "simulated", "placement": "colocated", "steps": 4, "faults": ("hang=3",)}
    spec = resolve(wanted, overrides=["clock=virtual"]).spec

    result = run(spec, load_adapter("simulated"), tmp_path, display=SilentDisplay())

    assert (result.status, result.exit_code) == ("stalled", 4)
    assert "open: step 3, open for 0 s" in result.reason  # a virtual moment is ahead of this machine's
    tables = load_run(result.run_dir).tables
    assert any("train step 3" in message for message in tables["failures"]["message"].to_pylist())
    assert tables["steps"]["step"].to_pylist() == [1, 2]


def test_a_display_shows_the_rate_of_virtual_time():
    progress = Progress()
    second = 1_000_000_000
    ahead = time.monotonic_ns() + 3_600 * second
    for number in range(10):
        begin = ahead + number * second
        span = Span(
            phase="generation", native_name="turn", start_ns=begin, end_ns=begin + second,
            trajectory_id="p0-s0-a0", turn=number, attributes={"generated_tokens": 50},
        )  # fmt: skip
        progress.add("host-1.jsonl", span)

    assert progress.tokens_per_s(time.monotonic_ns()) == pytest.approx(50)
