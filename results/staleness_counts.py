"""How many trained trajectories were how stale at their start."""

from collections import Counter
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from results.store import RunTables


def staleness_counts(run: RunTables, steps: Collection[int] | None = None) -> Mapping[int, int]:
    """Trajectories that `steps` (None: all) trained on, by `at_start` (results.staleness), ascending.

    Those without a version on record are left out.
    """
    table = run.tables["trajectories"]
    table = table.filter(pc.is_valid(table["step_consumed"]))
    if steps is not None:
        table = table.filter(pc.is_in(table["step_consumed"], pa.array(sorted(steps), pa.int64())))
    ages = pc.subtract(table["version_trained"], table["version_first"]).drop_null().to_pylist()
    return dict(sorted(Counter(int(age) for age in ages).items()))
