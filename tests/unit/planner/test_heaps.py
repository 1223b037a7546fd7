"""The heap of events: both ways down give one arrangement."""

from hypothesis import given, settings
from hypothesis import strategies as st

from results.planner.heap import sift_down, sift_down_evenly, sift_up

QUIET = settings(deadline=None, max_examples=300, derandomize=True)
KEYS = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 9.5]), min_size=1, max_size=70)  # many are equal


def heap_of(values):
    keys, items = [], []
    for item, key in enumerate(values):
        keys.append(key)
        items.append(item)
        sift_up(keys, items, item)
    return keys, items


@QUIET
@given(KEYS, KEYS)
def test_both_ways_down_leave_the_same_keys_and_items_at_the_same_places(values, new):
    keys, items = heap_of(values)
    other_keys, other_items = list(keys), list(items)
    for number, key in enumerate(new):
        for own_keys, own_items in ((keys, items), (other_keys, other_items)):
            own_keys[0], own_items[0] = key, 100 + number
        sift_down(keys, items, len(keys))
        sift_down_evenly(other_keys, other_items, len(keys))

        assert (other_keys, other_items) == (keys, items)


@QUIET
@given(KEYS)
def test_they_come_out_in_order(values):
    for down in (sift_down, sift_down_evenly):
        keys, items = heap_of(values)
        found = []
        while keys:
            found.append((keys[0], items[0]))
            last, item = keys.pop(), items.pop()
            if keys:
                keys[0], items[0] = last, item
                down(keys, items, len(keys))

        assert [key for key, _ in found] == sorted(values)
        assert sorted(item for _, item in found) == list(range(len(values)))
