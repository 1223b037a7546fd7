"""Readings as NVML gives them: what counts as no value, what its return codes mean, when a reading was made."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pynvml

BLANK_64 = 0x7FFFFFFFFFFFFFF0  # DCGM's integer blanks start here; NVML's "not available" is all ones
BLANK_32 = 0xFFFFFFFF
BLANK_DOUBLES = range(140_737_488_355_328, 140_737_488_355_344)  # DCGM's floating-point blanks

Value = int | float | None
Columns = Mapping[str, Sequence[int | float | None]]
Reading = dict[str, int | float | None]
# (gpu uuid, field, reason): told once for each field that gives nothing
Report = Callable[[str, str, str], None]

NAMES: dict[int, str] = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
GONE = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}
# Answers that will not change while the driver stays loaded: the call is not made again.
FINAL = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}


def reason_of(code: int) -> str:
    """NVML's name of a return code, e.g. NOT_SUPPORTED."""
    return NAMES.get(code, f"NVML return code {code}")


def clean(value: int | float) -> Value:
    """The value, or None where it is one of the numbers that sensors use for "no value"."""
    if isinstance(value, float):
        return value if math.isfinite(value) and int(value) not in BLANK_DOUBLES else None
    return None if value >= BLANK_64 or value == BLANK_32 or value in BLANK_DOUBLES else value


class Timed(NamedTuple):
    """Readings of one group of calls, and when they were made."""

    begin_ns: int
    end_ns: int
    values: Reading

    @property
    def mono_ns(self) -> int:
        """Middle of the calls, monotonic ns."""
        return (self.begin_ns + self.end_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        """Half the length of the calls, rounded up."""
        return (self.end_ns - self.begin_ns + 1) // 2
