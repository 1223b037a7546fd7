"""Tool calls and thinking in replies: every well-formed one is read, every other is answered, nothing raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.deep_research.parsing import TOOLS, Call, Mistake, describe, parse_reply, render_call

SEARCH = '<tool_call>\n{"name": "search_engine", "arguments": {"query": "bridges"}}\n</tool_call>'


def only(text: str) -> Call | Mistake:
    calls = parse_reply(text).calls
    assert len(calls) == 1
    return calls[0]


def wrong(text: str) -> str:
    call = only(text)
    assert isinstance(call, Mistake)
    return call.text


def test_several_calls_among_text_are_read_in_order() -> None:
    text = f'First.{SEARCH} and <tool_call>{{"name":"web_browser","arguments":{{"url":"http://a.test/"}}}}</tool_call>!'
    assert parse_reply(text).calls == (
        Call(tool="search_engine", argument="bridges"),
        Call(tool="web_browser", argument="http://a.test/"),
    )


def test_a_question_goes_with_a_page() -> None:
    text = render_call("web_browser", {"url": "http://a.test/", "question": "who?"})
    assert only(text) == Call(tool="web_browser", argument="http://a.test/", question="who?")


def test_arguments_may_be_a_string_of_json() -> None:
    inner = json.dumps({"query": "a {b} c"})
    assert only(f"<tool_call>{json.dumps({'name': 'search_engine', 'arguments': inner})}</tool_call>") == Call(
        tool="search_engine", argument="a {b} c"
    )


def test_braces_and_tags_inside_a_string_end_nothing() -> None:
    query = 'why "}}" and </tool_call> and <tool_call>?'
    assert only(render_call("search_engine", {"query": query})) == Call(tool="search_engine", argument=query)


@pytest.mark.parametrize("rest", ["", "  \n", "<|im_end|>"])
def test_a_whole_call_needs_no_closing_tag(rest: str) -> None:
    assert only(SEARCH.removesuffix("\n</tool_call>") + rest) == Call(tool="search_engine", argument="bridges")


def test_the_call_after_an_unclosed_one_is_read() -> None:
    assert len(parse_reply(SEARCH.removesuffix("</tool_call>") + SEARCH).calls) == 2


def test_the_answer_is_that_of_finish() -> None:
    assert parse_reply(SEARCH + render_call("finish", {"answer": " Oslo "})).answer == "Oslo"
    assert parse_reply('<tool_call>{"name": "finish", "arguments": {"answer": 1816}}</tool_call>').answer == "1816"
    assert parse_reply(SEARCH).answer is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "the reply ends after <tool_call>"),
        ('{"name": "search_engine", "arguments": {"query": "br', "ends in the middle of the JSON"),
        ('{"name": "search_engine", "arguments": {"query": True}}</tool_call>', "not valid JSON"),
        ('{"name": "search_engine", "arguments": {"query": NaN}}</tool_call>', "NaN is no JSON value"),
        ("{'name': 'search_engine'}</tool_call>", "not valid JSON"),
        ('{"name": "search_engine", "arguments": {"query": "a"}}}</tool_call>', "something follows the JSON object"),
        ('["search_engine"]</tool_call>', "but a list"),
        ('{"arguments": {"query": "a"}}</tool_call>', '"name" is missing'),
        ('{"name": 3, "arguments": {}}</tool_call>', '"name" is a number'),
        ('{"name": "google", "arguments": {}}</tool_call>', "there is no tool 'google'; the tools are search_engine"),
        ('{"name": "search_engine"}</tool_call>', '"arguments" is missing; search_engine needs {"query"'),
        ('{"name": "search_engine", "arguments": "bridges"}</tool_call>', "is a string and not an object"),
        ('{"name": "search_engine", "arguments": []}</tool_call>', '"arguments" is a list'),
        ('{"name": "search_engine", "arguments": {"q": "a"}}</tool_call>', "\"query\" is missing (given: 'q')"),
        ('{"name": "search_engine", "arguments": {"query": ["a"]}}</tool_call>', '"query" is a list'),
        ('{"name": "search_engine", "arguments": {"query": "  "}}</tool_call>', '"query" is empty'),
        ('{"name": "finish", "arguments": {"answer": true}}</tool_call>', '"answer" is a boolean'),
        ('{"name": "web_browser", "arguments": {"url": "u", "question": 1}}</tool_call>', '"question" is a number'),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000 + "</tool_call>", "not valid JSON"),
    ],
)
def test_a_mistake_says_what_was_wrong(body: str, said: str) -> None:
    assert said in wrong("<tool_call>" + body)


def test_a_mistake_hides_no_call_after_it() -> None:
    calls = parse_reply(f"<tool_call>oops</tool_call>{SEARCH}<tool_call>{{{SEARCH}").calls
    assert [type(call) for call in calls] == [Mistake, Call, Mistake, Call]


def test_a_think_block_calls_nothing() -> None:
    reply = parse_reply(f"<think>{SEARCH}</think>\n{SEARCH}<think>again {SEARCH}</think>")
    assert (len(reply.calls), reply.thinking, reply.thinking_cut) == (1, True, False)


def test_a_think_block_that_is_not_closed_was_cut() -> None:
    reply = parse_reply(f"{SEARCH}<think>and so on {SEARCH}")
    assert (len(reply.calls), reply.thinking, reply.thinking_cut) == (1, True, True)


def test_a_block_that_the_prompt_opened_is_thinking_too() -> None:
    reply = parse_reply(f"so {SEARCH}</think>{SEARCH}")
    assert (len(reply.calls), reply.thinking, reply.thinking_cut) == (1, True, False)


def test_half_a_surrogate_pair_can_be_encoded_afterwards() -> None:
    call = only('<tool_call>{"name": "search_engine", "arguments": {"query": "a\\ud800b"}}</tool_call>')
    assert isinstance(call, Call)
    assert call.argument.encode() == b"a?b"
    assert wrong('<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>').encode()


def test_every_tool_is_described() -> None:
    described = [json.loads(line)["function"] for line in describe().splitlines()]
    assert [each["name"] for each in described] == list(TOOLS)
    assert all(each["parameters"]["required"] == [TOOLS[each["name"]].argument] for each in described)


_PIECES = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", "{", "}", '"', "[", "]", "\\", SEARCH, "<|im_end|>", "name"]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=8)), max_size=30).map("".join))
def test_no_text_raises(text: str) -> None:
    reply = parse_reply(text)
    assert all(call.text.encode() if isinstance(call, Mistake) else call.argument.encode() for call in reply.calls)
    assert len(reply.calls) <= text.count("<tool_call>")


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip())


@given(st.lists(st.tuples(st.sampled_from(sorted(TOOLS)), _TEXT), max_size=5))
def test_what_is_rendered_is_read_back(calls: list[tuple[str, str]]) -> None:
    text = "".join(render_call(tool, {TOOLS[tool].argument: argument}) for tool, argument in calls)
    if "think>" in text:  # a think tag in an argument is one all the same: the model wrote it
        return
    assert parse_reply(text).calls == tuple(Call(tool=tool, argument=argument.strip()) for tool, argument in calls)
