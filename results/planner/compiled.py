"""The event loop as machine code, where numba is installed (the extra `sim`); its first use compiles it."""

import importlib.util
import inspect
import types
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from harness.protocol.errors import SpecError
from results.planner import heap, kernel


def available() -> bool:
    """Whether numba is installed; it is not loaded."""
    return importlib.util.find_spec("numba") is not None


@lru_cache(maxsize=1)
def advance() -> Callable[..., int]:
    """`kernel.advance`, compiled. Its machine code is kept beside the module, or in the user's cache folder.

    Raises:
        SpecError: numba is not installed.
    """
    if not available():
        raise SpecError("backend = compiled: numba is not installed; pip install 'agentic-rl-bench[sim]'")
    import numba  # half a second: only where it is used

    compile_ = numba.njit(cache=True)
    names: dict[str, Any] = dict(vars(kernel))
    for helper in ("sift_down", "sift_up"):
        names[helper] = compile_(getattr(heap, helper))
    # The same code, but its helpers are the compiled ones.
    own = kernel.advance
    function = types.FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)
    # What was compiled before is found by name and the file's time, which knows nothing of the helpers' file.
    source = inspect.getsource(kernel) + inspect.getsource(heap)
    function.__module__, function.__qualname__ = own.__module__, f"{own.__qualname__}_{zlib.crc32(source.encode()):08x}"
    found: Callable[..., int] = compile_(function)
    return found
