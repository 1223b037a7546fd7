"""Played runs for the report tests: event histories shaped like deep research, made without waiting for them.

`play` returns events of a colocated, disaggregated or async run: trajectories with 1-8 tool calls, log-normal
latencies and token counts, and a trainer that behaves as its placement does. All times follow from the seed.
"""

import heapq
import random
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from harness.protocol import PROTOCOL_VERSION
from harness.protocol.events import (
    Bye,
    Event,
    Gate,
    Hello,
    Metric,
    Open,
    Span,
    Step,
    Trajectory,
)
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec
from workloads.deep_research.plan import draw_plan
from workloads.deep_research.presets import PRESETS

S = 1_000_000_000
BEGIN = 1_000 * S  # mono_ns at which the played process says hello


def make_spec(placement: str = "colocated", **changes: Any) -> RunSpec:
    """A complete spec of the study's shape: 8 prompts x 3 samples = 24 trajectories a step."""
    separate = placement != "colocated"
    base = RunSpec(
        framework="skyrl",
        placement=Placement(placement),
        workload="deep-research",
        preset="deep-research",
        load=Load.FIXED,
        tools="mock",
        model="random:qwen3-14b",
        gpus=Gpus(train=4, rollout=4) if separate else Gpus(train=8, rollout=8),
        nodes=1,
        steps=12,
        warmup_steps=3 if placement == "async" else 2,
        batch_size=8,
        group_size=3,
        max_staleness=1 if placement == "async" else 0,
        seed=1,
        device=Device.CPU,
        engine="vllm",
        rollout_tp=1,
        context_tokens=32_768,
        micro_batch_tokens=32_768,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=10.0,
    )
    return replace(base, **changes)


@dataclass
class Played:
    """One trajectory as it went: its events, and when it ended."""

    closed: Trajectory
    spans: list[Span]

    @property
    def end_ns(self) -> int:
        return self.closed.end_ns


@dataclass
class World:
    spec: RunSpec
    random: random.Random
    events: list[Event] = field(default_factory=list)
    engines: tuple[str, ...] = ()

    def seconds(self, mean: float, sigma: float) -> int:
        """A log-normal duration of that mean, in ns."""
        mu = -sigma * sigma / 2
        return int(mean * self.random.lognormvariate(mu, sigma) * S)

    def trajectory(self, prompt: int, sample: int, start_ns: int, version: int) -> Played:
        """One agent attempt that begins at `start_ns` and does what its plan says, all under one version."""
        name = f"p{prompt}-s{sample}-a0"
        engine = self.engines[(prompt * self.spec.group_size + sample) % len(self.engines)]
        plan = draw_plan(PRESETS[self.spec.preset], self.spec.seed, prompt, sample, latency_scale=1.0)
        pool = "both" if self.spec.placement is Placement.COLOCATED else "rollout"
        spans: list[Span] = []
        now = start_ns + int(0.05 * S)
        tool_ns = 0
        context = plan.prompt_tokens
        for number, turn in enumerate(plan.turns):
            end = now + int(turn.generated_tokens * 0.028 * S) + self.seconds(0.6, 0.5)
            spans.append(
                Span(
                    phase="generation",
                    native_name="turn",
                    start_ns=now,
                    end_ns=end,
                    pool=pool,
                    trajectory_id=name,
                    turn=number,
                    attributes={
                        "engine": engine,
                        "submitted_ns": now - 2_000_000,
                        "prompt_tokens": context,
                        "generated_tokens": turn.generated_tokens,
                        "version_start": version,
                        "version_end": version,
                        "stop_reason": "length",
                    },
                )
            )
            context += turn.generated_tokens + turn.observation_tokens
            now = end + int(0.02 * S)
            if turn.latency_s is None:
                break
            planned = round(turn.latency_s * 1e9)
            spans.append(
                Span(
                    phase="tool",
                    native_name=turn.tool,
                    start_ns=now,
                    end_ns=now + planned + 1_000_000,
                    pool=pool,
                    trajectory_id=name,
                    turn=number,
                    attributes={
                        "tool": turn.tool,
                        "planned_ns": planned,
                        "status": "ok",
                        "observation_tokens": turn.observation_tokens,
                        "observation_bytes": turn.observation_tokens * 4,
                    },
                )
            )
            tool_ns += planned + 1_000_000
            now += planned + int(0.03 * S)
        closed = Trajectory(
            trajectory_id=name,
            group_id=f"p{prompt}",
            prompt=prompt,
            sample=sample,
            attempt=0,
            status="ok",
            start_ns=start_ns,
            end_ns=now + int(0.01 * S),
            turns=len(plan.turns),
            tool_calls=plan.tool_calls,
            tool_ns=tool_ns,
            prompt_tokens=plan.prompt_tokens,
            generated_tokens=plan.generated_tokens,
            observation_tokens=plan.observation_tokens,
            version_scheduled=version,
            version_first=version,
            version_last=version,
            reward=plan.reward,
        )
        return Played(closed, spans)

    def span(self, phase: str | None, name: str, start: int, end: int, pool: str, **more: Any) -> int:
        self.events.append(Span(phase=phase, native_name=name, start_ns=start, end_ns=end, pool=pool, **more))
        return end

    def train(self, now: int, step: int, pool: str) -> int:
        """Logprob, advantage and update; returns when they ended."""
        now = self.span("logprob", "fwd_logprobs_values_reward", now, now + self.seconds(24, 0.08), pool, step=step)
        now = self.span(
            "advantage", "compute_advantages_and_returns", now, now + self.seconds(0.4, 0.1), pool, step=step
        )
        return self.span("train", "train_critic_and_policy", now, now + self.seconds(33, 0.08), pool, step=step)

    def proof(self, now: int) -> int:
        """The weight-sync proof of the warm-up: probe logprobs of trainer and engine for versions 0, 1, 2."""
        for version in range(3):
            moved = [-1.0 - 0.05 * version - 0.01 * i for i in range(8)]
            asked = [("trainer", 0.0, {}), *(("engine", 2e-6, {"engine": name}) for name in self.engines)]
            for source, drift, who in asked:
                self.events.append(
                    Metric(
                        name="probe_logprobs",
                        mono_ns=now + version * 1_000_000,
                        values=tuple(round(value + drift, 9) for value in moved),
                        labels={"source": source, "version": version, **who},
                    )
                )
        return now + S

    def step(self, step: int, start: int, end: int, batch: list[Played]) -> None:
        for played in batch:
            self.events.extend(played.spans)
            self.events.append(played.closed)
        pairs = (("logprob_diff_max", 8e-6), ("logprob_diff_mean", 3e-7))
        for name, value in pairs:
            labels = {"staleness": 0, "same_version": True}
            self.events.append(Metric(name=name, mono_ns=end, value=value, step=step, labels=labels))
        loss = sum(played.closed.generated_tokens for played in batch)
        observed = sum(played.closed.observation_tokens + played.closed.prompt_tokens for played in batch)
        self.events.append(
            Step(
                step=step,
                policy_version=step,
                start_ns=start,
                end_ns=end,
                trajectory_ids=tuple(played.closed.trajectory_id for played in batch),
                loss_tokens=loss,
                processed_tokens=loss + observed,
                reward_mean=0.5,
                grad_norm=0.4,
                recorder_ns=step * 9_000_000,
            )
        )


def play(spec: RunSpec) -> list[Event]:
    """The events of a run that went as planned, `Hello` first and `Bye` last."""
    engines = tuple(f"10.0.0.1:{8000 + i}" for i in range(max(1, spec.gpus.rollout // spec.rollout_tp)))
    world = World(spec=spec, random=random.Random(spec.seed), engines=engines)
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        run_id="",
        host="node-1",
        pid=4242,
        role="controller",
        wall_ns=1_790_000_000 * S,
        mono_ns=BEGIN,
        versions={"skyrl": "0.4.0", "vllm": "0.30.0", "torch": "2.12.0"},
    )
    end = _async(world) if spec.placement is Placement.ASYNC else _synchronous(world)
    bye = Bye(
        mono_ns=end + S,
        wall_ns=1_790_000_000 * S + end + S - BEGIN,
        events=len(world.events) + 1,  # as counted when the Bye was made
        lost_events=0,
        recorder_ns=spec.steps * 9_000_000,
    )
    return [hello, *world.events, bye]


def _sync_spans(world: World, start: int, end: int, version: int, pool: str) -> None:
    for engine in world.engines:
        attributes = {"version": version, "engine": engine}
        world.span("weight_sync", "update_weights", start, end, pool, step=version, attributes=attributes)


def _synchronous(world: World) -> int:
    spec = world.spec
    colocated = spec.placement is Placement.COLOCATED
    train_pool = "both" if colocated else "train"
    now = world.proof(BEGIN + 20 * S)
    for step in range(1, spec.steps + 1):
        begin = now
        batch = [
            world.trajectory(
                (step - 1) * spec.batch_size + prompt, sample, now + (prompt * 7 + sample) * 3_000_000, step - 1
            )
            for prompt in range(spec.batch_size)
            for sample in range(spec.group_size)
        ]
        last = max(played.end_ns for played in batch) + int(0.1 * S)
        phase = "generation" if colocated else "wait_rollout"
        now = world.span(phase, "generate", now, last, train_pool, step=step)
        if colocated:
            now = world.span("offload", "sleep", now + int(0.2 * S), now + int(2.6 * S), train_pool, step=step)
        now = world.train(now, step, train_pool)
        synced = now + world.seconds(6, 0.1)
        if not colocated:
            world.span("weight_sync", "sync_weights", now, synced, "train", step=step)
        _sync_spans(world, now, synced, step, "both" if colocated else "rollout")
        now = synced + int(0.3 * S)
        world.span(None, "step", begin, now, train_pool, step=step, container=True)
        world.step(step, begin, now, batch)
    return now


def _async(world: World) -> int:
    """Admission as SkyRL's capacity rule: groups accepted or running <= (max_staleness + version) x batch."""
    spec = world.spec
    now = world.proof(BEGIN + 20 * S)
    syncs: list[int] = []
    running: list[tuple[int, int, list[Played]]] = []  # (end of the group, order, members)
    order = count()
    prompts = iter(range(spec.prompts))
    admitted = 0
    gate_open = True

    def admit(at: int) -> None:
        nonlocal admitted, gate_open
        cap = (spec.max_staleness + 1 + len(syncs)) * spec.batch_size
        while admitted < cap:
            prompt = next(prompts, None)
            if prompt is None:
                break
            if not gate_open:
                world.events.append(Gate(mono_ns=at, open=True, why="a version was trained", in_flight=len(running)))
                gate_open = True
            jitter = (admitted % spec.batch_size) * 5_000_000
            group = [world.trajectory(prompt, s, at + jitter, len(syncs)) for s in range(spec.group_size)]
            heapq.heappush(running, (max(p.end_ns for p in group), next(order), group))
            admitted += 1
        if gate_open:
            why = "in flight reached the staleness cap"
            world.events.append(
                Gate(mono_ns=at + 50_000_000, open=False, why=why, in_flight=len(running), cap=len(running))
            )
            gate_open = False

    admit(now)
    for step in range(1, spec.steps + 1):
        begin = now
        groups = [heapq.heappop(running) for _ in range(spec.batch_size)]
        ready = max(now, groups[-1][0] + int(0.05 * S))
        now = world.span("wait_rollout", "wait_for_generation_buffer", now, ready, "train", step=step)
        now = world.train(now, step, "train")
        synced = now + world.seconds(3, 0.1)
        world.span("weight_sync", "sync_weights", now, synced, "train", step=step)
        _sync_spans(world, now, synced, step, "rollout")
        now = synced + int(0.2 * S)
        syncs.append(synced)
        world.step(step, begin, now, [_seen(played, syncs) for _, _, members in groups for played in members])
        admit(synced)
    for _, _, members in running:  # in flight at the end: what they did so far, and no Trajectory event
        for played in members:
            world.events.append(_opened(played) if played.end_ns > now else _seen(played, syncs).closed)
            world.events.extend(span for span in played.spans if span.end_ns <= now)
    return now


def _opened(played: Played) -> Open:
    closed = played.closed
    return Open(
        id=closed.prompt * 100 + closed.sample + 1,
        start_ns=closed.start_ns,
        phase=None,
        native_name="trajectory",
        trajectory_id=closed.trajectory_id,
    )


def _seen(played: Played, syncs: list[int]) -> Played:
    """The trajectory with the versions its turns saw, known once it has ended."""
    spans = []
    for span in played.spans:
        attributes = dict(span.attributes)
        if span.phase == "generation":
            attributes["version_start"] = sum(1 for at in syncs if at <= span.start_ns)
            attributes["version_end"] = sum(1 for at in syncs if at <= span.end_ns)
        spans.append(replace(span, attributes=attributes))
    turns = [span for span in spans if span.phase == "generation"]
    first, last = turns[0].attributes["version_start"], turns[-1].attributes["version_end"]
    assert isinstance(first, int)
    assert isinstance(last, int)
    return Played(replace(played.closed, version_first=first, version_last=last), spans)
