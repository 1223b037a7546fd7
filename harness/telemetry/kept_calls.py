"""NVML calls whose arguments and results lie in memory that is kept: what is read ten times a second costs less so.

`nvidia-ml-py` makes new ones for each call. A call belongs to one GPU, and one thread at a time may make it.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import pynvml

from harness.telemetry.values import BLANK_64, Value, clean

LIBRARY = "libnvidia-ml.so.1"  # as nvidia-ml-py loads it: the same library, in the same state

# nvmlFieldValue_t of nvml.h: field, scope, time and latency are passed over; type, return code, the value's union.
_CELL = struct.Struct("=24xIIQ")
_DOUBLE, _UNSIGNED = struct.Struct("=d"), struct.Struct("=Q")


def _unknown(_bits: int) -> int:
    return BLANK_64


def _signed(bits: int, width: int) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


# nvmlValueType_t -> the member of the union that it names, from the union's 64 bits (little-endian, as CUDA's hosts).
_MEMBERS: Mapping[int, Callable[[int], int | float]] = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: lambda bits: float(_DOUBLE.unpack(_UNSIGNED.pack(bits))[0]),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: lambda bits: bits & 0xFFFFFFFF,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: lambda bits: bits,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: lambda bits: bits,
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: lambda bits: _signed(bits, 64),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: lambda bits: _signed(bits, 32),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: lambda bits: bits & 0xFFFF,
}


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


def has(name: str) -> bool:
    """Whether the library has a function of that name."""
    try:
        return hasattr(_library(), name)
    except OSError:
        return False


def function(name: str) -> Callable[..., int]:
    """A function of the library; where it has none of that name, one that returns FUNCTION_NOT_FOUND."""
    if not has(name):
        return lambda *arguments: int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    found: Callable[..., int] = getattr(_library(), name)
    return found


class FieldValues:
    """Some field values of one GPU, all read by one call."""

    def __init__(self, handle: Any, wanted: Mapping[str, tuple[int, int]]) -> None:
        """`wanted`: field and scope by name."""
        memory = (pynvml.c_nvmlFieldValue_t * len(wanted))()
        for cell, (field, scope) in zip(memory, wanted.values(), strict=True):
            cell.fieldId, cell.scopeId = field, scope
        arguments = (handle, ctypes.c_int32(len(wanted)), ctypes.byref(memory))
        self.call: Callable[[], int] = partial(function("nvmlDeviceGetFieldValues"), *arguments)  # its return code
        self._memory = memory
        self.names = tuple(wanted)

    def values(self) -> list[tuple[str, Value, int]]:
        """Name, value (None for a blank) and return code, as the last `call` left them."""
        return [
            (name, None if code else clean(_MEMBERS.get(kind, _unknown)(bits)), code)
            for name, (kind, code, bits) in zip(self.names, _CELL.iter_unpack(self._memory), strict=True)
        ]

    def read(self) -> dict[str, tuple[Value, int]]:
        """Both at once: value and return code per name.

        Raises:
            pynvml.NVMLError: the call failed as a whole.
        """
        code = self.call()
        if code:
            raise pynvml.NVMLError(code)
        return {name: (value, its_code) for name, value, its_code in self.values()}


class Number:
    """One number of one GPU, or a structure of them."""

    def __init__(self, name: str, handle: Any, result: Any, *arguments: int) -> None:
        """`result`: the ctypes object that the function fills; `arguments`: those between handle and result."""
        self._call = function(name)
        self._arguments = (handle, *arguments, ctypes.byref(result))
        self._result = result

    def read(self) -> Any:
        """The result, filled anew.

        Raises:
            pynvml.NVMLError: as the library says.
        """
        code = self._call(*self._arguments)
        if code:
            raise pynvml.NVMLError(code)
        return self._result
