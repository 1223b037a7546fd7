"""Times of plan adherence: what a clock can tell apart, in its own unit."""

import pytest

from reports.markdown import Footnotes
from reports.tables import _ns


@pytest.mark.parametrize(
    ("given", "shown"), [(0, "0 ms"), (1, "1 ns"), (-999, "-999 ns"), (1_000, "0.00100 ms"), (2_500_000, "2.50 ms")]
)
def test_a_nanosecond_is_no_power_of_ten_of_a_millisecond(given: int, shown: str) -> None:
    assert _ns(given, Footnotes()) == shown
