"""Segments read by pieces give what pyarrow gives, batch by batch, whatever the batches hold."""

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.telemetry.segment import SCHEMA, Segment
from results import segments
from results.schema import SAMPLES
from results.segments import CutError, fit, pieces, whole

TEXTS = ["h", "node-0", "GPU-00000000-0000-4000-8000-000000000001", "GPU-00000000-0000-4000-8000-000000000002", "ü", ""]


def by_pyarrow(path: Path) -> pa.Table:
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return pa.Table.from_batches([fit(batch) for batch in stream], schema=SAMPLES)


def write(path: Path, *batches: pa.RecordBatch) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


ROW = st.fixed_dictionaries(
    {"host": st.sampled_from(TEXTS), "mono_ns": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "gpu": st.none() | st.sampled_from(TEXTS),
        "power_instant_watts": st.none() | st.floats(allow_nan=False),
        "memory_used_bytes": st.none() | st.integers(0, 2**62),
        "util_ratio": st.just(0.5),
    },
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=st.lists(st.lists(ROW, max_size=20), min_size=1, max_size=9), piece_bytes=st.sampled_from([5000, 2**20]))
def test_what_the_sampler_wrote_is_read_as_pyarrow_reads_it(tmp_path, batches, piece_bytes):
    path = tmp_path / "x.arrows"
    path.unlink(missing_ok=True)
    segment = Segment(path)
    for rows in batches:
        for row in rows:
            segment.append(row)
        segment.flush()
    segment.close()
    found = whole(pieces(path, piece_bytes))
    assert found.combine_chunks().equals(by_pyarrow(path).combine_chunks())


def large(tmp_path: Path, batches: int = 40) -> Path:
    path, rng = tmp_path / "x.arrows", random.Random(1)
    segment = Segment(path)
    for batch in range(batches):
        for row in range(rng.randint(1, 60)):
            known = {"power_instant_watts": rng.random(), "energy_joules": None if row % 7 == 3 else rng.random()}
            segment.append({"host": "node-0", "gpu": rng.choice(TEXTS), "mono_ns": batch * 100 + row, **known})
        segment.flush()
    segment.close()
    return path


def test_the_usual_batches_are_not_decoded_one_by_one(tmp_path, monkeypatch):
    path = large(tmp_path)
    expected = by_pyarrow(path)
    monkeypatch.setattr(
        segments, "_plain", lambda begin, part, rows: iter(()) if len(part) <= 8 else pytest.fail("slow")
    )
    found = whole(pieces(path))
    assert found.combine_chunks().equals(expected.combine_chunks())


@pytest.mark.parametrize("sizes", [[8] * 6, [5] * 6, [1], [3, 0, 9, 3, 17]])
@pytest.mark.parametrize("known", ["all", "some", "none", "of one message"])
def test_messages_of_equal_and_of_different_sizes_are_the_same_rows(tmp_path, sizes, known):
    path = tmp_path / "x.arrows"
    rows = iter(range(1000))
    batches = []
    for number, size in enumerate(sizes):
        there = {"all": True, "some": None, "none": False, "of one message": number == 0}[known]
        values = [row if there or (there is None and row % 3) else None for row in itertools.islice(rows, size)]
        columns = {
            "host": pa.array(["node-0"] * size, pa.string()),
            "gpu": pa.array([None if value is None else f"GPU-{value % 3}" for value in values], pa.string()),
            "mono_ns": pa.array(range(number * 100, number * 100 + size), pa.int64()),
            "memory_used_bytes": pa.array(values, pa.int64()),
            "energy_joules": pa.array(values, pa.float64()),
            "util_ratio": pa.nulls(size, pa.float64()),
        }
        batches.append(pa.record_batch(columns))
    write(path, *batches)
    assert whole(pieces(path)).combine_chunks().equals(by_pyarrow(path).combine_chunks())


def test_texts_come_encoded_one_that_is_in_all_rows_once(tmp_path):
    path = tmp_path / "x.arrows"
    gpus = ["GPU-1", "GPU-2", None, "GPU-1"]
    write(path, *[pa.record_batch({"host": ["nöde"] * 4, "mono_ns": [1, 2, 3, 4], "gpu": gpus})] * 3)
    (table,) = pieces(path)
    host, gpu = (table.column(name).chunk(0) for name in ("host", "gpu"))
    assert host.dictionary.to_pylist() == ["nöde"]
    assert sorted(gpu.dictionary.to_pylist()) == ["GPU-1", "GPU-2"]
    assert gpu.to_pylist() == gpus * 3


@pytest.mark.parametrize("letters", [b"aaaaabaaa", b"aaabbbaaa", b"aabaabaab", b"\xff\xfe\xfdaaaaaa", b"\xff" * 9])
def test_texts_that_are_nearly_one_and_texts_that_are_none(tmp_path, letters):
    """Three texts of three letters each, of which the last pair of cases is no UTF-8 at all."""
    path = tmp_path / "x.arrows"
    offsets = pa.array([0, 3, 6, 9], pa.int32()).buffers()[1]
    host = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(letters)])
    mono = pa.array([1, 2, 3], pa.int64())
    write(path, *[pa.record_batch([host, mono], names=["host", "mono_ns"])] * 2)
    if b"\xff" in letters:
        with pytest.raises(CutError, match="after 0 samples"):
            list(pieces(path))
    else:
        assert whole(pieces(path)).column("host").to_pylist() == [letters[at : at + 3].decode() for at in (0, 3, 6)] * 2


def test_other_layouts_are_left_to_pyarrow(tmp_path):
    path = tmp_path / "x.arrows"
    plain = pa.record_batch({"host": ["a", "b"], "mono_ns": [1, 2], "util_ratio": [0.5, None]})
    narrow = plain.set_column(2, "util_ratio", pa.array([0.5, None], pa.float32()))
    for batch in (plain, narrow, plain.slice(1), plain.slice(0, 0)):
        write(path, batch, batch)
        assert whole(pieces(path)).combine_chunks().equals(by_pyarrow(path).combine_chunks())
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, plain.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream,
    ):
        stream.write_batch(plain)
    assert whole(pieces(path)).combine_chunks().equals(by_pyarrow(path).combine_chunks())


def test_any_damaged_byte_is_an_error_or_read_as_pyarrow_reads_it(tmp_path):
    path = large(tmp_path, batches=4)
    content = path.read_bytes()
    rng = random.Random(2)
    damaged = 0
    for _ in range(400):
        place = rng.randrange(len(content))
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :])
        tables: list[pa.Table] = []
        try:
            for table in pieces(path, 20_000):
                table.validate(full=True)
                tables.append(table)
        except CutError:
            damaged += 1
        found = whole(tables)
        before: list[pa.RecordBatch] = []
        try:
            with pa.ipc.open_stream(path.read_bytes()) as stream:
                for batch in stream:
                    batch.validate(full=True)
                    before.append(fit(batch))
        except (pa.ArrowException, OSError, ValueError):
            pass
        expected = pa.Table.from_batches(before, schema=SAMPLES)
        assert found.combine_chunks().to_pylist() == expected.combine_chunks().to_pylist(), place
    assert damaged > 5


def test_the_columns_are_those_of_the_sampler():
    assert SCHEMA.names == SAMPLES.names
