"""Prices that a report is asked to count with."""

import math
from dataclasses import dataclass

from harness.protocol.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in any one currency, which no figure names. None: not given."""

    gpu_hour: float | None = None
    kwh: float | None = None

    def check(self) -> "Prices":
        """Itself.

        Raises:
            SpecError: a price that is not a number above 0.
        """
        for flag, value in (("price-per-gpu-hour", self.gpu_hour), ("price-per-kwh", self.kwh)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise SpecError(f"{flag} = {value:g}: allowed is a number above 0")
        return self

    @property
    def given(self) -> bool:
        """Whether there is any price."""
        return self.gpu_hour is not None or self.kwh is not None


NO_PRICES = Prices()
