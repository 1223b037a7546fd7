"""Prompts and observations as token ids, rendered through the model's own chat template, once.

In a fixed load their lengths are the plan's; in a live load (`chat_ids`, `answer_ids`) what they are.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

_MARK_A = "\u2402PLACE-A\u2403"
_MARK_B = "\u2402PLACE-B\u2403"
_THINK = "<think>"


class ChatCodec:
    """Splits a chat template once around its contents; afterwards a message is `prefix + content + suffix` of ids."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is a transformers tokenizer with a chat template.

        Raises:
            ValueError: the template does not render a user message followed by a tool message.
        """
        self._tokenizer = tokenizer
        first = tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARK_A}], tokenize=False, add_generation_prompt=True
        )
        whole = tokenizer.apply_chat_template(
            [
                {"role": "user", "content": "question"},
                {"role": "assistant", "content": _MARK_A},
                {"role": "tool", "content": _MARK_B},
            ],
            tokenize=False,
            add_generation_prompt=True,
        )
        if first.count(_MARK_A) != 1 or whole.count(_MARK_A) != 1 or whole.count(_MARK_B) != 1:
            raise ValueError("the chat template does not place user, assistant and tool messages once each")
        before, after_prompt = first.split(_MARK_A)
        self._prompt_prefix = self._encode(before)
        self._prompt_suffix = self._encode(after_prompt)
        between, after = whole.split(_MARK_A)[1].split(_MARK_B)
        self._observation_prefix = self._encode(between)
        self._observation_suffix = self._encode(after)
        self._filler = self._encode(" the")
        self.pad_id = int(tokenizer.pad_token_id)
        self.end_id = self._observation_prefix[0]
        self.thought_opening = self._find_opening(after_prompt, self._prompt_suffix)
        self._answer_frame = cache(self._make_answer_frame)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _find_opening(self, text: str, head: Sequence[int]) -> tuple[int, ...]:
        """The ids of the generation prompt `text` from its `<think>` on; empty where it leaves no block open."""
        if not text.rstrip().endswith(_THINK):
            return ()
        sizes = range(1, len(head) + 1)
        return tuple(next(head[-size:] for size in sizes if _THINK in self.decode(head[-size:])))

    @property
    def observation_overhead(self) -> int:
        """Tokens of an observation that are the template's, not the tool's."""
        return len(self._observation_prefix) + len(self._observation_suffix)

    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        """The first prompt, exactly `tokens` long, ending where the assistant begins.

        Raises:
            ValueError: `tokens` is less than the template alone needs.
        """
        return self._fit(self._prompt_prefix, question, self._prompt_suffix, tokens)

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        """A tool's answer after an assistant turn, exactly `tokens` long, ending where the assistant begins.

        Raises:
            ValueError: `tokens` is less than the template alone needs.
        """
        return self._fit(self._observation_prefix, text, self._observation_suffix, tokens)

    def chat_ids(self, system: str, user: str) -> list[int]:
        """A system and a user message, ending where the assistant begins, in their natural length.

        Raises:
            ValueError: the template does not place both once.
        """
        messages = [{"role": "system", "content": _MARK_A}, {"role": "user", "content": _MARK_B}]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        if text.count(_MARK_A) != 1 or text.count(_MARK_B) != 1:
            raise ValueError("the chat template does not place a system and a user message once each")
        return self._encode(text.replace(_MARK_A, system).replace(_MARK_B, user))

    def answer_ids(self, contents: Sequence[Sequence[int]], *, closed: bool) -> list[int]:
        """Tool messages after an assistant turn, ending where the next begins.

        `closed`: the turn ended with `end_id`, which is then not put a second time.

        Raises:
            ValueError: the template does not place every tool message once.
        """
        frame = self._answer_frame(len(contents))
        ids = list(frame[0][1:] if closed else frame[0])
        for content, after in zip(contents, frame[1:], strict=True):
            ids += [*content, *after]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode(self, text: str) -> list[int]:
        """The ids of a text; what in it are special tokens become theirs."""
        return self._encode(text)

    def _make_answer_frame(self, count: int) -> list[list[int]]:
        """What the template puts before, between and after `count` tool messages."""
        marks = [f"{_MARK_B}{number}\u2403" for number in range(count)]
        text = self._tokenizer.apply_chat_template(
            [
                {"role": "user", "content": "question"},
                {"role": "assistant", "content": _MARK_A},
                *({"role": "tool", "content": mark} for mark in marks),
            ],
            tokenize=False,
            add_generation_prompt=True,
        )
        rest = text.split(_MARK_A)[1]
        frame = []
        for mark in marks:
            if rest.count(mark) != 1:
                raise ValueError(f"the chat template does not place {count} tool messages once each")
            before, rest = rest.split(mark)
            frame.append(self._encode(before))
        return [*frame, self._encode(rest)]

    def _fit(self, prefix: list[int], text: str, suffix: list[int], tokens: int) -> list[int]:
        room = tokens - len(prefix) - len(suffix)
        if room < 0:
            raise ValueError(f"{tokens} tokens asked for, the chat template alone has {tokens - room}")
        content = list(self._encode(text)[:room])
        while len(content) < room:
            content.extend(self._filler[: room - len(content)])
        return [*prefix, *content, *suffix]
