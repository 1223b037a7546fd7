"""What AReaL's processes hand to each other: the spec's path, and a trajectory's name as a number in a tensor."""

import os
from functools import lru_cache
from pathlib import Path

from harness.protocol.spec import RunSpec

SPEC_VARIABLE = "BENCH_AREAL_SPEC"  # inherited by the workers that AReaL's scheduler starts
ID_KEY = "bench_id"  # int64, one per row of a batch: `pack_id`
TOKENS_KEY = "bench_tokens"  # int64, one per row: tokens of the sequence, without padding
_SAMPLE_BITS, _ATTEMPT_BITS = 20, 12


@lru_cache(maxsize=1)
def spec_of_environment() -> RunSpec:
    """The spec of the run that this process belongs to.

    Raises:
        KeyError: the variable is not set.
        SpecError: the file cannot be read.
    """
    return RunSpec.load_file(Path(os.environ[SPEC_VARIABLE]))


def pack_id(prompt: int, sample: int, attempt: int) -> int:
    """A trajectory's three numbers in one that fits an int64; batches of AReaL carry tensors only.

    Raises:
        ValueError: a number does not fit.
    """
    if not (0 <= prompt < 1 << 31 and 0 <= sample < 1 << _SAMPLE_BITS and 0 <= attempt < 1 << _ATTEMPT_BITS):
        raise ValueError(f"trajectory p{prompt}-s{sample}-a{attempt}: out of range")
    return (prompt << _SAMPLE_BITS | sample) << _ATTEMPT_BITS | attempt


def unpack_id(packed: int) -> str:
    """The trajectory id that `pack_id` packed."""
    attempt = packed & ((1 << _ATTEMPT_BITS) - 1)
    sample = packed >> _ATTEMPT_BITS & ((1 << _SAMPLE_BITS) - 1)
    return f"p{packed >> _SAMPLE_BITS + _ATTEMPT_BITS}-s{sample}-a{attempt}"
