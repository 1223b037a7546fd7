"""What a trajectory will do, drawn from (seed, prompt, sample) alone: turns, tokens, tools, latencies, reward.

Every number is the quantile of its own hashed uniform number (SHA-256 of seed, prompt, sample, the draw's name and
its index), so a draw more or less moves no other, no state is carried, and every framework, Python (>= 3.11) and
platform offers the same work. Latencies are rounded to microseconds and tokens to whole ones, which drops the last
bits in which mathematical libraries differ.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.protocol.errors import SpecError
from workloads.deep_research.faults import drawn
from workloads.deep_research.faults import latency as fault_latency
from workloads.deep_research.faults import tokens as fault_tokens
from workloads.deep_research.presets import BROWSE, FINISH, PRESETS, SEARCH, Preset

__all__ = [
    "PRESETS",
    "Limits",
    "Preset",
    "TrajectoryPlan",
    "Turn",
    "check_context",
    "draw_plan",
    "limits",
    "longest_plan",
    "slowest_plan",
]

# Part of every hash: changing how plans are drawn means changing this, and with it every work offered so far.
_VERSION = "deep-research/1"

_SHORT = "deep-research-smoke"  # the preset with the shortest lengths

# A prompt is shared by its group: its draws have no sample.
_NO_SAMPLE = -1

_FIRST_WORD = struct.Struct(">Q")
_Uniform = Callable[[str, int], float]  # by the draw's name and its index
_in_few_bytes = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make an encoder for each plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model reply and the tool call it leads to; the last turn finishes and calls nothing."""

    generated_tokens: int
    tool: str  # search_engine | web_browser | finish
    latency_s: float | None  # None for finish
    observation_tokens: int  # chat-template wrapper included; 0 for finish
    fault: str | None = None  # what goes wrong with the call, one of faults.KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryPlan:
    """One trajectory of a prompt's group, decided in advance."""

    prompt: int
    sample: int
    prompt_tokens: int
    turns: tuple[Turn, ...]
    reward: float

    @property
    def tool_calls(self) -> int:
        """Turns that call a tool: all but the last."""
        return sum(turn.latency_s is not None for turn in self.turns)

    @property
    def generated_tokens(self) -> int:
        """Tokens the model generates over all turns."""
        return sum(turn.generated_tokens for turn in self.turns)

    @property
    def observation_tokens(self) -> int:
        """Tokens the tools add over all calls."""
        return sum(turn.observation_tokens for turn in self.turns)

    @property
    def context_tokens(self) -> int:
        """Tokens of prompt, replies and observations together: the longest context the engine sees."""
        return self.prompt_tokens + self.generated_tokens + self.observation_tokens

    @property
    def tool_seconds(self) -> float:
        """Seconds spent in tools, one after the other."""
        return sum(turn.latency_s for turn in self.turns if turn.latency_s is not None)

    @property
    def digest(self) -> str:
        """Names the plan by its content, latencies in whole microseconds; equal plans have equal digests.

        A fault is named where there is one: without faults a plan has the digest it had before there were any.
        """
        content = [
            self.prompt,
            self.sample,
            self.prompt_tokens,
            round(self.reward * 1_000_000),
            [
                [t.generated_tokens, t.tool, _microseconds(t.latency_s), t.observation_tokens, *_fault(t)]
                for t in self.turns
            ],
        ]
        return hashlib.sha256(_in_few_bytes(content).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hard limits that end what no plan asked for; no planned latency reaches them. In seconds."""

    tool_timeout_s: float
    trajectory_timeout_s: float


def draw_plan(preset: Preset, seed: int, prompt: int, sample: int, latency_scale: float = 1.0) -> TrajectoryPlan:
    """The plan of one trajectory; `latency_scale` multiplies its tool latencies and nothing else."""

    uniform, of_group = _uniform(seed, prompt, sample), _uniform(seed, prompt, _NO_SAMPLE)
    if preset.calls is not None:
        calls = round(preset.calls.at(uniform("calls", 0)))
    else:
        calls = preset.least_calls + int(uniform("calls", 0) * (preset.most_calls - preset.least_calls + 1))
    turns = []
    for index in range(calls):
        tool = SEARCH if uniform("tool", index) < preset.search_share else BROWSE
        u, v = uniform("latency", index), uniform("observation", index)
        latency_s, tokens = preset.latency_s[tool].at(u), preset.observation.at(v)
        kinds = preset.faults.get(tool, {})
        fault = drawn(kinds, uniform("fault", index)) if kinds else None
        if fault is not None:
            latency_s = fault_latency(fault, kinds[fault], preset.latency_s[tool], u)
            tokens = fault_tokens(fault, preset.observation, v)
        turns.append(
            Turn(
                generated_tokens=round(preset.generated.at(uniform("generated", index))),
                tool=tool,
                latency_s=max(round(latency_s * latency_scale, 6), 1e-6),
                observation_tokens=round(tokens),
                fault=fault,
            )
        )
    last = round(preset.generated.at(uniform("generated", calls)))
    turns.append(Turn(generated_tokens=last, tool=FINISH, latency_s=None, observation_tokens=0))
    return TrajectoryPlan(
        prompt=prompt,
        sample=sample,
        prompt_tokens=round(preset.prompt.at(of_group("prompt", 0))),
        turns=tuple(turns),
        reward=_reward(of_group, sample),
    )


def longest_plan(
    preset: Preset, seed: int, prompts: int, group_size: int, latency_scale: float = 1.0
) -> TrajectoryPlan:
    """The plan with the longest context among `prompts` x `group_size` trajectories (the first of equals)."""
    return max(_plans(preset, seed, prompts, group_size, latency_scale), key=lambda plan: plan.context_tokens)


def slowest_plan(
    preset: Preset, seed: int, prompts: int, group_size: int, latency_scale: float = 1.0
) -> TrajectoryPlan:
    """The plan with the most seconds in tools among `prompts` x `group_size` trajectories (the first of equals)."""
    return max(_plans(preset, seed, prompts, group_size, latency_scale), key=lambda plan: plan.tool_seconds)


def check_context(
    preset: Preset,
    *,
    seed: int,
    prompts: int,
    group_size: int,
    context_tokens: int,
    latency_scale: float = 1.0,
    most_context_tokens: int | None = None,
) -> None:
    """Checks that every plan fits the context. `most_context_tokens`: that the model can have, where it is known.

    Raises:
        SpecError: names the longest plan's prompt and sample, its length, and what is allowed.
    """
    plan = longest_plan(preset, seed, prompts, group_size, latency_scale)
    if plan.context_tokens > context_tokens:
        raise SpecError(
            f"context_tokens = {context_tokens:,}: the plan of prompt {plan.prompt}, sample {plan.sample} is"
            f" {plan.context_tokens:,} tokens long (preset {preset.name}, seed {seed});"
            f" {ways_out(preset, plan.context_tokens, most_context_tokens)}"
        )


def ways_out(preset: Preset, tokens: int, most_context_tokens: int | None = None) -> str:
    """What can be done about a plan of so many tokens that does not fit the context."""
    ways = [f"allowed is at least {tokens:,} (--context-tokens {tokens})"]
    if most_context_tokens is not None and tokens > most_context_tokens:
        ways = [
            f"allowed is at least {tokens:,}, and this model has at most {most_context_tokens:,}: another one (--model)"
        ]
    if preset.name not in PRESETS:
        ways.append(
            "or a preset with shorter lengths: pages as they were recorded are long, and `bench tools fit ... --base"
            " deep-research-smoke --lengths base` fits all but the lengths"
        )
    elif preset.generated.cap > PRESETS[_SHORT].generated.cap:
        ways.append(f"or a smaller preset (--preset {_SHORT})")
    return ", ".join(ways)


def limits(preset: Preset, latency_scale: float = 1.0) -> Limits:
    """Hard limits for a preset: twice the slowest possible call and half a minute; all calls and half an hour.

    The half hour is for the engine: a reply that takes longer has hung.
    """
    slowest = preset.slowest_call_s * latency_scale
    return Limits(
        tool_timeout_s=2 * slowest + 30.0,
        trajectory_timeout_s=preset.most_calls * slowest + 1_800.0,
    )


def _plans(preset: Preset, seed: int, prompts: int, group_size: int, latency_scale: float) -> Iterator[TrajectoryPlan]:
    for prompt in range(prompts):
        for sample in range(group_size):
            yield draw_plan(preset, seed, prompt, sample, latency_scale)


def _reward(of_group: _Uniform, sample: int) -> float:
    """1 or 0. Samples 2k and 2k + 1 always differ; which of them succeeds is drawn per pair.

    So every group of two or more (samples 0, 1, ...) holds both values whatever its size, its mean lies strictly
    between them, and no trajectory's advantage is zero: the weights really move in every step.
    """
    first = of_group("reward", sample // 2) < 0.5
    return float(first == (sample % 2 == 0))


def _uniform(seed: int, prompt: int, sample: int) -> _Uniform:
    """Draws numbers in (0, 1), never an end: 52 hashed bits and a half, which a float holds exactly."""
    begin, sha256, first_word = f"{_VERSION}:{seed}:{prompt}:{sample}:", hashlib.sha256, _FIRST_WORD.unpack_from

    def uniform(draw: str, index: int) -> float:
        word: int = first_word(sha256(f"{begin}{draw}:{index}".encode()).digest())[0]
        return ((word >> 12) + 0.5) * 2.0**-52

    return uniform


def _fault(turn: Turn) -> list[str]:
    return [] if turn.fault is None else [turn.fault]


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)
