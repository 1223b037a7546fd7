"""What engines counted, held against what was replied, in histories that are known."""

import math

from engine_readings import reading
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_histories import History, ns

from harness.protocol.spec import Load, Policy
from results.counters import COUNTER, check_counters


def _checked(
    readings: list[tuple[float, float]], spans: list[tuple[float, float, int | None]]
) -> tuple[bool | None, bool, str]:
    history = History()
    for at, value in readings:
        reading(history, at, generation_tokens=value, margin_s=0.01)
    for start, end, tokens in spans:
        history.turn("a", start, end, "e0", generated_tokens=tokens)
    found = check_counters(history.run())
    return found.match, found.exact, found.why


def test_counters_and_replies_are_compared_exactly_where_nothing_was_under_way() -> None:
    spans: list[tuple[float, float, int | None]] = [(1, 2, 10), (2.5, 4, 20), (5, 8, 40)]
    assert _checked([(0, 100), (3, 115), (4.5, 130), (9, 170)], spans)[:2] == (True, True)
    assert _checked([(0, 100), (9, 171)], spans)[:2] == (False, False)
    assert _checked([(0, 100), (9, 169)], spans)[:2] == (False, False)
    # The last turn is under way at the last reading: any part of its tokens may be counted, and no more.
    for counted, fits in ((129, False), (130, True), (150, True), (170, True), (171, False)):
        assert _checked([(0, 100), (6, counted)], spans)[:2] == (fits, False)
    # A reading before it, at which nothing was under way, says more.
    match, exact, why = _checked([(0, 100), (4.5, 130), (6, 150)], spans)
    assert (match, exact) == (True, True)
    assert "no request under way" in why
    assert _checked([(0, 100), (4.5, 129), (6, 150)], spans)[0] is False


def test_turns_that_name_no_engine_are_compared_with_all_counters_together() -> None:
    def found(second: float) -> tuple[bool | None, bool]:
        history = History()
        for engine, last in (("e0", 30), ("e1", second)):
            reading(history, 0, engine, generation_tokens=0)
            reading(history, 9, engine, generation_tokens=last)
        for start, engine_, tokens in ((1, None, 25), (2, "e0", 10), (3, "e1", 15)):
            history.turn("a", start, start + 1, engine_, generated_tokens=tokens)
        check = check_counters(history.run())
        return check.match, check.exact

    assert found(20) == (True, True)
    assert found(21) == (False, False)


def test_a_counter_recorded_for_all_engines_together_is_held_against_all_turns() -> None:
    history = History()
    for at, value in ((0, 5), (9, 30)):
        history.add("probes", name=COUNTER, mono_ns=ns(at), value=float(value), unit="token", labels_json="{}")
    for start, engine in ((1, "e0"), (2, "e1")):
        history.turn("a", start, start + 1, engine, generated_tokens=12)
    assert check_counters(history.run()).match is False
    history.turn("a", 4, 5, "e1", generated_tokens=1)
    assert check_counters(history.run()).match is True


def test_replies_that_a_script_wrote_are_no_tokens_of_the_engine() -> None:
    history = History(changes={"load": Load.LIVE, "policy": Policy.SCRIPTED})
    for at in (0, 9):
        reading(history, at, generation_tokens=at)
    history.turn("a", 1, 2, "e0", generated_tokens=50)
    found = check_counters(history.run())
    assert found.match is None
    assert "policy = scripted" in found.why


def test_replies_that_came_back_a_moment_before_a_reading_may_not_be_counted_yet() -> None:
    spans: list[tuple[float, float, int | None]] = [(1, 2, 10), (3, 5, 20)]
    assert _checked([(0, 0), (5.05, 10)], spans)[:2] == (True, False)
    assert _checked([(0, 0), (5.5, 10)], spans)[0] is False


def test_one_reading_on_the_way_that_cannot_be_is_no_match() -> None:
    spans: list[tuple[float, float, int | None]] = [(1, 2, 10), (3, 5, 20), (6, 7, 30)]
    for middle, match in ((9, False), (10, True), (30, True), (31, False)):
        found = _checked([(0, 0), (4, middle), (9, 60)], spans)
        assert (found[0], found[1]) == (match, match)
        assert ("at each of 2 readings" if match else "at 1 of 2 readings") in found[2]


def test_a_turn_without_a_reply_leaves_it_open_unless_a_reading_came_before_it() -> None:
    spans: list[tuple[float, float, int | None]] = [(1, 2, 10), (5, 8, None)]
    match, _, why = _checked([(0, 0), (9, 25)], spans)
    assert match is None
    assert "turns without a reply: 1" in why
    assert _checked([(0, 0), (3, 10), (9, 25)], spans)[:2] == (True, True)
    assert _checked([(0, 0), (3, 11), (9, 25)], spans)[0] is False
    assert _checked([(0, 0), (9, 9)], spans)[0] is False  # fewer than the replies hold is wrong, whatever was cut


def test_the_probes_of_the_weight_sync_proof_are_requests_too() -> None:
    history = History()
    reading(history, 0, generation_tokens=0)
    reading(history, 9, generation_tokens=14)
    history.turn("a", 1, 2, "e0", generated_tokens=10)
    labels = '{"cost_s":0.5,"engine":"e0","row_tokens":48,"source":"engine","version":0}'
    history.add("probes", name="probe_logprobs", mono_ns=ns(4), values=[-1.0] * 192, labels_json=labels)
    found = check_counters(history.run())
    assert (found.match, found.exact, found.counted, found.replied) == (True, True, 14, 14)
    assert "the weight-sync probes 4" in found.why


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whenever_it_is_read_an_honest_counter_matches_and_one_off_beyond_what_was_under_way_does_not(
    data: st.DataObject,
) -> None:
    spans = data.draw(
        st.lists(st.tuples(st.integers(1, 40), st.integers(1, 10), st.integers(1, 50)), min_size=1, max_size=8)
    )
    times = sorted(data.draw(st.sets(st.integers(1, 60), min_size=1, max_size=10)))

    def counted(at: float) -> int:
        """Tokens come evenly over each turn."""
        return sum(math.floor(n * min(1.0, max(0.0, (at - start) / length))) for start, length, n in spans)

    history = History()
    for start, length, tokens in spans:
        history.turn("a", start, start + length, "e0", generated_tokens=tokens)
    extra = data.draw(st.sampled_from([0, 1_000]))
    for at in (0.5, *(t + 0.5 for t in times)):
        reading(history, at, generation_tokens=counted(at) + (extra if at > 0.5 else 0), margin_s=0.1)
    found = check_counters(history.run())
    assert found.match is (extra == 0)
