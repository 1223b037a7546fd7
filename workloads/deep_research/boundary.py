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

    def chat_ids(self, system: str, user: str) -> list[int]:
        """A conversation's beginning up to where the assistant begins, in its natural length."""

    def answer_ids(self, texts: Sequence[str], *, closed: bool, limit: int | None) -> list[int]:
        """Tool answers to one reply and the head of the next turn, in their natural length.

        Args:
            texts: one per tool call, in the order of the calls.
            closed: the reply ended with the token that ends a turn; else that token is put before the answers.
            limit: most tokens in all; texts are cut to it, the template never is. None: no limit.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, tags and special tokens included."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text; tags in it become their tokens."""

    def ends_turn(self, ids: Sequence[int]) -> bool:
        """Whether the last of the ids is the one that ends a turn."""


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
    reward: float | None  # None unless status is ok
    turns: int  # replies that came back
    tool_calls: int
    version_first: int | None
    version_last: int | None
    generated: tuple[Generated, ...]  # by turn, for trainers that want versions per token
