"""What a report says of a run's hosts: how well their times are known against each other, and which were lost."""

from typing import Any

from reports.case import Case
from reports.markdown import Footnotes, escape, number, table


def hosts_section(case: Case, notes: Footnotes) -> list[str]:
    """The hosts and what is not claimed across them; nothing for a run on one host."""
    rows = case.run.tables["hosts"].to_pylist()
    if len(rows) < 2:
        return []
    header = ["Host", "clock offset", "known to ±", "drift", "comparisons", "samples", "at the end"]
    lines = ["## Hosts", "", *table(header, [_row(row, notes) for row in rows], "l"), "", *_limits(rows), ""]
    return [*lines, case.caption(f"n = {len(rows)} hosts", notes)]


def _row(row: dict[str, Any], notes: Footnotes) -> list[str]:
    if row["reference"]:
        clock = ["the axis", "", "", ""]
    elif row["offset_ns"] is None:
        clock = [f"unknown{notes.mark(row['reason'])}", "unknown", "unknown", "0"]
    else:
        doubt = "" if row["steady"] else notes.mark("comparisons contradict each other: a clock stepped or drifted")
        drift = "unknown" if row["drift_ppm"] is None else f"{row['drift_ppm']:.1f} ± {_ppm(row)} ppm"
        known = f"{row['uncertainty_ns'] / 1e6:.3g} ms{doubt}"
        clock = [f"{row['offset_ns'] / 1e9:.6f} s", known, drift, str(row["comparisons"])]
    end = f"lost{notes.mark(row['reason'])}" if row["lost"] else "answered"
    return [escape(row["host"]), *clock, number(row["samples"]), "" if row["reference"] and not row["lost"] else end]


def _ppm(row: dict[str, Any]) -> str:
    return f"{row['drift_uncertainty_ppm']:.1f}"


def _limits(rows: list[dict[str, Any]]) -> list[str]:
    unknown = [escape(row["host"]) for row in rows if row["uncertainty_ns"] is None]
    known = [row["uncertainty_ns"] for row in rows if row["uncertainty_ns"] is not None]
    worst_ms = (sorted(known)[-1] + sorted(known)[-2]) / 1e6 if len(known) > 1 else 0.0
    lines = [
        f"Times of two hosts are known against each other to ± {worst_ms:.3g} ms. What is shorter is not told apart "
        "across hosts: neither the order of two events nor on which side of a class's edge a moment of another host "
        "lies. Joules per class carry it in their uncertainty, and a class shorter than four times a host's own "
        "uncertainty has none."
    ]
    if unknown:
        which = ", ".join(unknown)
        lines += ["", f"**Not on this axis: {which}.** Nothing that sets its times beside another host's is right."]
    return lines
