"""Staleness of histories small enough to be counted by hand."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import follow, hello, make_run, make_spec, plan_of, step

from harness.protocol.events import Event, Trajectory
from results.collect import collect
from results.staleness import Distribution, Staleness, staleness

SPEC = make_spec(max_staleness=1)
END = 10**13


def history(*consumed: tuple[int, int, int | None]) -> list[Event]:
    """Per trajectory (version_first, version_last, step that trained on it or None); step s trains into version s."""
    events: list[Event] = [hello()]
    by_step: dict[int, list[str]] = {}
    for sample, (first, last, number) in enumerate(consumed):
        events += follow(plan_of(SPEC, 0, sample), 2_000, versions=(first, last), open_id=sample + 1)
        if number is not None:
            by_step.setdefault(number, []).append(f"p0-s{sample}-a0")
    for number in sorted(by_step):
        events.append(step(number, END + number, END + number + 1, by_step[number]))
    return events


def measured(folder: Path, events: list[Event], steps: list[int] | None = None) -> Staleness:
    return staleness(collect(make_run(folder / "run", events, spec=SPEC)), steps)


def tokens_of(sample: int) -> tuple[int, int]:
    """Generated tokens of the last turn, and of the others."""
    turns = [turn.generated_tokens for turn in plan_of(SPEC, 0, sample).turns]
    return turns[-1], sum(turns[:-1])


def test_the_four_figures_by_hand(tmp_path: Path) -> None:
    # trained_at is 0, 1, 2, 3 for steps 1 to 4.
    run = history((0, 0, 1), (0, 1, 2), (1, 2, 3), (1, 1, 4), (3, 3, None))
    found = measured(tmp_path, run)
    assert (found.consumed, found.bound) == (4, 1)
    # at_start: 0-0, 1-0, 2-1, 3-1 = 0, 1, 1, 2
    assert found.at_start == Distribution(n=4, unknown=0, mean=1.0, p50=1.0, p95=2.0, max=2.0)
    # at_finish: 0, 1, 1, 0
    assert found.at_finish == Distribution(n=4, unknown=0, mean=0.5, p50=0.0, p95=1.0, max=1.0)
    # in_queue: 0-0, 1-1, 2-2, 3-1 = 0, 0, 0, 2
    assert found.in_queue == Distribution(n=4, unknown=0, mean=0.5, p50=0.0, p95=2.0, max=2.0)
    assert (found.violations, found.negative, found.resolution) == (1, 0, "turn")
    weights = [sum(tokens_of(sample)) for sample in range(4)]
    assert found.per_token.n == sum(weights)
    assert found.per_token.mean == pytest.approx((weights[1] + weights[2] + 2 * weights[3]) / sum(weights))
    assert found.per_token.max == 2.0
    # The last turn of the second and third trajectory spans a sync.
    assert found.tokens_across_sync == tokens_of(1)[0] + tokens_of(2)[0]


def test_only_the_given_steps_count(tmp_path: Path) -> None:
    run = history((0, 0, 1), (0, 1, 2), (1, 2, 3), (1, 1, 4))
    found = measured(tmp_path, run, [1, 4])
    assert (found.consumed, found.at_start.mean, found.violations) == (2, 1.0, 1)
    assert found.per_token.n == sum(tokens_of(0)) + sum(tokens_of(3))
    assert found.tokens_across_sync == 0


def test_unknown_versions_are_left_out_and_counted(tmp_path: Path) -> None:
    events = [
        event if not isinstance(event, Trajectory) or event.sample else unknown(event)
        for event in history((0, 0, 3), (1, 1, 3))
    ]
    found = measured(tmp_path, events)
    assert found.at_start == Distribution(n=1, unknown=1, mean=1.0, p50=1.0, p95=1.0, max=1.0)
    assert (found.consumed, found.violations) == (2, 0)


def unknown(event: Trajectory) -> Trajectory:
    return replace(event, version_first=None, version_last=None)


def test_nothing_consumed_is_unknown_and_not_zero(tmp_path: Path) -> None:
    found = measured(tmp_path, history((0, 0, None)))
    nothing = Distribution(n=0, unknown=0, mean=None, p50=None, p95=None, max=None)
    assert found.at_start == found.at_finish == found.in_queue == found.per_token == nothing
    assert (found.consumed, found.violations) == (0, 0)


def test_training_before_the_version_existed_is_a_defect(tmp_path: Path) -> None:
    found = measured(tmp_path, history((2, 2, 1), (0, 3, 2), (0, 0, 1)))
    assert found.negative == 2


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=6))
def test_at_start_is_at_finish_and_in_queue(rows: list[tuple[int, int, int]]) -> None:
    history_ = [(first, first + more, first + more + wait + 1) for first, more, wait in rows]
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), history(*history_))
    assert found.at_start.mean is not None
    assert found.at_finish.mean is not None
    assert found.in_queue.mean is not None
    assert found.at_start.mean == pytest.approx(found.at_finish.mean + found.in_queue.mean)
    assert found.violations == sum(more + wait > 1 for _, more, wait in rows)
    assert found.negative == 0
