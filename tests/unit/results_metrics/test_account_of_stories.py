"""The two accounts against random stories, millisecond by millisecond: an independent reading of MEASURING.md."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from labelled_stories import ENGINES, HIGH, LOW, WORK, Story
from random_stories import stories
from recorded_histories import ns

from results.account import Account, UnitAccount, make_account, pool_timelines
from results.classes import TAIL_CLASSES, Class
from results.intervals import Ns
from results.lifetimes import lifetimes
from results.tracks import FOREVER, tracks
from results.window import Window

INSTANTS = range(LOW, HIGH)
EDGES = (ns(LOW / 1e3), ns(HIGH / 1e3))
WINDOW = Window(start_ns=EDGES[0], end_ns=EDGES[1], after_step=0, last_step=1, boundaries_ns=EDGES)
CELLS = [
    (placement, grain)
    for placement in ("colocated", "disaggregated", "async")
    for grain in ("engine", "metric", "pool")
]


def _account(story: Story) -> Account:
    run = story.history().run()
    starts = np.array([ns(s / 1e3) for s, _ in story.tails], dtype=np.int64)
    ends = np.array([ns(e / 1e3) for _, e in story.tails], dtype=np.int64)
    return make_account(run, tracks(run), WINDOW, tails=(starts, ends))


def _labels(unit: UnitAccount) -> list[str]:
    names, edges = list(Class), unit.timeline.edges
    middles = np.array([ns((t + 0.5) / 1e3) for t in INSTANTS])
    return [names[unit.timeline.codes[c]].value for c in np.searchsorted(edges, middles, side="right") - 1]


def _grain(story: Story) -> str:
    """What the units must be: engines where every answered turn inside the window says its own, else by their metric.

    Where an engine's metric says nothing of the window, the pool is one unit.
    """
    begun = [p for life in story.lives for p in life.parts if p.kind == "turn"]
    inside = [part for part in begun if part.start + part.queued < HIGH and part.end > LOW]
    if story.named and inside:
        return "engine"
    told = [engine for engine in ENGINES if any(story.reading(engine, t) for t in INSTANTS)]
    return "metric" if len(told) == len(ENGINES) else "pool"


def _ms(seconds: dict[str, float]) -> dict[str, int]:
    return {name: round(1e3 * s) for name, s in seconds.items() if round(1e3 * s)}


@pytest.mark.parametrize(("placement", "grain"), CELLS, ids="-".join)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_millisecond_of_every_unit_has_the_class_of_the_text(
    placement: str, grain: str, data: st.DataObject
) -> None:
    story = data.draw(stories(placement, grain))
    account = _account(story)
    assert account.granularity == _grain(story)
    together = placement == "colocated"
    pool = "both" if together else "rollout"
    names: list[tuple[str, str | None]] = [(engine, engine) for engine in ENGINES]
    if account.granularity == "pool":
        names = [(pool, None)]
    elif together:
        assert len(account.units) == 2
    by_name = {unit.unit: unit for unit in account.units}
    train = [story.train(t) for t in INSTANTS]
    if not together:
        assert _labels(by_name["train"]) == train
        assert sum(by_name["train"].seconds.values()) == pytest.approx((HIGH - LOW) / 1e3)
    for name, engine in names:
        unit = by_name[name]
        expected = [story.rollout(engine, account.granularity, t) for t in INSTANTS]
        assert _labels(unit) == expected
        assert _ms(dict(unit.seconds)) == Counter(expected)
        # The tail is a flag across four classes, of synchronous batches.
        flagged = [c for t, c in zip(INSTANTS, expected, strict=True) if story.tail(t)]
        assert _ms(dict(unit.tail_seconds)) == Counter(c for c in flagged if c in {m.value for m in TAIL_CLASSES})
        if together:
            assert not unit.hidden_seconds
            continue
        grained = account.granularity
        behind = [c for t, c in zip(INSTANTS, expected, strict=True) if story.hidden(c, engine, grained, t)]
        assert _ms(dict(unit.hidden_seconds)) == Counter(behind)
        busy = sum(name in WORK for name in train)
        assert sum(c != "weight_sync" for c in behind) <= busy
        assert all(unit.hidden_seconds[c] <= unit.seconds[c] + 1e-9 for c in unit.hidden_seconds)
    assert account.tail_s == pytest.approx(sum(story.tail(t) for t in INSTANTS) / 1e3)


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_classes_of_each_pool_are_those_of_its_account_as_one_unit(placement: str, data: st.DataObject) -> None:
    run = data.draw(stories(placement, "engine")).history().run()
    arrays = tracks(run)
    account = make_account(run, arrays, WINDOW, by_engine=False)
    found = pool_timelines(run, arrays, WINDOW)
    assert list(found) == [unit.pool for unit in account.units]
    for unit in account.units:
        assert found[unit.pool].edges.tolist() == unit.timeline.edges.tolist()
        assert found[unit.pool].codes.tolist() == unit.timeline.codes.tolist()


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_millisecond_of_every_trajectory_is_in_one_part_of_its_life(placement: str, data: st.DataObject) -> None:
    story = data.draw(stories(placement, "engine"))
    run = story.history().run()
    arrays = tracks(run)
    left: Ns = np.full(arrays.life_start.size, FOREVER, dtype=np.int64)
    for number, life in enumerate(story.lives):
        if life.left is not None:
            left[number] = ns(life.left / 1e3)
    left[len(story.lives) :] = arrays.life_end[len(story.lives) :]
    found = lifetimes(run, arrays, WINDOW, left)
    expected = Counter(part for life in story.lives for t in INSTANTS if (part := story.lifetime(life, t)) is not None)
    assert found.seconds["queued"] is not None
    assert _ms({name: s or 0.0 for name, s in found.seconds.items()}) == expected
    assert found.total_s == pytest.approx(sum(expected.values()) / 1e3)
