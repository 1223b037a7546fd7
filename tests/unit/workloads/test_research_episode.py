"""The agent loop against a fake engine and a real recorder: exactly these events."""

from pathlib import Path

from episode_parts import Codec, Engine, play, recorded, shape, the

from harness.protocol.events import Open, Span, Trajectory
from harness.protocol.phases import TOOL_ATTRIBUTES, TURN_ATTRIBUTES
from workloads.deep_research.episode import Generated, Sampling
from workloads.deep_research.plan import TrajectoryPlan, Turn


def test_a_good_trajectory_leaves_exactly_these_events(tmp_path: Path) -> None:
    engine = Engine()
    result = play(tmp_path, engine, step=6)
    events = recorded(tmp_path)
    assert shape(events) == [
        ("open", None, None),
        ("span", "generation", 0),
        ("span", "tool", 0),
        ("span", "generation", 1),
        ("span", "tool", 1),
        ("span", "generation", 2),
        ("span", "reward", None),
        ("trajectory", None, None),
    ]
    opened, closed = the(events, Open)[0], the(events, Trajectory)[0]
    assert (opened.id, opened.trajectory_id, opened.native_name) == (closed.open_id, "p4-s1-a0", "trajectory")
    spans: list[Span] = the(events, Span)
    assert {(s.pool, s.step, s.trajectory_id, s.container) for s in spans} == {("rollout", 6, "p4-s1-a0", False)}
    # Spans follow each other inside the trajectory.
    edges = [closed.start_ns, *(edge for s in spans for edge in (s.start_ns, s.end_ns)), closed.end_ns]
    assert edges == sorted(edges)

    turns = [s for s in spans if s.phase == "generation"]
    assert all(set(s.attributes) == set(TURN_ATTRIBUTES) for s in turns)
    assert [s.attributes["generated_tokens"] for s in turns] == [5, 3, 6]
    assert [s.attributes["prompt_tokens"] for s in turns] == [10, 22, 29]
    assert [s.attributes["version_start"] for s in turns] == [2, 2, 3]
    assert {s.attributes["engine"] for s in turns} == {"http://engine-0"}
    tools = [s for s in spans if s.phase == "tool"]
    assert all(set(s.attributes) == set(TOOL_ATTRIBUTES) for s in tools)
    assert [s.attributes["tool"] for s in tools] == ["search_engine", "web_browser"]
    assert [s.attributes["planned_ns"] for s in tools] == [20_000_000, 10_000_000]
    assert [s.attributes["observation_tokens"] for s in tools] == [7, 4]

    assert (closed.status, closed.message, closed.reward) == ("ok", None, 1.0)
    assert (closed.group_id, closed.prompt, closed.sample, closed.attempt) == ("p4", 4, 1, 0)
    assert (closed.turns, closed.tool_calls, closed.prompt_tokens) == (3, 2, 10)
    assert (closed.generated_tokens, closed.observation_tokens) == (14, 11)
    assert (closed.version_scheduled, closed.version_first, closed.version_last) == (1, 2, 3)
    assert closed.tool_ns == sum(s.end_ns - s.start_ns for s in tools)

    assert result.prompt_ids == [4] * 10
    assert result.response_ids == [100] * 5 + [-1] * 7 + [101] * 3 + [-1] * 4 + [102] * 6
    assert result.loss_mask == [1] * 5 + [0] * 7 + [1] * 3 + [0] * 4 + [1] * 6
    assert result.logprobs == [-1.0] * 5 + [0.0] * 7 + [-2.0] * 3 + [0.0] * 4 + [-3.0] * 6
    assert (result.status, result.reward, result.turns, result.tool_calls) == ("ok", 1.0, 3, 2)
    assert (result.version_first, result.version_last) == (2, 3)


def test_the_plan_is_imposed_on_the_engine(tmp_path: Path) -> None:
    engine = Engine()
    play(tmp_path, engine)
    assert [s.max_tokens for _, _, s in engine.asked] == [5, 3, 6]
    assert all(s.min_tokens == s.max_tokens and s.ignore_eos for _, _, s in engine.asked)
    assert {(s.temperature, s.top_p, s.top_k) for _, _, s in engine.asked} == {(1.0, 1.0, -1)}
    # Token in, token out: each turn begins with exactly what came before it.
    histories = [ids for _, ids, _ in engine.asked]
    assert histories[1] == histories[0] + [100] * 5 + [-1] * 7
    assert histories[2] == histories[1] + [101] * 3 + [-1] * 4


def test_a_planned_latency_is_never_undercut(tmp_path: Path) -> None:
    plan = TrajectoryPlan(
        prompt=0,
        sample=0,
        prompt_tokens=1,
        turns=(
            *(
                Turn(generated_tokens=1, tool="search_engine", latency_s=0.0005 * n + 1e-6, observation_tokens=1)
                for n in range(1, 40)
            ),
            Turn(generated_tokens=1, tool="finish", latency_s=None, observation_tokens=0),
        ),
        reward=0.0,
    )
    play(tmp_path, Engine(versions=(0,) * 40), plan=plan)
    tools = [s for s in the(recorded(tmp_path), Span) if s.phase == "tool"]
    assert len(tools) == 39
    assert all(s.end_ns - s.start_ns >= s.attributes["planned_ns"] for s in tools)


def test_a_shorter_reply_is_recorded_as_it_came(tmp_path: Path) -> None:
    async def short(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        return Generated(ids=[1, 2], logprobs=[-1.0, -1.0], stop_reason="stop")

    result = play(tmp_path, short)
    events = recorded(tmp_path)
    assert result.status == "ok"
    assert the(events, Trajectory)[0].generated_tokens == 6
    turns = [s for s in the(events, Span) if s.phase == "generation"]
    assert [s.attributes["generated_tokens"] for s in turns] == [2, 2, 2]
    assert {(s.attributes["stop_reason"], s.attributes["version_start"]) for s in turns} == {("stop", None)}


def test_an_empty_reply_does_not_end_the_trajectory(tmp_path: Path) -> None:
    async def empty(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        return Generated(ids=[], logprobs=[])

    result = play(tmp_path, empty)
    assert (result.status, result.turns, sum(result.loss_mask)) == ("ok", 3, 0)


def test_the_default_question_is_the_one_of_the_data_set(tmp_path: Path) -> None:
    seen: list[str] = []

    class Listening(Codec):
        def prompt_ids(self, question: str, tokens: int) -> list[int]:
            seen.append(question)
            return super().prompt_ids(question, tokens)

    play(tmp_path, Engine(), codec=Listening(), question=None)
    from workloads.deep_research.questions import question

    assert seen == [question(4)]
