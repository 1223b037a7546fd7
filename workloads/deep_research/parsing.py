"""Tool calls and thinking in a reply, as Qwen3 and the Hermes format write them.

A call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them among other text. Where a call
ends is decided by its JSON, not by the closing tag, which may stand inside an argument. What can't be called becomes a
`Mistake` whose text tells the model what was wrong. A `<think>` block calls nothing; one that is not closed was cut.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from workloads.deep_research.presets import BROWSE, FINISH, SEARCH

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK, THOUGHT = "<think>", "</think>"

_SHOWN = 120  # characters of a name or a value that an answer repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as a model sees it: arguments are strings; `argument` is needed, `optional` ones are not."""

    name: str
    purpose: str
    argument: str
    meaning: str
    optional: Mapping[str, str]  # name -> meaning


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name=SEARCH,
            purpose="Searches the web; answers with titles, addresses and snippets.",
            argument="query",
            meaning="what to search for",
            optional={},
        ),
        Tool(
            name=BROWSE,
            purpose="Opens a page and shows what on it bears on a question, with links.",
            argument="url",
            meaning="the page's address",
            optional={"question": "what to look for on the page"},
        ),
        Tool(
            name=FINISH,
            purpose="Gives the final answer and ends the task.",
            argument="answer",
            meaning="the answer, as short as possible",
            optional={},
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that can be made."""

    tool: str  # one of TOOLS
    argument: str
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A call that can't be made; `text` is for the model."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a reply asks for. `calls` are in its order."""

    calls: tuple[Call | Mistake, ...]
    thinking: bool  # it has a think block
    thinking_cut: bool  # and the last one is not closed: nothing after its opening is read

    @property
    def answer(self) -> str | None:
        """Of the first finish among the calls."""
        return next((call.argument for call in self.calls if isinstance(call, Call) and call.tool == FINISH), None)


class _NotCallableError(Exception):
    """Says to the model what was wrong."""


def describe(tools: Sequence[Tool] = tuple(TOOLS.values())) -> str:
    """The tools as JSON schemas, one a line, as the format wants them inside `<tools>`."""
    return "\n".join(json.dumps({"type": "function", "function": _schema(tool)}) for tool in tools)


def _schema(tool: Tool) -> dict[str, Any]:
    meanings = {tool.argument: tool.meaning, **tool.optional}
    properties = {name: {"type": "string", "description": meaning} for name, meaning in meanings.items()}
    parameters = {"type": "object", "properties": properties, "required": [tool.argument]}
    return {"name": tool.name, "description": tool.purpose, "parameters": parameters}


def render_call(tool: str, arguments: Mapping[str, str]) -> str:
    """A call as a model writes it; `parse_reply` reads it back."""
    return f"{OPEN}\n{json.dumps({'name': tool, 'arguments': dict(arguments)}, ensure_ascii=False)}\n{CLOSE}"


def parse_reply(text: str, *, begun: bool = False) -> Reply:
    """The calls of a reply. Never raises, whatever the text.

    Args:
        begun: the prompt opened a think block, which the reply goes on with; without a closing tag it was cut.
    """
    said, thinking, cut = _without_thoughts(THINK + text if begun else text)
    calls: list[Call | Mistake] = []
    place = said.find(OPEN)
    while place >= 0:
        begin = place + len(OPEN)
        try:
            value, end = _object_at(said, begin)
            calls.append(_call(value))
        except _NotCallableError as wrong:
            calls.append(Mistake(str(wrong)))
            end = _after_body(said, begin)
        place = said.find(OPEN, end)
    return Reply(calls=tuple(calls), thinking=thinking, thinking_cut=cut)


def _without_thoughts(text: str) -> tuple[str, bool, bool]:
    """(text without think blocks, whether there was one, whether the last was cut).

    A closing tag before any opening one closes a block that the prompt had opened.
    """
    begin, end = text.find(THINK), text.find(THOUGHT)
    thinking = begin >= 0 or end >= 0
    if end >= 0 and (begin < 0 or end < begin):
        text = text[end + len(THOUGHT) :]
    said = []
    while (begin := text.find(THINK)) >= 0:
        said.append(text[:begin])
        end = text.find(THOUGHT, begin)
        if end < 0:
            return "".join(said), thinking, True
        text = text[end + len(THOUGHT) :]
    return "".join((*said, text)), thinking, False


def _object_at(text: str, begin: int) -> tuple[Any, int]:
    """The JSON value after an opening tag, and where what follows its closing tag begins.

    Raises:
        _NotCallableError: there is no JSON, or something else stands beside it inside the tags.
    """
    while begin < len(text) and text[begin].isspace():
        begin += 1
    if begin == len(text):
        raise _NotCallableError(f"the reply ends after {OPEN}")
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except RecursionError:
        raise _NotCallableError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        where = error.pos - begin
        at_end = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if at_end and text.find(CLOSE, begin) < 0 and text.find(OPEN, begin) < 0:
            raise _NotCallableError("the reply ends in the middle of the JSON") from None
        raise _NotCallableError(f"not valid JSON: {error.msg} at character {where}") from None
    except ValueError as error:
        raise _NotCallableError(f"not valid JSON: {error}") from None
    rest = end
    while rest < len(text) and text[rest].isspace():
        rest += 1
    if text.startswith(CLOSE, rest):
        return value, rest + len(CLOSE)
    if rest == len(text) or text.startswith((OPEN, "<|"), rest):
        return value, rest  # the closing tag is missing: the call is whole all the same
    raise _NotCallableError(f"something follows the JSON object: {_short(text[rest : rest + _SHOWN])}")


def _after_body(text: str, begin: int) -> int:
    """Where to go on after a call that can't be read: behind its closing tag, or at the next opening one."""
    closing, opening = text.find(CLOSE, begin), text.find(OPEN, begin)
    if closing >= 0 and (opening < 0 or closing < opening):
        return closing + len(CLOSE)
    return opening if opening >= 0 else len(text)


def _call(value: Any) -> Call:
    """The call that a JSON value stands for.

    Raises:
        _NotCallableError: it stands for none.
    """
    if not isinstance(value, dict):
        raise _NotCallableError(f'not an object with "name" and "arguments" but {_kind(value)}')
    name = value.get("name")
    if not isinstance(name, str):
        raise _NotCallableError('"name" is missing' if name is None else f'"name" is {_kind(name)}, not a string')
    tool = TOOLS.get(name)
    if tool is None:
        raise _NotCallableError(f"there is no tool {_short(name)}; the tools are {', '.join(TOOLS)}")
    if "arguments" not in value:
        raise _NotCallableError(f'"arguments" is missing; {tool.name} needs {_needs(tool)}')
    arguments = value["arguments"]
    if isinstance(arguments, str):  # JSON inside a string, as some models write it
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            raise _NotCallableError(f'"arguments" is a string and not an object: {_short(arguments)}') from None
    if not isinstance(arguments, dict):
        raise _NotCallableError(f'"arguments" is {_kind(arguments)}, not an object')
    return Call(tool=tool.name, argument=_needed(tool, arguments), question=_optional(tool, arguments, "question"))


def _needed(tool: Tool, arguments: dict[str, Any]) -> str:
    if tool.argument not in arguments:
        others = f" (given: {_short(', '.join(arguments))})" if arguments else ""
        raise _NotCallableError(f'{tool.name} needs {_needs(tool)}: "{tool.argument}" is missing{others}')
    value = arguments[tool.argument]
    if tool.name == FINISH and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # a year or a count
    if not isinstance(value, str):
        raise _NotCallableError(f'"{tool.argument}" is {_kind(value)}, not a string')
    if not value.strip():
        raise _NotCallableError(f'"{tool.argument}" is empty')
    return _sound(value.strip())


def _optional(tool: Tool, arguments: dict[str, Any], name: str) -> str | None:
    value = arguments.get(name)
    if name not in tool.optional or value is None:
        return None
    if not isinstance(value, str):
        raise _NotCallableError(f'"{name}" is {_kind(value)}, not a string')
    return _sound(value.strip()) or None


def _sound(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON can write and nothing can encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _needs(tool: Tool) -> str:
    return f'{{"{tool.argument}": "{tool.meaning}"}}'


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _short(text: str) -> str:
    text = _sound(" ".join(text.split()))
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
