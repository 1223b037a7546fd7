"""Field values as their structure holds them, by the type that each names."""

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
        return fill(where._obj, count.value)

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
