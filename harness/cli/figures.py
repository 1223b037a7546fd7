"""Collected run -> its figures, kept as the computed tables beside the others, and its measures for comparisons."""

from contextlib import suppress

from results.comparing.kept import KEPT, stamp_of, write_measures
from results.comparing.measuring import measure_run
from results.metrics import RunFigures, compute
from results.store import RunTables, table_path, write_table


def keep_figures(run: RunTables) -> RunFigures:
    """Computes all figures of a run, and writes them into its folder."""
    found = compute(run)
    for name, table in found.computed_tables().items():
        write_table(table_path(run.run_dir, name), name, table, run.run_id)
    with suppress(OSError):  # kept for speed alone: a comparison computes what is not there
        write_measures(run.run_dir / KEPT, [measure_run(run, found)], stamp=stamp_of(run.run_dir))
    return found
