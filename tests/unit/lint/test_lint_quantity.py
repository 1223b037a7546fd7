"""Printed numbers: what they are, in which unit, and what rounding leaves open."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.lint.quantity import Quantity, half_width, read_number


@pytest.mark.parametrize(
    ("text", "value", "low", "high", "unit"),
    [
        ("451", 451, 450.5, 451.5, ""),
        ("~385s", 385, 384, 386, "s"),
        ("34.6%", 34.6, 34.55, 34.65, "%"),
        ("+16.8 %", 16.8, 16.75, 16.85, "%"),
        ("−16.1%", -16.1, -16.15, -16.05, "%"),
        ("1,234.5", 1234.5, 1234.45, 1234.55, ""),
        ("1200", 1200, 1150, 1250, ""),
        ("1000", 1000, 950, 1050, ""),
        ("100%", 100, 99.5, 100.5, "%"),
        ("2.57×", 2.57, 2.565, 2.575, "×"),
        ("np.float64(5.75)", 5.75, 5.745, 5.755, ""),
        ("34.6 ± 0.4%", 34.6, 34.1, 35.1, "%"),
        ("20–35%", 27.5, 19.5, 35.5, "%"),
        ("<0.1%", 0.1, -math.inf, 0.15, "%"),
        ("**451 s**[^1]", 451, 450.5, 451.5, "s"),
        ("8.3745e-03", 8.3745e-3, 8.37445e-3, 8.37455e-3, ""),
        ("1.2M", 1.2, 1.15, 1.25, "M"),
        ("7h 58m<br>(1.72x)", 28680, 28650, 28710, "s"),
        ("1d 3h 43m", 99780, 99750, 99810, "s"),
        ("2 min 5.5 s", 125.5, 125.45, 125.55, "s"),
        ("34.6% (+2.1%)", 34.6, 34.55, 34.65, "%"),
    ],
)
def test_numbers_as_they_are_printed(text: str, value: float, low: float, high: float, unit: str) -> None:
    found = read_number(text)
    assert found is not None
    assert found.unit == unit
    numbers = (found.quantity.value, found.quantity.low, found.quantity.high)
    assert numbers == pytest.approx((value, low, high))


@pytest.mark.parametrize("text", ["", "-", "–", "n/a", "NaN", "4+4", "64 GB300", "Qwen3-14B", "inf", "1.2.3"])
def test_what_is_no_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "kind", "default", "value"),
    [
        ("34.6%", "ratio", "", 0.346),
        ("34.6", "ratio", "%", 0.346),
        ("0.346", "ratio", "", 0.346),
        ("5 min", "time", "", 300),
        ("250", "time", "ms", 0.25),
        ("1.2M", "number", "", 1.2e6),
        ("3k", "count", "", 3000),
        ("0.7 kW", "power", "", 700),
        ("2 kWh", "energy", "", 7.2e6),
        ("400", "flops", "TFLOPS", 400e12),
        ("1.5x", "multiple", "", 1.5),
        ("34.6%", "time", "", None),
        ("5 min", "power", "", None),
        ("12%", "number", "", None),
        ("12.3", "number", "ktok/s", 12_300),
        ("12.3", "number", "k tokens/s/GPU", 12_300),
        ("12.3", "number", "tokens/s/GPU", 12.3),
        ("12.3", "number", "millions", 12.3e6),
        ("12.3", "number", "Million tokens", 12.3e6),
        ("12.3", "number", "Btok", 12.3e9),
        ("12.3", "number", "10^3", 12_300),
        ("12.3", "number", "×10⁶ tokens", 12.3e6),
        ("12.3", "number", "1e3 tok", 12_300),
        ("12.3", "number", "per second", 12.3),
        ("12", "count", "steps", 12),
        ("12", "number", "GPU-hours", 12),
        ("12.3", "number", "1", 12.3),
        ("12.3", "number", "tok/min", None),
        ("12.3", "number", "lakh", None),
        ("12.3", "number", "m", None),
        ("12.3", "number", "GB", None),
        ("12.3 furlongs", "number", "", None),
        ("8", "count", "nodes", None),
        ("250", "any", "ms", 0.25),
        ("250", "any", "turns", 250),
        ("250", "any", "furlongs", None),
    ],
)
def test_units(text: str, kind: str, default: str, value: float | None) -> None:
    found = read_number(text)
    assert found is not None
    read = found.of_kind(kind, default)
    assert (None if read is None else read.value) == (None if value is None else pytest.approx(value))


def test_a_count_has_all_its_digits() -> None:
    found = read_number("1200", exact=True)
    assert found is not None
    assert found.quantity == Quantity.exact(1200.0)


@given(
    st.floats(min_value=1e-4, max_value=1e9),
    st.integers(min_value=0, max_value=6),
    st.sampled_from(["decimals", "figures", "exponent", "tens"]),
)
def test_a_number_lies_within_what_its_print_says(value: float, digits: int, how: str) -> None:
    if how == "decimals":
        text = f"{value:.{digits}f}"
    elif how == "figures":  # two significant ones at least: with one, `2000` may have been 2400
        text = f"{value:.{digits + 2}g}"
    elif how == "exponent":
        text = f"{value:.{digits}e}"
    else:
        place = min(digits, max(0, math.floor(math.log10(value)) - 1))
        text = f"{round(value, -place):.0f}"
    found = read_number(text)
    assert found is not None
    spare = 1e-9 * value
    assert found.quantity.low - spare <= value <= found.quantity.high + spare


numbers = st.floats(min_value=-1e6, max_value=1e6)


@given(numbers, numbers, st.floats(0, 10), st.floats(0, 10), st.floats(-1, 1), st.floats(-1, 1))
def test_arithmetic_keeps_the_range(a: float, b: float, da: float, db: float, s: float, t: float) -> None:
    one, two = Quantity(a, a - da, a + da), Quantity(b, b - db, b + db)
    x, y = a + s * da, b + t * db  # anywhere inside
    made = {"+": (one + two, x + y), "-": (one - two, x - y), "*": (one * two, x * y)}
    if not two.low <= 0 <= two.high:
        made["/"] = (one / two, x / y)
    for found, true in made.values():
        spare = 1e-9 * (abs(true) + abs(a) + abs(b) + 1)
        assert found.low - spare <= true <= found.high + spare


def test_half_width_of_few_digits() -> None:
    assert half_width("5") == 0.5
    assert half_width("0.50") == pytest.approx(0.005)
    assert half_width("1000", percent=True) == 0.5
