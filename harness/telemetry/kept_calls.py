"""NVML calls whose arguments and results lie in memory that is kept: what is read ten times a second costs less so.

`nvidia-ml-py` makes new ones for each call. A call belongs to one GPU, and one thread at a time may make it.
"""

import ctypes
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import pynvml

from harness.telemetry.values import BLANK_32, BLANK_64, BLANK_DOUBLES, Value, clean

Made = tuple[int, int, int]  # begin and end (monotonic ns) of a call, its return code

LIBRARY = "libnvidia-ml.so.1"  # as nvidia-ml-py loads it: the same library, in the same state

# nvmlFieldValue_t of nvml.h: field, scope, time and latency are passed over; type and return code as one number; the
# value's union. Little-endian, as CUDA's hosts: a number below 2^32 is a type, and no error.
_CELL = "24xQQ"
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


def value_of(kind: int, bits: int) -> tuple[Value, int]:
    """Value (None for a blank or an error) and return code of a cell."""
    code = kind >> 32
    return (None if code else clean(_MEMBERS.get(kind, _unknown)(bits))), code


def _passed(handle: Any) -> Any:
    """A handle (a pointer, None for none) as `ctypes` passes it on, made once and not for each call."""
    address = None if handle is None else ctypes.cast(handle, ctypes.c_void_p).value
    return ctypes.c_void_p.from_param(address)


class FieldValues:
    """Some field values of one GPU, all read by one call."""

    def __init__(self, handle: Any, wanted: Mapping[str, tuple[int, int]]) -> None:
        """`wanted`: field and scope by name."""
        memory = (pynvml.c_nvmlFieldValue_t * len(wanted))()
        for cell, (field, scope) in zip(memory, wanted.values(), strict=True):
            cell.fieldId, cell.scopeId = field, scope
        arguments = (_passed(handle), len(wanted), ctypes.byref(memory))
        self.call: Callable[[], int] = partial(function("nvmlDeviceGetFieldValues"), *arguments)  # its return code
        self.taken: Callable[[], bytes] = partial(
            bytes, memory
        )  # what the last `call` left, for `cells` after the next
        self.made: Made | None = None  # a call made ahead
        self._memory = memory
        self._cells = struct.Struct("=" + len(wanted) * _CELL)
        self.names = tuple(wanted)

    def cells(self, taken: bytes | None = None) -> Iterable[tuple[str, int, int]]:
        """Name, type (and return code), and bits as the last `call` left them; `value_of` says what they mean."""
        cells = iter(self._cells.unpack(taken or self._memory))
        return zip(self.names, cells, cells, strict=True)

    def numbers(self, many: Iterable[bytes]) -> dict[str, list[int]] | None:
        """What several calls left, if all are whole numbers above 0: neither blanks nor errors; else None."""
        found = {}
        columns = iter(zip(*self._cells.iter_unpack(b"".join(many)), strict=True))
        for name, kinds, bits in zip(self.names, columns, columns, strict=True):
            kind = kinds[0]
            if kinds.count(kind) < len(kinds):
                return None
            if kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
                numbers = [one & BLANK_32 for one in bits]
                if max(numbers) == BLANK_32:
                    return None
            elif kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
                numbers = list(bits)
                if max(numbers) >= BLANK_DOUBLES.start or BLANK_32 in numbers:
                    return None
            else:
                return None
            if not min(numbers):
                return None
            found[name] = numbers
        return found

    def read(self) -> dict[str, tuple[Value, int]]:
        """Both at once: value and return code per name.

        Raises:
            pynvml.NVMLError: the call failed as a whole.
        """
        code = made_now(self)[2]
        if code:
            raise pynvml.NVMLError(code)
        return {name: value_of(kind, bits) for name, kind, bits in self.cells()}


class Number:
    """One number of one GPU, or a structure of them."""

    def __init__(self, name: str, handle: Any, result: Any, *arguments: int, after: tuple[Any, ...] = ()) -> None:
        """`result`: the ctypes object that the function fills; `arguments`: those between handle and result."""
        passed = (_passed(handle), *arguments, ctypes.byref(result), *after)
        self.call: Callable[[], int] = partial(function(name), *passed)  # its return code
        self.result = result  # as the last `call` left it
        self.made: Made | None = None  # a call made ahead


Kept = Number | FieldValues
AHEAD_NS = 500_000_000  # of eight GPUs, PCIe's calls block 320 ms


def make_ahead(kept: Sequence[Kept], stop: Callable[[], bool]) -> None:
    """Makes the calls one after the other, until `stop`, and does nothing in between; `made` has them.

    After each call that slept, what is done must first be fetched into the caches: afterwards it is so only once. Where
    they are slow (AHEAD_NS), the others are left to be made one by one: no GPU's row waits for those of all.
    """
    made: list[Made] = []
    first_ns = begin_ns = time.monotonic_ns()
    for call in [one.call for one in kept]:
        code = call()
        end_ns = time.monotonic_ns()
        made.append((begin_ns, end_ns, code))
        if stop() or end_ns - first_ns > AHEAD_NS:
            break
        begin_ns = end_ns
    for one, its in zip(kept, made, strict=False):
        one.made = its


def made_now(kept: "Kept") -> Made:
    """The call that was made ahead; else one that is made now."""
    made, kept.made = kept.made, None
    if made is not None:
        return made
    begin_ns = time.monotonic_ns()
    code = kept.call()
    return begin_ns, time.monotonic_ns(), code
