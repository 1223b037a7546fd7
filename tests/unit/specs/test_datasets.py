"""Users' data sets: the shapes that files really have, and what is said of those that don't fit."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.protocol.errors import SpecError
from harness.specs import resolve
from harness.specs.datasets import read_dataset
from workloads.deep_research.dataset import Row, read_rows, write_rows


def written(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"data.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("record", "question", "answers"),
    [
        ({"question": "Who?", "answer": "Ada"}, "Who?", ("Ada",)),
        ({"problem": " Who? ", "answer": 42}, "Who?", ("42",)),
        ({"question": "Who?", "golden_answers": ["Ada", "Ada L."]}, "Who?", ("Ada", "Ada L.")),
        (
            {
                "data_source": "searchR1_nq",
                "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Who?"}],
                "reward_model": {"style": "rule", "ground_truth": {"target": ["Ada", "A. L."]}},
            },
            "Who?",
            ("Ada", "A. L."),
        ),
        ({"prompt": [{"role": "user", "content": "Who?"}], "reward_spec": {"ground_truth": "Ada"}}, "Who?", ("Ada",)),
        (
            {
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": "s"}]},
                    {"role": "user", "content": [{"type": "text", "text": "Who?"}, {"type": "text", "text": "When?"}]},
                ],
                "answer": "Ada",
            },
            "Who?\nWhen?",
            ("Ada",),
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}], "answer": "Ada"},
            "Who?",
            ("Ada",),
        ),
        ({"prompt": [{"role": "user", "content": ["Who?"]}], "answer": "Ada"}, "Who?", ("Ada",)),
        ({"question": "Wie?", "answer": "Größe ≈ 3"}, "Wie?", ("Größe ≈ 3",)),
        ({"question": "How much?", "answer": 3.0}, "How much?", ("3",)),
    ],
)
def test_the_shapes_that_files_have(
    tmp_path: Path, kind: str, record: dict[str, Any], question: str, answers: tuple[str, ...]
) -> None:
    columns = {"prompt": "messages"} if "messages" in record else {}
    (row,) = read_dataset(written(tmp_path, kind, [record]), columns)
    assert row == Row(prompt=0, question=question, answers=answers)


def test_columns_are_mapped_and_the_order_is_the_files(tmp_path: Path) -> None:
    rows = [{"q": f"q{n}", "gold": str(n), "meta": {"hops": n}} for n in range(3_000)]
    read = read_dataset(
        written(tmp_path, "parquet", rows), {"prompt": "q", "answer": "gold", "extra": "meta"}, most=2_500
    )
    assert [row.prompt for row in read] == list(range(2_500))
    assert (read[-1].question, read[-1].answers, read[-1].extra) == ("q2499", ("2499",), {"hops": 2499})


def test_extra_may_be_json_text_or_anything(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": "b", "x": value} for value in ('{"k": [1]}', "plain", None, [1, 2])]
    read = read_dataset(written(tmp_path, "jsonl", rows), {"extra": "x"})
    assert [row.extra for row in read] == [{"k": [1]}, {"extra": "plain"}, {}, {"extra": [1, 2]}]


def test_answers_are_needed_only_where_they_are_judged_by(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl", [{"question": "Who?"}])
    assert read_dataset(path, {}, answers=False)[0].answers == ()
    with pytest.raises(SpecError, match=r"no answer among its columns question; --columns answer="):
        read_dataset(path, {})


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"question": "a", "answer": "b"}, {"question": None, "answer": "b"}], r"row 2, column question: .*None"),
        ([{"question": "a", "answer": "b"}, {"question": "c", "answer": None}], r"row 2, column answer: .*None"),
        ([{"question": "a", "answer": ["x", ""]}], r"row 1, column answer: .*list"),
        ([{"question": "  ", "answer": "b"}], r"row 1, column question"),
        ([{"prompt": [{"role": "system", "content": "s"}], "answer": "b"}], r"row 1, column prompt \(a chat"),
        (
            [
                {"prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "answer": "b"},
                {
                    "prompt": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "text", "text": "a"},
                                {"type": "image_url", "image_url": {"url": "u"}},
                            ],
                        }
                    ],
                    "answer": "b",
                },
            ],
            r"row 2, column prompt \(a chat: .*\), part 2 of 2: allowed is a text, found type 'image_url'",
        ),
        (
            [{"prompt": [{"role": "user", "content": [{"type": "text", "text": None}]}], "answer": "b"}],
            r"row 1, column prompt \(a chat: .*\), part 1 of 1: allowed is a text, found \{",
        ),
        (
            [{"prompt": [{"role": "user", "content": [{"type": "text", "text": " "}]}], "answer": "b"}],
            r"row 1, column prompt \(a chat: .*\): allowed is a text or a chat with a user's message, found ' '",
        ),
        ([{"text": "a", "answer": "b"}], r"no question among its columns text, answer; --columns prompt="),
        ([{"question": "a", "answer": True}], r"row 1, column answer: .*True"),
    ],
)
def test_what_does_not_fit_is_named_by_row_and_column(
    tmp_path: Path, kind: str, rows: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        read_dataset(written(tmp_path, kind, rows), {})


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_dataset(tmp_path / "gone.jsonl", {})
    (tmp_path / "junk.parquet").write_bytes(b"PAR1junk")
    with pytest.raises(SpecError, match="not a Parquet file"):
        read_dataset(tmp_path / "junk.parquet", {})
    (tmp_path / "cut.jsonl").write_text('{"question": "a", "answer": "b"}\n\n{"question": \n')
    with pytest.raises(SpecError, match=r"row 2 \(line 3\): not JSON"):
        read_dataset(tmp_path / "cut.jsonl", {})
    (tmp_path / "list.jsonl").write_text("[1]\n")
    with pytest.raises(SpecError, match=r"row 1 \(line 1\): allowed is an object, found \[1\]"):
        read_dataset(tmp_path / "list.jsonl", {})
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(SpecError, match="no rows"):
        read_dataset(tmp_path / "empty.jsonl", {})
    path = written(tmp_path, "jsonl", [{"question": "a", "answer": "b"}])
    with pytest.raises(SpecError, match=r"columns\.prompt = 'q': .* has no such column; it has question, answer"):
        read_dataset(path, {"prompt": "q"})
    pq.write_table(
        pa.table({"question": ["a"], "answer": ["b"], "x": [{"at": datetime.datetime(2026, 1, 1)}]}),
        tmp_path / "dated.parquet",
    )
    with pytest.raises(SpecError, match="row 1, column x: cannot be written as JSON"):
        read_dataset(tmp_path / "dated.parquet", {"extra": "x"})


@pytest.mark.parametrize("value", [datetime.datetime(2026, 1, 1), b"\x00\xff", [datetime.date(2026, 1, 1)]])
def test_extra_that_json_does_not_know_is_named(tmp_path: Path, value: object) -> None:
    path = written(tmp_path, "parquet", [{"question": "a", "answer": "b", "x": value}])
    with pytest.raises(SpecError, match="row 1, column x: cannot be written as JSON"):
        read_dataset(path, {"extra": "x"})


@pytest.mark.parametrize("column", ["question", "answer", "x"])
def test_half_a_surrogate_pair_is_named(tmp_path: Path, column: str) -> None:
    row = {"question": "a", "answer": "b", "x": {"k": "c"}}
    row[column] = {"k": "\ud800"} if column == "x" else "bad \ud800 sur"
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(row))  # as an escape: the file itself is good UTF-8
    with pytest.raises(SpecError, match=rf"row 1, column {column}: not a text that UTF-8 can hold"):
        write_rows(read_dataset(path, {"extra": "x"}), tmp_path / "rows.jsonl")


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        Row(prompt=0, question="Wo\u2028?", answers=("a", "b"), hops=2, start_url="http://a.test/", extra={"x": [1]}),
        Row(prompt=1, question="plain"),
    ]
    digest = write_rows(rows, tmp_path / "rows.jsonl")
    assert read_rows(tmp_path / "rows.jsonl") == rows
    assert write_rows(rows[:1], tmp_path / "other.jsonl") != digest
    (tmp_path / "rows.jsonl").write_text('{"prompt": 0}\n')
    with pytest.raises(SpecError, match=r"rows\.jsonl:1: not a row"):
        read_rows(tmp_path / "rows.jsonl")


def test_a_request_reads_its_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl", [{"question": "a", "answer": "b"}, {"question": None, "answer": "b"}])
    asked = {"framework": "simulated", "placement": "async", "dataset": str(path)}
    with pytest.raises(SpecError, match="row 2, column question"):
        resolve(asked, dry_run=True)
    path.write_text('{"question": "a", "answer": "b"}\n')
    assert resolve(asked, dry_run=True).spec.dataset == str(path)
