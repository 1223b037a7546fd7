"""The hot loops as machine code, where numba is installed (the extra `sim`); their first use compiles them.

Without fast-math, so each operation is rounded as Python rounds it, and the results are the interpreted ones.
"""

import importlib.util
import inspect
import threading
import types
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from harness.protocol.errors import SpecError
from results.planner import heap, kernel, scalar, warm
from results.planner.draws import BLOCK, Bits, Floats

_ROOM = threading.local()  # arrays to work in, made once in each thread


def available() -> bool:
    """Whether numba is installed; it is not loaded."""
    return importlib.util.find_spec("numba") is not None


@cache
def advance(plain: bool) -> Callable[..., int]:
    """`kernel.advance`, compiled. Machine code is kept beside the module, or in the user's cache folder.

    Args:
        plain: for scenarios that `state.plain` is true of, and none else; some 10 % faster.

    Raises:
        SpecError: numba is not installed.
    """
    names = dict(vars(kernel)) | {"PLAIN": plain}
    names["sift_down"] = _compile(heap.sift_down_evenly, dict(vars(heap)), heap)
    names["sift_up"] = _compile(heap.sift_up, dict(vars(heap)), heap)
    names["keep"] = _compile(warm.keep, dict(vars(warm)), warm)
    return _compile(kernel.advance, names, kernel, heap, warm, kind="plain" if plain else "any")


def log_normals(raw: Bits, median: float, sigma: float, out: Floats) -> None:
    """Log-normal values of 64 random bits each, into `out`: those of `draws`, compiled.

    Raises:
        SpecError: numba is not installed.
    """
    normals, exponentials = _filling()
    room = _ROOM.__dict__
    if not room:
        room["bits"], room["places"] = np.empty(BLOCK, dtype=np.uint64), np.empty(BLOCK + 1, dtype=np.int64)
        room["depths"], room["powers"] = np.empty(BLOCK + 1), np.empty(BLOCK + 1)
    bits, places, depths, powers = room["bits"], room["places"], room["depths"], room["powers"]
    for begin in range(0, len(raw), BLOCK):
        part = out[begin : begin + BLOCK]
        own = bits[: len(part)]
        np.right_shift(raw[begin : begin + BLOCK], 12, out=own)
        normals(own.view(np.int64), part, places, depths, depths.view(np.int64), powers)
        exponentials(sigma, own.view(np.int64), part)
        part *= own.view(np.float64)  # by now the bits of powers of two
        part *= median


@cache
def _filling() -> tuple[Callable[..., None], Callable[..., None]]:
    names = dict(vars(scalar))
    names[scalar.horner.__name__] = _compile(scalar.horner, names, scalar)
    return _compile(scalar.normals, names, scalar), _compile(scalar.exponentials, names, scalar)


def _compile(
    function: Callable[..., Any], names: dict[str, Any], *sources: types.ModuleType, kind: str = ""
) -> Callable[..., Any]:
    """The function compiled, its helpers taken from `names`; `kind` tells apart what other constants there make."""
    if not available():
        raise SpecError("backend = compiled: numba is not installed; pip install 'agentic-rl-bench[sim]'")
    import numba  # half a second: only where it is used

    code: types.CodeType = function.__code__
    copy = types.FunctionType(code, names, code.co_name)
    # Kept code is found by name and the time of the file, which knows nothing of the helpers' files: so the name does.
    source = "".join(inspect.getsource(module) for module in sources)
    copy.__module__ = function.__module__
    copy.__qualname__ = f"{code.co_name}_{kind}{zlib.crc32(source.encode()):08x}"
    try:
        found: Callable[..., Any] = numba.njit(cache=True, error_model="numpy", nogil=True)(copy)
    except RuntimeError:  # neither the module's folder nor the user's cache can be written: compiled each time
        found = numba.njit(error_model="numpy", nogil=True)(copy)
    return found
