"""Calls made by hand, for traces."""

from typing import Any

from workloads.deep_research.trace import Call


def made(number: int, **changes: Any) -> Call:
    """Call `number` of trajectory t0: a search that took `number` + 1 ms; fields can be given."""
    fields: dict[str, Any] = {
        "trajectory_id": "t0",
        "call": number,
        "tool": "search_engine",
        "argument": f"query {number}",
        "question": "why?",
        "started_mono_ns": 1_000_000_000 * (number + 1),
        "started_wall_ns": 1_700_000_000_000_000_000 + number,
        "latency_s": 0.001 * (number + 1),
        "served_s": 0.0009,
        "http_status": 200,
        "size": 1234,
        "status": "ok",
        "text": f"answer {number}: ü — 漢\nsecond line",
        "links": (("a title", "http://a.test/"), ("", "http://b.test/x?y=1")),
    }
    return Call(**{**fields, **changes})
