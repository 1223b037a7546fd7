"""The fairness table: what is equal between the runs of a comparison, and what is not."""

from collections.abc import Mapping, Sequence

from adapters.base import FAIRNESS
from reports.markdown import Footnotes, escape, table
from results.store import RunTables

NOT_RECORDED = "this run's adapter recorded no such setting"


def fairness_table(runs: Sequence[RunTables], names: Sequence[str], notes: Footnotes) -> list[str]:
    """A row per setting that may bend a comparison; rows in which the runs differ, or that nobody knows, come first."""
    told = [_told(run) for run in runs]
    if not any(told):
        return ["None of these runs recorded its settings row by row."]
    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for key, what in FAIRNESS.items():
        values = [each.get(key) for each in told]
        equal = None not in values and len(set(values)) == 1
        shown = [notes.unknown(NOT_RECORDED) if value is None else escape(value) for value in values]
        if equal and len(shown) > 1:
            shown = [shown[0], *("equal" for _ in shown[1:])]
        rows[equal].append([escape(what), "yes" if equal else "**no**", *shown])
    header = ["Setting", "equal", *(escape(name) for name in names)]
    count = len(rows[False])
    said = "All settings are equal." if not count else f"{count} of {len(FAIRNESS)} settings differ or are not known."
    return [said, "", *table(header, [*rows[False], *rows[True]], "l" * len(header))]


def _told(run: RunTables) -> Mapping[str, str]:
    value = run.meta.get("fairness")
    if not isinstance(value, dict):
        return {}
    return {str(key): str(entry) for key, entry in value.items()}
