"""What passes between the agent loop and a framework: sampling and replies down and up, ids by a codec, the result."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one turn is sampled: exactly N tokens when `min_tokens == max_tokens` and `ignore_eos`; unfiltered."""

    max_tokens: int
    min_tokens: int
    ignore_eos: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_ids: tuple[int, ...] = ()  # end a reply besides the model's own end tokens; part of the reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One reply: `ids` and their `logprobs` (natural logarithm, same length), as the engine returned them."""

    ids: list[int]
    logprobs: list[float]
    version_start: int | None = None  # policy version at the first token
    version_end: int | None = None  # policy version at the last token
    engine: str | None = None  # address of the server that answered
    stop_reason: str | None = None
    versions: list[int] | None = None  # policy version of each token, where the framework tells


Generate = Callable[[str, list[int], Sampling], Awaitable[Generated]]
"""(trajectory id, token ids so far, sampling) -> the reply."""

Score = Callable[[str, list[int], list[int]], Awaitable[Generated]]
"""(trajectory id, token ids so far, ids of a reply that a script wrote) -> that reply with the engine's logprobs."""


class Codec(Protocol):
    """An adapter's tokenizer with its chat template, made exact: the lengths are the plan's."""

    pad_id: int  # stands where a trajectory has no ids of its own

    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        """The first prompt, exactly `tokens` long, template included."""

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        """A tool's answer and the head of the next turn, exactly `tokens` long, template included."""


class LiveCodec(Codec, Protocol):
    """What a live load needs besides: lengths are what they are, and replies are read."""

    end_id: int  # the token that ends a turn
    thought_opening: tuple[int, ...]  # what a generation prompt ends in if it opens a think block; else empty

    def chat_ids(self, system: str, user: str) -> list[int]:
        """A conversation's beginning up to where the assistant begins, in its natural length."""

    def answer_ids(self, contents: Sequence[Sequence[int]], *, closed: bool) -> list[int]:
        """Tool answers to one reply and the head of the next turn, in their natural length.

        Args:
            contents: ids of the answers' texts, one per tool call, in the order of the calls; at least one.
            closed: the reply ended with `end_id`; else that token is put before the answers.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, tags and special tokens included."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text; tags and special tokens in it become their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """What a trainer needs of one trajectory. `response_ids`, `loss_mask` and `logprobs` have the same length."""

    trajectory_id: str
    group_id: str
    status: str  # ok | failed | timeout
    message: str | None
    prompt_ids: list[int]
    response_ids: list[int]  # everything after the prompt: replies and observations
    loss_mask: list[int]  # 1 on generated tokens, 0 on observations
    logprobs: list[float]  # of the engine; 0.0 on observations
    versions: list[int | None]  # policy version of each id, as far as the framework tells; None on observations
    reward: float | None  # None unless status is ok
    turns: int  # replies that came back
    tool_calls: int
    version_first: int | None
    version_last: int | None
    generated: tuple[Generated, ...]  # by turn, for trainers that want versions per token
