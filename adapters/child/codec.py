"""Prompts and observations as token ids of an exact length, rendered through the model's own chat template."""

from typing import Any

_MARK_A = "\u2402PLACE-A\u2403"
_MARK_B = "\u2402PLACE-B\u2403"


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
        before, after = first.split(_MARK_A)
        self._prompt_prefix = self._encode(before)
        self._prompt_suffix = self._encode(after)
        between, after = whole.split(_MARK_A)[1].split(_MARK_B)
        self._observation_prefix = self._encode(between)
        self._observation_suffix = self._encode(after)
        self._filler = self._encode(" the")
        self.pad_id = int(tokenizer.pad_token_id)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

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

    def _fit(self, prefix: list[int], text: str, suffix: list[int], tokens: int) -> list[int]:
        room = tokens - len(prefix) - len(suffix)
        if room < 0:
            raise ValueError(f"{tokens} tokens asked for, the chat template alone has {tokens - room}")
        content = list(self._encode(text)[:room])
        while len(content) < room:
            content.extend(self._filler[: room - len(content)])
        return [*prefix, *content, *suffix]
