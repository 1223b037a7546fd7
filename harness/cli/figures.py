"""Collected run -> its figures, kept as the `metrics` table beside the others."""

from results.metrics import RunFigures, compute
from results.store import RunTables, table_path, write_table


def keep_figures(run: RunTables) -> RunFigures:
    """Computes all figures of a run, and writes them into its tables folder."""
    found = compute(run)
    write_table(table_path(run.run_dir, "metrics"), "metrics", found.metric_rows(), run.run_id)
    return found
