"""Field values as their structure holds them, by the type that each names."""

import ctypes
import time

import pynvml
import pytest

from harness.telemetry import kept_calls
from harness.telemetry.kept_calls import FieldValues

TYPES = {
    "dVal": (pynvml.NVML_VALUE_TYPE_DOUBLE, 123.5, 123.5),
    "uiVal": (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 700_000, 700_000),
    "ulVal": (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, 2**40, 2**40),
    "ullVal": (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 2**50, 2**50),
    "sllVal": (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, -5, -5),
    "siVal": (pynvml.NVML_VALUE_TYPE_SIGNED_INT, -7, -7),
    "usVal": (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, 9, 9),
}


def answering(monkeypatch, fill):
    def call(_handle, count, where):
        return fill(where._obj, count)

    monkeypatch.setattr(kept_calls, "function", lambda name: call)


def test_each_type_is_read_from_its_member(monkeypatch):
    asked = []

    def fill(cells, count):
        for cell, (member, (kind, value, _)) in zip(cells, TYPES.items(), strict=True):
            asked.append((cell.fieldId, cell.scopeId))
            cell.value.ullVal = 2**64 - 1  # what was there before
            setattr(cell.value, member, value)
            cell.valueType, cell.nvmlReturn = kind, 0
        return 0

    answering(monkeypatch, fill)
    values = FieldValues(None, {name: (place + 10, place) for place, name in enumerate(TYPES)}).read()
    assert values == {name: (expected, 0) for name, (_, _, expected) in TYPES.items()}
    assert asked == [(place + 10, place) for place in range(len(TYPES))]


def test_an_unknown_type_a_blank_and_a_failed_field_are_none(monkeypatch):
    def fill(cells, count):
        for cell, (kind, code, value) in zip(cells, [(42, 0, 5), (1, 0, 2**32 - 1), (1, 3, 5)], strict=True):
            cell.valueType, cell.nvmlReturn, cell.value.uiVal = kind, code, value
        return 0

    answering(monkeypatch, fill)
    assert FieldValues(None, {"a": (1, 0), "b": (2, 0), "c": (3, 0)}).read() == {
        "a": (None, 0),
        "b": (None, 0),
        "c": (None, 3),
    }


def test_a_call_that_fails_as_a_whole_is_an_error(monkeypatch):
    answering(monkeypatch, lambda cells, count: pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(pynvml.NVMLError) as error:
        FieldValues(None, {"a": (1, 0)}).read()
    assert error.value.value == pynvml.NVML_ERROR_GPU_IS_LOST


def test_a_library_that_is_not_there_has_no_functions(monkeypatch):
    monkeypatch.setattr(kept_calls, "LIBRARY", "libno-such-library.so")
    kept_calls._library.cache_clear()
    try:
        assert not kept_calls.has("nvmlInit_v2")
        assert kept_calls.function("nvmlInit_v2")() == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    finally:
        kept_calls._library.cache_clear()


WHOLE = {"a": (1, 300_000), "b": (3, 2**40)}  # type and number


def left(monkeypatch, **others):
    """What a call left, whose numbers are those of `WHOLE` or others; the fields that read it."""

    def fill(cells, count):
        for cell, (name, (kind, number)) in zip(cells, WHOLE.items(), strict=True):
            kind, code, number = others.get(name, (kind, 0, number))
            cell.valueType, cell.nvmlReturn, cell.value.ullVal = kind, code, number
        return 0

    answering(monkeypatch, fill)
    fields = FieldValues(None, {"a": (1, 0), "b": (2, 0)})
    assert fields.call() == 0
    return fields, fields.taken()


def test_what_several_calls_left_is_read_at_once(monkeypatch):
    fields, first = left(monkeypatch)
    _, second = left(monkeypatch, a=(1, 0, 2**32 + 5))  # of 32 bits, whatever else is in the union
    assert fields.numbers([first, second]) == {"a": [300_000, 5], "b": [2**40] * 2}
    assert {name: kept_calls.value_of(kind, bits) for name, kind, bits in fields.cells(second)} == {
        "a": (5, 0),
        "b": (2**40, 0),
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"a": (1, 3, 0)},  # an error
        {"a": (1, 0, 2**32 - 1)},
        {"a": (1, 0, 0)},
        {"a": (4, 0, 300_000)},  # of another type than before
        {"b": (3, 0, 2**63)},
        {"b": (3, 0, 140_737_488_355_328)},
        {"b": (3, 0, 2**32 - 1)},
        {"b": (0, 0, 1)},
        {"b": (42, 0, 1)},
    ],
)
def test_what_is_odd_is_left_to_a_look_of_its_own(monkeypatch, odd):
    fields, usual = left(monkeypatch)
    _, other = left(monkeypatch, **odd)
    assert fields.numbers([usual, usual]) is not None
    assert fields.numbers([usual, other]) is None
    assert fields.numbers([other]) is None


def played(code, number=0):
    """A `Number` whose call gives that code, and counts."""
    kept = kept_calls.Number("nvmlNoSuchFunction", None, ctypes.c_uint())
    calls = []

    def call():
        calls.append(time.monotonic_ns())
        kept.result.value = number
        return code

    kept.call = call
    return kept, calls


def test_calls_made_ahead_are_each_taken_once_with_their_own_times():
    (first, its), (second, others) = played(0, number=7), played(3)
    begin_ns = time.monotonic_ns()
    kept_calls.make_ahead([first, second], lambda: False)
    end_ns = time.monotonic_ns()
    assert (len(its), len(others)) == (1, 1)
    one, other = kept_calls.made_now(first), kept_calls.made_now(second)
    assert (one[2], other[2], first.result.value) == (0, 3, 7)
    assert begin_ns <= one[0] <= its[0] <= one[1] <= other[0] <= others[0] <= other[1] <= end_ns
    again = kept_calls.made_now(first)  # none was made ahead of it
    assert len(its) == 2
    assert again[0] <= its[1] <= again[1]


def test_no_call_is_made_ahead_once_the_sampler_is_to_stop():
    (first, its), (second, others) = played(0), played(0)
    kept_calls.make_ahead([first, second], lambda: len(its) == 1)
    assert (len(its), len(others)) == (1, 0)
    assert second.made is None


def test_where_a_call_is_slow_the_others_are_not_made_ahead(monkeypatch):
    (first, its), (second, others) = played(0), played(0)
    monkeypatch.setattr(kept_calls, "AHEAD_NS", -1)  # any call is slower
    kept_calls.make_ahead([first, second], lambda: False)
    assert (len(its), len(others)) == (1, 0)
    assert second.made is None


def test_field_values_made_ahead_are_read_without_another_call(monkeypatch):
    calls = []

    def fill(cells, count):
        calls.append(count)
        for cell in cells:
            cell.valueType, cell.nvmlReturn, cell.value.ullVal = 1, 0, 5
        return 0

    answering(monkeypatch, fill)
    fields = FieldValues(None, {"a": (1, 0), "b": (2, 0)})
    kept_calls.make_ahead([fields], lambda: False)
    assert fields.read() == {"a": (5, 0), "b": (5, 0)}
    assert calls == [2]
    fields.read()
    assert calls == [2, 2]
