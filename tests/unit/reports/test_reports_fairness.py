"""The fairness table, by hand."""

from types import SimpleNamespace
from typing import Any

from adapters.base import FAIRNESS
from reports.fairness import fairness_table
from reports.markdown import Footnotes


def run(**told: str) -> Any:
    return SimpleNamespace(meta={"fairness": {**dict.fromkeys(FAIRNESS, "same"), **told}})


def rows(lines: list[str]) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {cell[0]: cell[1:] for cell in cells[2:]}


def test_rows_that_differ_come_first_and_are_marked() -> None:
    lines = fairness_table([run(engine="vllm"), run(engine="sglang")], ["a", "b"], Footnotes())
    assert lines[0] == f"1 of {len(FAIRNESS)} settings differ or are not known."
    found = rows(lines)
    assert next(iter(found.items())) == (FAIRNESS["engine"], ["**no**", "vllm", "sglang"])
    assert found[FAIRNESS["loss"]] == ["yes", "same", "equal"]


def test_a_run_that_did_not_say_is_not_equal() -> None:
    silent: Any = SimpleNamespace(meta={"fairness": {"loss": "same"}})
    lines = fairness_table([run(), silent], ["a", "b"], Footnotes())
    assert lines[0] == f"{len(FAIRNESS) - 1} of {len(FAIRNESS)} settings differ or are not known."
    assert rows(lines)[FAIRNESS["engine"]][0] == "**no**"


def test_runs_from_before_the_table() -> None:
    old: Any = SimpleNamespace(meta={})
    assert fairness_table([old, old], ["a", "b"], Footnotes()) == [
        "None of these runs recorded its settings row by row."
    ]


def test_all_equal() -> None:
    assert fairness_table([run(), run()], ["a", "b"], Footnotes())[0] == "All settings are equal."
