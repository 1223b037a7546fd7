"""Conversations as ids: the chat codec over a small tokenizer, and the simulated one."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.child.codec import ChatCodec
from adapters.simulated.engine import Codec

_SPECIAL = re.compile(r"<\|im_start\|>|<\|im_end\|>")
_NAMES = ("<|im_start|>", "<|im_end|>")


class Tokenizer:
    """A character a token, marks in one; joins tool messages to one user message, as Qwen3's template does."""

    pad_token_id = 0

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = []
        place = 0
        for mark in _SPECIAL.finditer(text):
            ids += [ord(character) + 3 for character in text[place : mark.start()]]
            ids.append(1 + _NAMES.index(mark.group()))
            place = mark.end()
        return ids + [ord(character) + 3 for character in text[place:]]

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(_NAMES[token - 1] if token < 3 else chr(token - 3) for token in ids)

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        parts = []
        for place, message in enumerate(messages):
            role, content = message["role"], message["content"]
            if role != "tool":
                parts.append(f"<|im_start|>{role}\n{content}<|im_end|>\n")
                continue
            if messages[place - 1]["role"] != "tool":
                parts.append("<|im_start|>user")
            parts.append(f"\n<tool_response>\n{content}\n</tool_response>")
            if place + 1 == len(messages) or messages[place + 1]["role"] != "tool":
                parts.append("<|im_end|>\n")
        return "".join(parts) + "<|im_start|>assistant\n"


@pytest.fixture(params=[ChatCodec(Tokenizer()), Codec()], ids=["chat", "simulated"])
def codec(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_conversation_begins_with_system_and_user(codec: Any) -> None:
    assert codec.decode(codec.chat_ids("be brief", "who?")) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nwho?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_answers_follow_a_turn_that_is_closed_or_not(codec: Any) -> None:
    contents = [codec.encode("one"), codec.encode("two")]
    text = (
        "\n<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert codec.decode(codec.answer_ids(contents, closed=True)) == text
    open_turn = codec.answer_ids(contents, closed=False)
    assert codec.decode(open_turn) == "<|im_end|>" + text
    assert open_turn[0] == codec.end_id


def test_contents_stand_in_the_answer_as_they_are(codec: Any) -> None:
    content = codec.encode("three words here")
    ids = codec.answer_ids([content], closed=True)
    assert any(ids[place : place + len(content)] == content for place in range(len(ids)))
    assert len(ids) == len(content) + len(codec.answer_ids([[]], closed=True))


@given(st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(_NAMES))).map("".join))
def test_what_is_encoded_is_decoded(text: str) -> None:
    for codec in (ChatCodec(Tokenizer()), Codec()):
        assert codec.decode(codec.encode(text)) == text
