"""Numbers that sensors use for "no value"."""

import pytest

from harness.telemetry.values import clean, reason_of


@pytest.mark.parametrize(
    "blank",
    [
        9223372036854775792,  # DCGM's integer blank, and its variants: not found, not supported, no permission
        9223372036854775793,
        9223372036854775794,
        9223372036854775795,
        140737488355328.0,
        140737488355330.0,
        2**32 - 1,  # NVML "not available"
        2**64 - 1,
        float("nan"),
        float("inf"),
    ],
)
def test_blanks_are_none(blank):
    assert clean(blank) is None


@pytest.mark.parametrize("value", [0, 0.0, 57, 700_000, 2**32, 10**15, 1.5])
def test_readings_are_kept(value):
    assert clean(value) == value


def test_return_codes_have_their_names():
    assert reason_of(3) == "NOT_SUPPORTED"
    assert reason_of(15) == "GPU_IS_LOST"
    assert "4711" in reason_of(4711)
