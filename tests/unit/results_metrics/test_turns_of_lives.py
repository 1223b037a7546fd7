"""Which turn of a trajectory came last before an instant, and turns by the version that trained them: row by row."""

import numpy as np
import pytest
from recorded_histories import History, ns

from results.staleness import TurnVersions, staleness
from results.tracks import UNKNOWN, Calls, last_turn_before, tracks


@pytest.mark.parametrize("lives", [1, 3, 40])
@pytest.mark.parametrize("turns", [0, 1, 7, 300])
def test_the_last_turn_before_is_that_of_a_search_through_all(turns: int, lives: int) -> None:
    rng = np.random.default_rng(turns * 100 + lives)
    start = rng.integers(0, 50, turns)
    made = Calls(rng.integers(UNKNOWN, lives, turns), start, start + 1)
    life, at = rng.integers(UNKNOWN, lives + 2, 200), rng.integers(-5, 60, 200)
    expected = []
    for each, when in zip(life.tolist(), at.tolist(), strict=True):
        mine = [n for n in range(turns) if made.life[n] == each != UNKNOWN and made.start[n] <= when]
        expected.append(max(mine, key=lambda n: (made.start[n], n), default=UNKNOWN))
    assert last_turn_before(made, life, at).tolist() == expected


def test_tokens_by_version_are_the_same_whoever_told_whose_the_turns_are() -> None:
    made = History("async", {"max_staleness": 4})
    rng = np.random.default_rng(3)
    for number in range(60):
        trained = None if number % 7 == 0 else int(rng.integers(3, 9))
        step = None if number % 5 == 0 else 1 + number % 3
        made.add(
            "trajectories", trajectory_id=f"t{number}", start_ns=ns(number), end_ns=ns(number + 5), status="ok",
            step_consumed=step, version_trained=trained, version_first=1, version_last=2,
        )  # fmt: skip
        for turn in range(number % 4):
            began = None if turn == 2 else int(rng.integers(0, 3))
            told = {} if began is None else {"version_start": began, "version_end": began + turn % 2}
            told |= {} if number == 13 else {"generated_tokens": 10 * number + turn}
            name, start = f"t{number}" if number != 11 else "of no one", number + turn
            made.add("turns", trajectory_id=name, turn=turn, start_ns=ns(start), end_ns=ns(start + 1), **told)
    run = made.run()
    known = TurnVersions.of(run, tracks(run).turns.life)
    for steps in (None, [1, 3], []):
        lives = {
            row["trajectory_id"]: row["version_trained"]
            for row in run.tables["trajectories"].to_pylist()
            if row["step_consumed"] is not None and (steps is None or row["step_consumed"] in steps)
        }
        rows = [row for row in run.tables["turns"].to_pylist() if row["trajectory_id"] in lives]
        rows = [row for row in rows if row["generated_tokens"]]
        told = [
            (lives[row["trajectory_id"]] - row["version_start"], row["generated_tokens"])
            for row in rows
            if lives[row["trajectory_id"]] is not None and row["version_start"] is not None
        ]
        found = staleness(run, steps, known)
        assert found == staleness(run, steps)
        assert found.per_token.n == sum(tokens for _, tokens in told)
        assert found.per_token.unknown == sum(row["generated_tokens"] for row in rows) - found.per_token.n
        ages = sorted(age for age, tokens in told for _ in range(tokens))
        if ages:
            assert found.per_token.mean == pytest.approx(np.mean(ages), rel=1e-12)
            assert found.per_token.p50 == ages[(len(ages) + 1) // 2 - 1]
            assert found.per_token.max == ages[-1]
        across = [row for row in rows if row["version_end"] is not None and row["version_end"] > row["version_start"]]
        assert found.tokens_across_sync == sum(row["generated_tokens"] for row in across)
