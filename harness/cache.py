"""The folder for what is made once and used again: environments, models, corpora."""

import os
from pathlib import Path

CACHE_VARIABLE = "BENCH_CACHE"


def cache_folder() -> Path:
    """$BENCH_CACHE, else agentic-rl-bench in $XDG_CACHE_HOME, else in ~/.cache."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "agentic-rl-bench"
