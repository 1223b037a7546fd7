"""Tables written by parts: however their texts come, the file is the same, whole, and says what its readers ask."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.protocol.errors import SpecError
from results.rows import Rows
from results.schema import SAMPLES, TABLES
from results.store import read_table, write_table
from results.table_writing import TableWriter
from results.texts import encoded, texts_as

TEXTS = ("host", "gpu")
ENCODED = encoded(SAMPLES)


def samples(hosts: Sequence[str | None], gpus: Sequence[str | None], **readings: Sequence[float | None]) -> pa.Table:
    given = {"host": hosts, "gpu": gpus, "mono_ns": range(len(hosts)), **readings}
    columns = [pa.array(given.get(field.name, [None] * len(hosts)), field.type) for field in SAMPLES]
    return pa.Table.from_arrays(columns, schema=SAMPLES)


def write(path: Path, parts: Sequence[pa.Table], texts: Sequence[str] = ()) -> bytes:
    with TableWriter(path, "samples", "run", texts) as writer:
        for part in parts:
            writer.write(part)
    return path.read_bytes()


PARTS = [
    samples(["a", "a", "b"], ["G-1", None, "G-2"], power_instant_watts=[1.0, None, 2.5]),
    samples(["b", "c"], ["G-2", "G-3"], util_ratio=[0.5, 0.25]),
]


def test_encoded_texts_give_the_bytes_of_plain_ones(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.parquet", PARTS)
    assert write(tmp_path / "codes.parquet", [texts_as(part, ENCODED) for part in PARTS], TEXTS) == plain
    # Plain ones may come among them.
    assert write(tmp_path / "mixed.parquet", [texts_as(PARTS[0], ENCODED), PARTS[1]], TEXTS) == plain
    found = read_table(tmp_path / "codes.parquet", "samples").replace_schema_metadata(None)
    assert found.equals(pa.concat_tables(PARTS))
    assert pq.read_schema(tmp_path / "codes.parquet").field("mono_ns").metadata[b"unit"] == b"ns"


def test_a_part_whose_chunks_have_different_codes_is_written_right(tmp_path: Path) -> None:
    chunks = pa.concat_tables([texts_as(part, ENCODED) for part in PARTS])
    write(tmp_path / "x.parquet", [chunks], TEXTS)
    assert read_table(tmp_path / "x.parquet", "samples").replace_schema_metadata(None).equals(pa.concat_tables(PARTS))


@pytest.mark.parametrize("texts", [(), TEXTS])
def test_rows_that_do_not_fit_are_refused_and_leave_nothing(tmp_path: Path, texts: Sequence[str]) -> None:
    odd = [
        (samples(["a", None], ["G", "G"]), "column host has 1 nulls"),
        (PARTS[0].drop_columns(["gpu"]), r"columns missing \['gpu'\]"),
        (PARTS[0].append_column("x", pa.array([1, 2, 3])), r"unknown \['x'\]"),
        (PARTS[0].set_column(1, "gpu", pa.array([1, 2, 3])), "column gpu has type int64"),
    ]
    for table, why in odd:
        given = texts_as(table, ENCODED) if texts else table
        with pytest.raises(SpecError, match=why):
            write(tmp_path / "x.parquet", [texts_as(PARTS[0], ENCODED) if texts else PARTS[0], given], texts)
        assert list(tmp_path.iterdir()) == []


def test_a_table_of_which_nothing_came_has_its_columns(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", [], TEXTS)
    assert read_table(tmp_path / "x.parquet", "samples").schema.equals(SAMPLES)


def test_the_file_says_which_columns_have_no_value_and_when_its_rows_are(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", PARTS, TEXTS)
    group = pq.read_metadata(tmp_path / "x.parquet").row_group(0)
    told = {group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)}
    assert (told["mono_ns"].min, told["mono_ns"].max) == (0, 2)
    assert told["gpu"].null_count == 1
    without = {name for name in SAMPLES.names if PARTS[0].column(name).null_count == 3}
    assert {name: told[name].null_count for name in without} == dict.fromkeys(without, 3)
    assert len(without) > 20


def test_rows_keep_texts_encoded_and_say_the_same() -> None:
    plain, few = Rows("spans"), Rows("spans", texts=("host", "role", "phase", "attributes_json"))
    for rows in (plain, few):
        for number in range(5):
            where = (f"h{number % 2}", 1, None, "train" if number % 2 else None, "x")
            rows.add(*where, None, None, None, None, None, False, 9 - number, 10, None, "{}")
    assert few.schema.field("phase").type == pa.dictionary(pa.int32(), pa.string())
    assert texts_as(few.table("start_ns"), TABLES["spans"]).equals(plain.table("start_ns"))


def test_a_table_with_encoded_texts_is_written_as_any_other(tmp_path: Path) -> None:
    row = dict.fromkeys(TABLES["spans"].names) | {"host": "h", "pid": 1, "native_name": "n", "container": False}
    row |= {"start_ns": 1, "end_ns": 2, "attributes_json": "{}"}
    table = pa.Table.from_pylist([row] * 3, schema=TABLES["spans"])
    write_table(tmp_path / "plain.parquet", "spans", table, "r")
    write_table(tmp_path / "codes.parquet", "spans", texts_as(table, encoded(TABLES["spans"], ("host", "phase"))), "r")
    assert (tmp_path / "plain.parquet").read_bytes() == (tmp_path / "codes.parquet").read_bytes()
