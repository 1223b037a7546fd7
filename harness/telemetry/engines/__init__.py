"""Rollout engines' own numbers: their Prometheus endpoints, scraped by a process of its own (standard library only)."""
