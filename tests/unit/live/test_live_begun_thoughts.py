"""Chat templates whose generation prompt opens the think block: who closes it, and what is sent later."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_parts import CODEC, FINISH, SEARCH, Tools, play
from test_live_codecs import Tokenizer
from test_live_policy import BRIDGE, HITS, PAGES, QUESTION, policy

from adapters.child.codec import ChatCodec
from adapters.simulated.engine import Codec
from harness.protocol.spec import Thinking
from workloads.deep_research.live import without_thoughts
from workloads.deep_research.parsing import parse_reply

OPENING = "<think>\n"


class OpeningTokenizer(Tokenizer):
    """Its template opens the block where the assistant begins; a tag is several ids."""

    def apply_chat_template(self, messages: list[dict[str, str]], **more: Any) -> str:
        return super().apply_chat_template(messages, **more) + OPENING


class OpeningCodec(Codec):
    """The simulated codec with such a template."""

    thought_opening = tuple(CODEC.encode(OPENING))

    def chat_ids(self, system: str, user: str) -> list[int]:
        return [*super().chat_ids(system, user), *self.thought_opening]

    def answer_ids(self, contents: Sequence[Sequence[int]], *, closed: bool) -> list[int]:
        return [*super().answer_ids(contents, closed=closed), *self.thought_opening]


def test_the_codec_says_what_opens_a_thought() -> None:
    codec = ChatCodec(OpeningTokenizer())
    assert codec.decode(codec.thought_opening) == OPENING
    assert codec.chat_ids("a", "b")[-len(codec.thought_opening) :] == list(codec.thought_opening)
    assert codec.answer_ids([[7]], closed=True)[-len(codec.thought_opening) :] == list(codec.thought_opening)
    assert ChatCodec(Tokenizer()).thought_opening == ()


def test_a_template_that_closes_the_block_at_once_opens_none() -> None:
    class Closing(Tokenizer):
        def apply_chat_template(self, messages: list[dict[str, str]], **more: Any) -> str:
            return super().apply_chat_template(messages, **more) + "<think>\n\n</think>\n\n"

    assert ChatCodec(Closing()).thought_opening == ()


@pytest.mark.parametrize(
    ("text", "calls", "cut"), [(f"hm {SEARCH}", 0, True), (f"hm {SEARCH}</think>{SEARCH}", 1, False), ("", 0, True)]
)
def test_a_begun_thought_calls_nothing_until_it_is_closed(text: str, calls: int, cut: bool) -> None:
    reply = parse_reply(text, begun=True)
    assert (len(reply.calls), reply.thinking, reply.thinking_cut) == (calls, True, cut)


@pytest.mark.parametrize("thinking", Thinking)
def test_a_reply_that_never_closes_it_was_cut_while_thinking(tmp_path: Path, thinking: Thinking) -> None:
    tools = Tools()
    replies = [f"I could do {SEARCH} and so on!", f"now</think>{FINISH}"]
    played = play(tmp_path, replies, tools, codec=OpeningCodec(), thinking=thinking)
    assert tools.asked == []
    assert "cut while thinking" in CODEC.decode(played.policy.sent[1])
    assert (played.result.reward, played.judged["thoughts"]) == (1.0, 2)


def test_stripped_requests_have_one_block_and_it_is_the_newest(tmp_path: Path) -> None:
    replies = [f"alpha</think>{SEARCH}", "beta, without an end!", f"gamma</think>{SEARCH}", f"delta</think>{FINISH}"]
    played = play(tmp_path, replies, codec=OpeningCodec(), thinking=Thinking.STRIP)
    result, sent = played.result, played.policy.sent
    for ids in sent:
        text = CODEC.decode(ids)
        assert text.endswith(OPENING)
        assert (text.count("<think>"), text.count("</think>")) == (1, 0)
    later = CODEC.decode(sent[3])
    assert not any(word in later for word in ("alpha", "beta", "gamma"))
    assert later.count("<tool_call>") == CODEC.decode(sent[0]).count("<tool_call>") + 2
    assert [span["attributes"]["cache_break"] for span in played.spans("turn")] == [False, True, True, True]
    # Trained is the last reply, in just the context that was sent for it.
    whole = result.prompt_ids + result.response_ids
    assert whole == sent[3] + result.generated[3].ids
    assert result.loss_mask == [0] * (len(result.response_ids) - len(result.generated[3].ids)) + [1] * len(
        result.generated[3].ids
    )
    assert len(result.response_ids) == len(result.loss_mask) == len(result.logprobs) == len(result.versions)


def test_a_group_has_one_prompt_whatever_is_stripped(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    first = play(folders[0], [f"a</think>{FINISH}"], codec=OpeningCodec(), thinking=Thinking.STRIP).result
    second = play(
        folders[1], [f"a</think>{SEARCH}", f"b</think>{FINISH}"], codec=OpeningCodec(), thinking=Thinking.STRIP
    ).result
    assert first.prompt_ids == second.prompt_ids


def test_kept_thoughts_stay_as_they_were_sent(tmp_path: Path) -> None:
    played = play(tmp_path, [f"one</think>{SEARCH}", f"two</think>{FINISH}"], codec=OpeningCodec())
    result, sent = played.result, played.policy.sent
    assert sent[0] == result.prompt_ids
    assert sent[1] + result.generated[1].ids == result.prompt_ids + result.response_ids
    assert sum(result.loss_mask) == sum(len(reply.ids) for reply in result.generated)


@pytest.mark.parametrize(("text", "left"), [("a</think>b", "b"), ("ab", ""), ("a<think>b</think>c", "c"), ("", "")])
def test_a_begun_block_is_taken_out_closed_or_not(text: str, left: str) -> None:
    opening, closing = CODEC.encode("<think>"), CODEC.encode("</think>")
    ids = [*CODEC.encode(text), CODEC.end_id]
    kept = [ids[place] for place in without_thoughts(ids, opening, closing, CODEC.end_id, begun=True)]
    assert CODEC.decode(kept) == left + "<|im_end|>"


@pytest.mark.parametrize("prompt", range(4))
@pytest.mark.parametrize("thinking", list(Thinking))
def test_the_script_closes_what_the_template_opened(tmp_path: Path, prompt: int, thinking: Thinking) -> None:
    asked = replace(policy(0, prompt=prompt), codec=OpeningCodec())
    pages = Tools({**PAGES, f"river crossed {BRIDGE}": HITS})
    row = {"question": QUESTION, "answers": ("1,234",)}
    played = play(tmp_path, [], pages, row=row, generate=asked.generate, thinking=thinking, codec=OpeningCodec())
    assert played.result.reward == 1.0
