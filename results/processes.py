"""Which processes of a run ended without saying so, and should have."""

from results.store import RunTables

WORKERS = ("train", "rollout", "engine")
"""Roles that a controller ends itself: Ray kills its actors, so that they say no Bye is how a good run ends."""


def ended_silently(run: RunTables) -> int:
    """Processes without a Bye. Workers count only where no controller said Bye: then nobody meant to end them."""
    rows = run.tables["processes"].select(["role", "ended"]).to_pylist()
    meant = any(row["role"] == "controller" and row["ended"] for row in rows)
    return sum(not row["ended"] and not (meant and row["role"] in WORKERS) for row in rows)
