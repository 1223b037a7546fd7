"""From recorded events to Parquet tables and figures with intervals.

`open_runs("runs/*")` reads the tables of many runs; it is imported when asked for, with pandas and Arrow behind it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.opening import Runs, open_runs

__all__ = ["Runs", "open_runs"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from results import opening

        return getattr(opening, name)
    raise AttributeError(f"module 'results' has no attribute {name!r}")
