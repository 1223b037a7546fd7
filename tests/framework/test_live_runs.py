"""What must hold in live runs with the scripted policy that `bench run` left in the folder $BENCH_RUNS.

Made by `bench run --framework F --placement P --tools local --load live --policy scripted`, for skyrl, areal and verl
in async at least; $BENCH_ADAPTERS (NAME,...) asks for these adapters alone.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.protocol.spec import Load, Placement, Policy, RunSpec, Thinking
from harness.run_folder import list_runs, run_status
from results.store import RunTables, load_run
from results.sync_proof import prove_sync
from workloads.deep_research.dataset import FILE, Row, read_rows
from workloads.deep_research.policy import UNKNOWN, WRONG
from workloads.deep_research.scoring import exact

pytestmark = pytest.mark.framework
VARIABLE = "BENCH_RUNS"
ASKED = tuple(name.strip() for name in os.environ.get("BENCH_ADAPTERS", "").split(",") if name.strip())
FRAMEWORKS = ASKED or ("skyrl", "areal", "verl")
AGREE_NAT = 1e-3  # float32 on both sides: what is trained was scored by the same weights


@dataclass(frozen=True)
class Lived:
    """The newest finished live run of a framework in a placement."""

    folder: Path
    run: RunTables
    rows: list[Row]

    def judged(self) -> dict[str, dict[str, Any]]:
        """What the reward span of each trajectory says, by its id."""
        spans = self.run.frame("spans")
        spans = spans[spans["native_name"] == "reward"]
        return {
            name: json.loads(text) for name, text in zip(spans["trajectory_id"], spans["attributes_json"], strict=True)
        }

    def ended(self) -> list[dict[str, Any]]:
        """The trajectories that came to an end."""
        rows: list[dict[str, Any]] = self.run.tables["trajectories"].to_pylist()
        return [row for row in rows if row["status"] == "ok"]


def _finished(place: str | None) -> list[tuple[RunSpec, Path]]:
    assert place, f"{VARIABLE} must name the runs folder"
    found = [(RunSpec.load_file(folder / "spec.json"), folder) for folder in list_runs(Path(place))]
    return [
        (spec, folder)
        for spec, folder in found
        if spec.load is Load.LIVE
        and spec.policy is Policy.SCRIPTED
        and spec.framework in (ASKED or (spec.framework,))
        and run_status(folder) == "finished"
    ]


def _cells() -> list[tuple[str, str]]:
    """Every framework that is asked for in async, and whatever else was run. Asked when tests are collected."""
    cells = {(name, Placement.ASYNC.value) for name in FRAMEWORKS}
    if os.environ.get(VARIABLE):
        cells |= {(spec.framework, spec.placement.value) for spec, _ in _finished(os.environ[VARIABLE])}
    return sorted(cells)


_LOADED: dict[tuple[str, str], Lived] = {}


@pytest.fixture(params=_cells(), ids="-".join)
def lived(request: pytest.FixtureRequest) -> Lived:
    """Fails, and does not skip, when there is no such run: these checks were asked for."""
    cell: tuple[str, str] = request.param
    if cell not in _LOADED:
        place = os.environ.get(VARIABLE)
        found = [folder for spec, folder in _finished(place) if (spec.framework, spec.placement.value) == cell]
        assert found, f"no finished live run of {' '.join(cell)} in {place}"
        _LOADED[cell] = Lived(found[-1], load_run(found[-1]), read_rows(found[-1] / FILE))
    return _LOADED[cell]


def test_it_ended_as_it_should(lived: Lived) -> None:
    meta = json.loads((lived.folder / "meta.json").read_text())
    assert (meta["status"], meta["exit_code"]) == ("finished", 0)
    assert lived.run.tables["steps"].num_rows == lived.run.spec.steps
    assert lived.run.tables["failures"].to_pylist() == []


def test_the_reward_is_that_of_the_answer(lived: Lived) -> None:
    judged = lived.judged()
    right = wrong = 0
    for row in lived.ended():
        said, asked = judged[row["trajectory_id"]], lived.rows[row["prompt"] % len(lived.rows)]
        answer = said.get("answer")
        expected = 0.0 if answer is None else exact(answer, asked.answers)
        assert row["reward"] == expected, (row["trajectory_id"], answer, asked.answers)
        assert said["right"] is (expected == 1.0)
        if answer is None or answer == UNKNOWN:
            continue
        # The script is right on even samples and wrong on odd ones; whether it was, is what the data set says.
        assert (answer == WRONG) is (row["sample"] % 2 == 1), row["trajectory_id"]
        assert expected == float(row["sample"] % 2 == 0), (row["trajectory_id"], answer, asked.answers)
        right, wrong = right + (expected == 1.0), wrong + (expected == 0.0)
    assert right >= lived.run.spec.steps
    assert wrong >= lived.run.spec.steps


def test_questions_of_several_hops_are_answered(lived: Lived) -> None:
    judged = lived.judged()
    hops = {judged[row["trajectory_id"]]["hops"] for row in lived.ended() if row["reward"] == 1.0}
    assert max(hops) >= 3
    assert len(hops) >= 3


def test_what_each_step_trained_on_is_what_was_rewarded(lived: Lived) -> None:
    judged = lived.judged()
    rewards = {row["trajectory_id"]: row["reward"] for row in lived.ended()}
    for step in lived.run.tables["steps"].to_pylist():
        mine = [rewards[name] for name in step["trajectory_ids"]]
        assert len(mine) == lived.run.spec.trajectories_per_step
        assert step["reward_mean"] == pytest.approx(sum(mine) / len(mine))
        trained = [row for row in lived.ended() if row["trajectory_id"] in step["trajectory_ids"]]
        untrained = sum(judged[row["trajectory_id"]].get("untrained_tokens", 0) for row in trained)
        assert step["loss_tokens"] == sum(row["generated_tokens"] for row in trained) - untrained


def test_the_tools_were_really_asked(lived: Lived) -> None:
    calls = lived.run.tables["tool_calls"].to_pylist()
    assert {call["tool"] for call in calls} == {"search_engine", "web_browser"}
    fine = [call for call in calls if call["status"] == "ok"]
    assert len(fine) >= 0.95 * len(calls)
    assert all(call["served_ns"] > 0 and call["planned_ns"] is None for call in fine)
    pages = [call for call in fine if call["tool"] == "web_browser"]
    assert all(call["http_status"] == 200 and call["wire_bytes"] > 0 for call in pages)


def test_mistakes_thoughts_and_several_calls_occurred(lived: Lived) -> None:
    judged = list(lived.judged().values())
    assert sum(said["parse_errors"] for said in judged) > 0
    assert sum(said["thoughts"] for said in judged) > 0
    turns = [(call["trajectory_id"], call["turn"]) for call in lived.run.tables["tool_calls"].to_pylist()]
    assert len(set(turns)) < len(turns)


def test_stripped_thinking_breaks_the_prefix_and_nothing_else_does(lived: Lived) -> None:
    strip = lived.run.spec.thinking is Thinking.STRIP
    assert any(turn["cache_break"] for turn in lived.run.tables["turns"].to_pylist()) is strip
    assert any(said.get("untrained_tokens") for said in lived.judged().values()) is strip


def test_no_turn_passed_the_context(lived: Lived) -> None:
    spec = lived.run.spec
    for turn in lived.run.tables["turns"].to_pylist():
        if turn["generated_tokens"] is None:  # cancelled at the end of the run
            assert turn["prompt_tokens"] < spec.context_tokens
            continue
        assert turn["prompt_tokens"] + turn["generated_tokens"] < spec.context_tokens
        assert turn["generated_tokens"] <= spec.turn_tokens


def test_weight_sync_is_proven(lived: Lived) -> None:
    proof = prove_sync(lived.run)
    assert proof.proven, f"fresh: {proof.fresh}; changed: {proof.changed}; follows: {proof.follows}"


def test_the_trainer_agrees_with_the_scored_logprobs(lived: Lived) -> None:
    probes = lived.run.tables["probes"].to_pylist()
    seen = []
    for probe in probes:
        if probe["name"] == "logprob_diff_max" and json.loads(probe["labels_json"]).get("same_version"):
            seen.append(probe["value"])
    assert seen, "no step trained on trajectories of its own version"
    assert max(seen) < AGREE_NAT
