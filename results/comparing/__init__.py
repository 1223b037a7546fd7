"""Comparing runs: what is compared (`measures`), the statistics (`welch`), what may be claimed (`claims`), `blame`."""
