"""Random stories of a run: what hypothesis draws for `labelled_stories`."""

from hypothesis import strategies as st
from labelled_stories import BEGIN, END, ENGINES, TRAIN_CLASS, Leaf, Life, Part, Story

times = st.integers(BEGIN, END)
lengths = st.integers(0, 70)


@st.composite
def a_life(draw: st.DrawFn) -> Life:
    """A trajectory; it may change its engine from turn to turn, and end after its last part or never."""
    start = now = draw(times)
    now += draw(st.integers(0, 20))
    parts = []
    kinds = st.sampled_from(["turn", "turn", "turn", "cancelled", "tool", "tool", "reward", "agent"])
    for kind in draw(st.lists(kinds, min_size=draw(st.sampled_from((0, 2, 4))), max_size=6)):
        length = draw(st.integers(1, 50))
        queued = draw(st.integers(0, length - 1)) if kind in ("turn", "cancelled") else 0
        told = draw(st.sampled_from(("e0", "e0", "e0", "e1"))) if kind == "turn" else None
        parts.append(Part(kind, now, now + length, told, queued))
        now += length + draw(st.integers(0, 8))
    ends = draw(st.booleans())
    left = now + draw(lengths) if ends and draw(st.booleans()) else None
    return Life(start, now if ends else None, tuple(parts), left)


@st.composite
def some_leaves(draw: st.DrawFn, together: bool) -> list[Leaf]:
    """Native timers of two processes, also nested and overlapping, and the rollout pool's own."""
    own = "both" if together else "train"
    phases = [*TRAIN_CLASS, *(["generation"] * 4 if together else [])]
    found: dict[tuple[int, int, int], Leaf] = {}
    for _ in range(draw(st.integers(0, 9))):
        start, length = draw(times), draw(st.integers(1, 120))
        leaf = Leaf(draw(st.sampled_from(phases)), start, start + length, own, draw(st.integers(1, 2)))
        found[leaf.pid, leaf.start, leaf.end] = leaf  # of two that are one stretch nobody can say which is inside
    for _ in range(0 if together else draw(st.integers(0, 2))):
        start, length = draw(times), draw(lengths)
        phase, engine = draw(st.sampled_from(["offload", "weight_sync", "wait_train"])), draw(a_unit)
        found[3, start, start + length] = Leaf(phase, start, start + length, "rollout", 3, engine)
    return list(found.values())


a_unit = st.sampled_from([None, *ENGINES])


@st.composite
def stories(draw: st.DrawFn, placement: str, grain: str) -> Story:
    """A story whose units will be `grain`: engine | metric | pool."""
    lives = draw(st.lists(a_life(), min_size=0 if grain == "pool" else 3, max_size=6))
    gates = []
    for at in sorted(draw(st.sets(times, max_size=4))):
        in_flight = draw(st.sampled_from([None, 0, 4, 5]))
        gates.append((at, draw(st.booleans()), in_flight, None if in_flight is None else 4))
    hello = draw(st.sampled_from([None, BEGIN, 20]))
    controller = None if hello is None else (hello, draw(st.sampled_from([None, 100])))
    story = Story(
        placement=placement,
        named=grain == "engine",
        lives=lives,
        leaves=draw(some_leaves(placement == "colocated")),
        syncs=[(s, s + n, e) for s, n, e in draw(st.lists(st.tuples(times, lengths, a_unit), max_size=4))],
        gates=gates,
        tails=[(s, s + n) for s, n in draw(st.lists(st.tuples(times, lengths), max_size=2))],
        controller=controller,
        engines_bye=draw(st.sampled_from([None, None, None, 105])),
    )
    if grain == "metric" or (grain == "engine" and draw(st.sampled_from((True, True, False)))):
        gaps = st.one_of(st.integers(4, 15), st.integers(4, 15), st.integers(4, 60))  # some, longer than is believed
        answer = draw(st.sampled_from((ENGINES, ENGINES, ENGINES, ENGINES[:1], ENGINES[1:])))
        for engine in answer:
            at, rows = BEGIN, []
            for gap, running, waiting in draw(
                st.lists(
                    st.tuples(gaps, st.sampled_from((0, 0, 0, 1, 2)), st.integers(0, 2)),
                    min_size=5,
                    max_size=12,
                )
            ):
                at += 2 * gap  # even: half-way to the next is a whole millisecond
                rows.append((at, running, waiting))
            story.readings[engine] = rows
    return story
