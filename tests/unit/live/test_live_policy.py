"""The scripted policy over pages of its own: it answers from what it reads, wrongly on odd samples."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_parts import CODEC, Tools, play

from harness.protocol.spec import Thinking
from workloads.deep_research.boundary import Generated, Sampling
from workloads.deep_research.parsing import Mistake, parse_reply
from workloads.deep_research.policy import UNKNOWN, WRONG, ScriptedPolicy
from workloads.deep_research.question_grammar import RELATIONS, render_question, sentence
from workloads.deep_research.tools import Observation

BRIDGE, RIVER = "Old Hal Bridge", "Hal Brook"
QUESTION = render_question(BRIDGE, ["crosses", "river_length"])
URLS = {BRIDGE: "http://bridges.test/structure/old-hal-bridge-1", RIVER: "http://waters.test/river/hal-brook-2"}
HITS = Observation(text=f"[1] Hal Bridge\nhttp://bridges.test/no\nx\n\n[2] {BRIDGE}\n{URLS[BRIDGE]}\nsnippet")
PAGES = {
    BRIDGE: HITS,
    URLS[BRIDGE]: Observation(
        text=f"{BRIDGE}\n{URLS[BRIDGE]}\n\n{sentence(RELATIONS['crosses'], RIVER, wording=0)}"
        f"\n\nLinks:\n- {RIVER}: {URLS[RIVER]}"
    ),
    URLS[RIVER]: Observation(
        text=f"{RIVER}\n{URLS[RIVER]}\n\n{sentence(RELATIONS['river_length'], '1,234', wording=0)}"
    ),
}


@dataclass
class Scorer:
    """Stands for an engine that scores."""

    scored: list[tuple[int, int]] = field(default_factory=list)

    async def score(self, trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
        self.scored.append((len(ids), len(reply)))
        return Generated(ids=reply, logprobs=[-1.0] * len(reply), version_start=7, version_end=7, engine="e")


def policy(sample: int, *, prompt: int = 0, question: str = QUESTION, scorer: Scorer | None = None) -> ScriptedPolicy:
    score = (scorer or Scorer()).score
    return ScriptedPolicy(codec=CODEC, score=score, question=question, seed=1, prompt=prompt, sample=sample)


def answered(
    folder: Path, sample: int, pages: Mapping[str, Observation | float], question: str = QUESTION
) -> str | None:
    row = {"question": question, "answers": ("1234 kilometres", "1234")}
    tools = Tools({**pages})
    played = play(folder, [], tools, row=row, generate=policy(sample, question=question).generate)
    assert played.result.status == "ok"
    assert played.result.reward == float(played.live.answer == "1,234")
    return played.live.answer


@pytest.mark.parametrize("sample", range(6))
def test_even_samples_are_right_and_odd_ones_wrong(tmp_path: Path, sample: int) -> None:
    pages = {**PAGES, f"river crossed {BRIDGE}": HITS}
    assert answered(tmp_path, sample, pages) == (WRONG if sample % 2 else "1,234")


@pytest.mark.parametrize("gone", [BRIDGE, URLS[BRIDGE], URLS[RIVER]])
def test_what_it_does_not_find_is_unknown_on_every_sample(tmp_path: Path, gone: str) -> None:
    pages = {**PAGES, gone: Observation(text="nothing", status="not_found")}
    for sample in (0, 1):
        (folder := tmp_path / str(sample)).mkdir()
        assert answered(folder, sample, pages) == UNKNOWN


@pytest.mark.parametrize("prompt", range(8))
@pytest.mark.parametrize("thinking", list(Thinking))
def test_stripped_thinking_hides_no_answer_from_it(tmp_path: Path, prompt: int, thinking: Thinking) -> None:
    tools = Tools({**PAGES, f"river crossed {BRIDGE}": HITS})
    row = {"question": QUESTION, "answers": ("1,234",)}
    asked = policy(0, prompt=prompt)
    result = play(tmp_path, [], tools, row=row, generate=asked.generate, thinking=thinking).result
    assert result.reward == 1.0


def test_it_reads_the_page_and_not_its_memory(tmp_path: Path) -> None:
    other = Observation(text=PAGES[URLS[RIVER]].text.replace("1,234", "777"))
    assert answered(tmp_path, 0, {**PAGES, URLS[RIVER]: other}) == "777"


def test_it_searches_for_a_page_that_is_not_linked(tmp_path: Path) -> None:
    text, _, _ = PAGES[URLS[BRIDGE]].text.partition("\n\nLinks")
    pages = {**PAGES, URLS[BRIDGE]: Observation(text=text), RIVER: Observation(text=f"[1] {RIVER}\n{URLS[RIVER]}\nx")}
    assert answered(tmp_path, 0, pages) == "1,234"


def test_another_question_is_unknown_to_it(tmp_path: Path) -> None:
    assert answered(tmp_path, 0, {}, question="Why?") == UNKNOWN


def test_its_tokens_are_scored_as_they_stand_in_the_conversation(tmp_path: Path) -> None:
    scorer = Scorer()
    row = {"question": QUESTION, "answers": ("1234",)}
    result = play(tmp_path, [], Tools({**PAGES}), row=row, generate=policy(0, scorer=scorer).generate).result
    assert [reply for _, reply in scorer.scored] == [len(reply.ids) for reply in result.generated]
    assert all(reply.version_start == 7 and reply.engine == "e" for reply in result.generated)


def first_reply(prompt: int) -> str:
    async def ask() -> Generated:
        return await policy(0, prompt=prompt).generate("t", [], Sampling(max_tokens=500, min_tokens=0))

    return CODEC.decode(asyncio.run(ask()).ids)


def test_some_think_some_err_some_search_twice_and_always_the_same() -> None:
    replies = [first_reply(prompt) for prompt in range(60)]
    assert replies == [first_reply(prompt) for prompt in range(60)]
    read = [parse_reply(reply) for reply in replies]
    assert 15 <= sum(reply.thinking for reply in read) <= 45
    assert 5 <= sum(isinstance(reply.calls[0], Mistake) for reply in read) <= 30
    assert 3 <= sum(len(reply.calls) == 2 for reply in read) <= 25


def test_a_reply_is_cut_where_an_engine_would_cut_it() -> None:
    async def ask() -> Generated:
        return await policy(0).generate("t", [], Sampling(max_tokens=5, min_tokens=0))

    reply = asyncio.run(ask())
    assert (len(reply.ids), len(reply.logprobs), reply.stop_reason) == (5, 5, "length")
