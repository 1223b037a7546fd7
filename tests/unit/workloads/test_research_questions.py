"""The data set: stable, distinct rows."""

from workloads.deep_research.questions import question, rows


def test_rows_are_numbered_and_distinct() -> None:
    data = rows(3_000)
    assert [row.prompt for row in data] == list(range(3_000))
    assert len({row.question for row in data}) == 3_000
    assert data[17].question == question(17)


def test_rows_stay_distinct_when_the_combinations_run_out() -> None:
    combinations = 4 * 7 * 9 * 19 * 4 * 5
    assert question(combinations) != question(0)
    assert "case 2" in question(combinations)
    assert "{" not in question(combinations)
