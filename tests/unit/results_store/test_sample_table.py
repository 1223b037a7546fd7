"""Samples that are merged as they are read are those of one sorted table, late ones included."""

import random

import pytest

from harness.telemetry.segment import Segment
from results import sample_table
from results.clocks import Clocks
from results.sample_table import write_samples
from results.samples import read_samples
from results.store import read_table


@pytest.mark.parametrize("slack_ns", [0, 50, 10**6])
@pytest.mark.parametrize("group", [7, 2**17])
def test_however_late_a_row_comes_it_lies_in_its_place(tmp_path, monkeypatch, slack_ns, group):
    rng = random.Random(slack_ns + group)
    monkeypatch.setattr(sample_table, "SLACK_NS", slack_ns)
    monkeypatch.setattr(sample_table, "ROWS_PER_GROUP", group)
    monkeypatch.setattr(sample_table, "PIECES_BYTES", 1)
    monkeypatch.setattr(sample_table, "LEAST_BYTES", 9000)
    folder = tmp_path / "samples"
    folder.mkdir()
    for number in range(3):
        segment = Segment(folder / f"h{number}-1-1.arrows")
        for batch in range(20):
            for row in range(rng.randint(0, 9)):
                at = batch * 100 + row * 10 - (rng.randint(0, 1500) if rng.random() < 0.05 else 0)
                known = {"util_ratio": rng.random()} if row % 2 else {"energy_joules": rng.random()}
                segment.append({"host": f"h{number}", "gpu": f"GPU-{row % 3}", "mono_ns": at, **known})
            segment.flush()
        segment.close()
    expected = read_samples(folder)
    made = write_samples(folder, tmp_path / "samples.parquet", "run", Clocks())
    found = read_table(tmp_path / "samples.parquet", "samples").replace_schema_metadata(None)
    assert made.rows == found.num_rows == expected.num_rows
    assert found["mono_ns"].to_pylist() == expected["mono_ns"].to_pylist()
    assert sorted(found.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
    for host, (first, last, count) in made.by_host.items():
        times = [row["mono_ns"] for row in expected.to_pylist() if row["host"] == host]
        assert (first, last, count) == (min(times), max(times), len(times))


def test_no_segments_make_an_empty_table(tmp_path):
    (tmp_path / "samples").mkdir()
    made = write_samples(tmp_path / "samples", tmp_path / "samples.parquet", "run", Clocks())
    assert (made.rows, made.by_host, made.problems) == (0, {}, ())
    assert read_table(tmp_path / "samples.parquet", "samples").num_rows == 0
