"""The agent loop of the live load: the policy decides what is searched, opened and answered, and the reward is real.

Token in, token out: the ids of a reply are appended as they came, and no text is ever rendered a second time. With
`thinking = strip` the think blocks of earlier replies are taken out of the ids that are sent, as chat templates take
take them out of a text, and the first request after that is marked `cache_break`. Where the template itself opens the
block, at the end of its generation prompt, that opening goes with it.

What is trained is one sequence per trajectory: the ids of the last request and its reply. Under `keep` that is all
there is. Under `strip` a reply whose block was taken out had a context and a continuation that stand in no later
request, so the rest of it stays as context and is not trained (loss mask 0); replies without a block, and the last one
with its block, are. So every trained token has exactly the context in which it was sampled, and its log-probability can
be computed again. The alternative, a row per turn, would give groups and batches of a size that nobody planned.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.protocol.clock import now_ns
from harness.protocol.events import Scalar
from harness.protocol.spec import Thinking
from workloads.deep_research.attempt import ARGUMENT_CHARACTERS, Attempt, EndedError, ToolCall
from workloads.deep_research.boundary import LiveCodec, Sampling
from workloads.deep_research.bounded import LateError, within
from workloads.deep_research.dataset import Row
from workloads.deep_research.excerpt import excerpt
from workloads.deep_research.parsing import THINK, THOUGHT, Call, Mistake, Reply, describe, parse_reply
from workloads.deep_research.plan import Limits
from workloads.deep_research.presets import BROWSE
from workloads.deep_research.scoring import Judge, ScoreError, exact
from workloads.deep_research.tools import ToolRequest

LIMITS = Limits(tool_timeout_s=60.0, trajectory_timeout_s=1_800.0)
OBSERVATION_SHARE = 16  # an observation has at most this part of the context
MOST_CALLS = 8  # of one reply that are made
_LEAST_REPLY = 32  # tokens that are left for the reply to an observation; with fewer there is no point in asking
_SAMPLE = 4  # characters for each token that an answer may have, to learn how many it takes
_FITTINGS = 6  # attempts to bring a text to its tokens before it is cut where they end
_CAUTION = 0.97
_LEAST_ANSWER = 8  # tokens of a tool's answer that are worth asking for

SYSTEM = f"""\
You answer questions by searching the web and reading pages. Think if it helps, call tools until you know the answer, \
then call finish. Give the answer alone, without a sentence around it.

# Tools

These functions can be called, described in JSON:
<tools>
{describe()}
</tools>

Each call is a JSON object with the function's name and its arguments, inside tags:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
Calls in one reply are made at the same time and answered in their order."""

NO_CALL = "Error: the reply has no tool call. Call a tool, or finish with the answer."
CUT_THOUGHT = "Error: the reply was cut while thinking, so nothing in it was called. Think less, then call a tool."
TOO_MANY = f"at most {MOST_CALLS} calls are made in one reply"

# What in a tool's answer would end its own frame or begin another.
_FRAME = re.compile(r"<(?=\||/?(?:tool_call|tool_response|think)\b)")


@dataclass(kw_only=True)
class Live(Attempt):
    """One trajectory in which the policy decides. Ends well with any outcome of its own making: `ended` says which.

    answered: finish was called. turns, context: the limit was reached before. silent: two replies in a row called
    nothing. Only `answered` is judged, the others have reward 0.
    """

    codec: LiveCodec
    row: Row
    judge: Judge
    context_tokens: int
    max_turns: int
    turn_tokens: int
    thinking: Thinking
    ended: str = ""
    answer: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    _last: tuple[int, int] = (0, 0)  # where in response_ids the last reply stands
    _asked: int = 0  # tool calls so far

    async def play(self) -> None:
        """Turn after turn until the answer or a limit, then the reward."""
        self.prompt_ids = self.codec.chat_ids(SYSTEM, self.row.question)
        if self.thinking is Thinking.STRIP and self._opening(self.prompt_ids):
            # What may be taken out later is part of the response: the prompt is the same in the whole group.
            size = len(self.codec.thought_opening)
            self._put(self.prompt_ids[-size:])
            del self.prompt_ids[-size:]
        if self._room() < _LEAST_REPLY:
            message = (
                f"the prompt has {self.context_tokens - 1 - self._room()} tokens and leaves no room for a reply in a"
                f" context of {self.context_tokens}; allowed is a longer one (--context-tokens), or shorter questions"
            )
            self.recorder.failure("spec", f"{self.trajectory_id}: {message}")
            raise EndedError("failed", message)
        self.ended = await self._turns()
        await self._reward()

    def _room(self) -> int:
        """Tokens that the context still has; one is kept back: engines want room to generate after any prompt."""
        return self.context_tokens - 1 - len(self.prompt_ids) - len(self.response_ids)

    def _count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by

    async def _turns(self) -> str:
        silent = 0
        for number in range(self.max_turns):
            broken = self.thinking is Thinking.STRIP and self._strip()
            room = self._room()
            if room < 1:
                return "context"
            most = min(self.turn_tokens, room)
            sampling = Sampling(max_tokens=most, min_tokens=0, ignore_eos=False, stop_ids=(self.codec.end_id,))
            begin, ids = len(self.response_ids), self.prompt_ids + self.response_ids
            begun = self._opening(ids)
            got = await self.turn(number, ids, sampling, cache_break=broken)
            self._last = begin, len(self.response_ids)
            closed = got.ids[-1:] == [self.codec.end_id]
            reply = parse_reply(self.codec.decode(got.ids), begun=begun)
            self._count("thoughts", reply.thinking)
            self._count("cut_replies", not closed)
            self._count("calls", len(reply.calls))
            self._count("parse_errors", sum(isinstance(call, Mistake) for call in reply.calls))
            self.answer = reply.answer
            if self.answer is not None:
                return "answered"
            silent = 0 if reply.calls else silent + 1
            if silent > 1:
                return "silent"
            if number == self.max_turns - 1:
                return "turns"  # nobody would read what the tools answer
            if not await self._observe(number, reply, closed=closed):
                return "context"
        return "turns"

    async def _observe(self, number: int, reply: Reply, *, closed: bool) -> bool:
        """Makes the reply's calls and appends their answers; False: the context has no room for them."""
        calls: Sequence[Call | Mistake] = reply.calls
        if not calls:
            calls = (Mistake((CUT_THOUGHT if reply.thinking_cut else NO_CALL).removeprefix("Error: ")),)
        calls = [*calls[:MOST_CALLS], *(Mistake(TOO_MANY) for _ in calls[MOST_CALLS:])]
        overhead = len(self.codec.answer_ids([()] * len(calls), closed=closed))
        share = (self._room() - overhead - _LEAST_REPLY) // len(calls)
        if share < _LEAST_ANSWER:
            return False
        share = min(share, max(self.context_tokens // OBSERVATION_SHARE, _LEAST_ANSWER))
        answers = iter(await self._ask(number, [call for call in calls if isinstance(call, Call)]))
        contents: list[list[int]] = []
        for place, call in enumerate(calls):
            if isinstance(call, Mistake):
                contents.append(self.codec.encode(_harmless(f"Error: {call.text}"))[:share])
                continue
            made = next(answers)
            contents.append(self._content(made, share))
            # The frame around the answers is divided among the calls, so that sums over calls are the trajectory's.
            frame = overhead // len(calls) + (overhead % len(calls) if place == 0 else 0)
            self.tool_span(made, len(contents[-1]) + frame, made.observation.text if made.observation else None)
        self.observed(self.codec.answer_ids(contents, closed=closed))
        return True

    async def _ask(self, number: int, calls: Sequence[Call]) -> list[ToolCall]:
        """All calls at once; what was asked is recorded by the caller, or here when the trajectory ends.

        Raises:
            EndedError: the trajectory's own limit passed.
        """
        requests = [
            ToolRequest(
                tool=call.tool,
                argument=call.argument,
                question=call.question or self.row.question,
                trajectory_id=self.trajectory_id,
                call=self._asked + place,
            )
            for place, call in enumerate(calls)
        ]
        self._asked += len(calls)
        tasks = [asyncio.ensure_future(self.ask_tool(number, request)) for request in requests]
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            # By now every call has ended: those that were still open recorded themselves as cancelled.
            self._record_made(tasks)
            raise
        error = next((error for task in tasks if (error := _error(task)) is not None), None)
        if error is not None:
            self._record_made(tasks)
            raise error
        return [task.result() for task in tasks]

    def _record_made(self, tasks: Sequence["asyncio.Task[ToolCall]"]) -> None:
        """Records the calls that were answered although the trajectory ends."""
        for task in tasks:
            if task.done() and _error(task) is None:
                self.tool_span(task.result(), None)

    def _content(self, call: ToolCall, most: int) -> list[int]:
        """What the policy is shown of an answer, in at most `most` tokens."""
        answer, request = call.observation, call.request
        if answer is None:
            return self.codec.encode(f"{request.tool} did not answer: {call.status}")[:most]
        text = _harmless(answer.text)
        # Encoding a long page would hold up the event loop: its beginning says how many tokens a character takes.
        sample = text[: _SAMPLE * most]
        ids = self.codec.encode(sample)
        if len(sample) < len(text) <= len(sample) * most / len(ids) / _CAUTION:
            sample, ids = text, self.codec.encode(text)
        if len(sample) == len(text) and len(ids) <= most:
            return ids
        self._count("cut_observations")
        # Addresses take more tokens than words: what is shown is made shorter until it fits, not cut in an address.
        characters = len(sample)
        for _ in range(_FITTINGS):
            characters = int(characters * most / len(ids) * _CAUTION)
            if request.tool == BROWSE:
                shown = _harmless(excerpt(answer, request.question or "", characters))
            else:
                shown = _whole_lines(text, characters)
            ids = self.codec.encode(shown)
            if len(ids) <= most:
                break
        return ids[:most]

    def _opening(self, ids: Sequence[int]) -> bool:
        """Whether what is sent ends inside a think block that the template opened."""
        opening = self.codec.thought_opening
        return bool(opening) and tuple(ids[-len(opening) :]) == opening

    def _put(self, ids: Sequence[int]) -> None:
        """Appends context that is neither trained nor an observation."""
        self.response_ids += ids
        self.loss_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += [None] * len(ids)

    def _strip(self) -> bool:
        """Takes the think blocks of the last reply out of what is sent from now on; False where it has none."""
        begin, end = self._last
        self._last = (0, 0)
        if begin == end:
            return False
        reply, codec = self.response_ids[begin:end], self.codec
        begun = self._opening(self.response_ids[:begin])
        kept = without_thoughts(reply, codec.encode(THINK), codec.encode(THOUGHT), codec.end_id, begun=begun)
        if len(kept) == len(reply) and not begun:
            return False
        self._count("untrained_tokens", len(reply))
        if begun:
            begin -= len(codec.thought_opening)
        self.response_ids[begin:end] = [reply[place] for place in kept]
        self.logprobs[begin:end] = [0.0] * len(kept)
        self.versions[begin:end] = [None] * len(kept)
        self.loss_mask[begin:end] = [0] * len(kept)
        return True

    async def _reward(self) -> None:
        start_ns = now_ns()
        right: bool | None = None
        if self.row.answers:
            right = self.answer is not None and exact(self.answer, self.row.answers) == 1.0
        self.reward = 0.0
        if self.answer is not None:
            try:
                self.reward = await within(self.judge(self.answer, self.row), self.left_s())
            except LateError:
                self.reward = None
                raise EndedError("timeout", "the scorer passed the limit of the trajectory") from None
            except ScoreError as error:
                self.reward = None
                self.recorder.failure("worker", error)
                raise EndedError("failed", str(error)) from None
        attributes: dict[str, Scalar] = {
            "ended": self.ended,
            "answer": None if self.answer is None else self.answer[:ARGUMENT_CHARACTERS],
            "right": right,
            "hops": self.row.hops,
            **self.counts,
        }
        self.reward_span(start_ns, attributes)


def without_thoughts(
    ids: Sequence[int], opening: Sequence[int], closing: Sequence[int], end_id: int, *, begun: bool = False
) -> list[int]:
    """The places in `ids` that are outside think blocks; a block that is not closed goes on to the end of the reply.

    A closing tag without an opening one closes a block that began with the reply; `begun` says that one did, closed or
    not. The token that ends the turn stays.
    """
    last = len(ids) - (1 if ids and ids[-1] == end_id else 0)
    kept: list[int] = []
    place, begin = 0, _find(ids, opening, 0, last)
    first = _find(ids, closing, 0, last)
    if begun or first < begin or (begin == last and first < last):
        place = last if first == last else first + len(closing)
    while place < last:
        begin = _find(ids, opening, place, last)
        kept += range(place, begin)
        if begin == last:
            break
        finish = _find(ids, closing, begin, last)
        place = last if finish == last else finish + len(closing)
    return [*kept, *range(last, len(ids))]


def _error(task: "asyncio.Task[ToolCall]") -> BaseException | None:
    """What an ended call raised; None where it was answered."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _find(ids: Sequence[int], wanted: Sequence[int], begin: int, end: int) -> int:
    """Where `wanted` stands in ids[begin:end], or `end`."""
    size = len(wanted)
    for place in range(begin, end - size + 1):
        if list(ids[place : place + size]) == list(wanted):
            return place
    return end


def _whole_lines(text: str, characters: int) -> str:
    """The text's first lines, at most `characters` long; part of the first where it alone is longer."""
    cut = text[:characters]
    return cut if len(cut) == len(text) or "\n" not in cut else cut.rpartition("\n")[0]


def _harmless(text: str) -> str:
    """The text without what a chat template uses as its own marks: a page must not end its frame, or begin a turn."""
    return _FRAME.sub("< ", text)
