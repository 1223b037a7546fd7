"""Metadata of a run's Parquet files that say what can't be meant: an error in one line, or measures made anew."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from small_runs import follow, hello, make_run, make_spec, plan_of

from harness.cli import call
from harness.protocol.errors import SpecError
from results.comparing.kept import KEPT, measures_of, read_measures
from results.opening import open_runs
from results.schema import RUN_KEY, TABLE_KEY, VERSION_KEY
from results.store import load_run, table_path

GONE = object()
ODD = ["x", ["x"], {"a": 1}, None, True, -1, 1e308, GONE]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "run", [hello(), *follow(plan_of(make_spec(), 0, 0), 2_000)])
    assert call(["collect", str(folder)]) == 0
    (folder / "sealed").touch()
    return folder


def rewrite(path: Path, key: bytes, value: bytes) -> None:
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, key: value}), path)


@pytest.mark.parametrize("said", [b"\xff", b"", b"x", b"-1", "²".encode(), b"9" * 5000])
def test_of_a_table(run: Path, said: bytes) -> None:
    for name in ("runs", "spans"):
        path = table_path(run, name)
        before = path.read_bytes()
        for key in (TABLE_KEY, VERSION_KEY):
            rewrite(path, key, said)
            with pytest.raises(SpecError, match=f"{name}.parquet: table"):
                load_run(run)
            assert call(["report", str(run), "-o", str(run / "out")]) == 2
            path.write_bytes(before)
        rewrite(path, RUN_KEY, said)
        assert load_run(run).tables[name].num_rows
        assert len(open_runs(run).folders) == 1
        path.write_bytes(before)


def changed(facts: Any) -> Iterator[object]:
    """What a file of measures says, with each value in turn replaced or left out."""
    yield from (odd for odd in ODD if odd is not GONE)
    for within in (facts, facts["runs"][0]):
        for key, value in list(within.items()):
            for odd in ODD:
                within[key] = odd
                if odd is GONE:
                    del within[key]
                yield facts
            within[key] = value


def test_of_kept_measures(run: Path) -> None:
    path = run / KEPT
    table = pq.read_table(path)
    (key,) = (key for key in table.schema.metadata if key == b"bench.measures")
    texts = [json.dumps(facts).encode() for facts in changed(json.loads(table.schema.metadata[key]))]
    refused = []
    for text in (*texts, b"{", b"\xff", b"[" * 100_000):
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, key: text}), path)
        try:
            read_measures(path)
        except SpecError as error:
            refused.append(str(error))
    assert len(refused) > len(texts) / 2
    assert not any("\n" in said for said in refused)
    assert measures_of(run).run_id == "run-1"  # made anew from the tables
    assert read_measures(path)[0].run_id == "run-1"
