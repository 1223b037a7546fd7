"""The Perfetto trace of a run, read back by Perfetto's own trace processor: SQL there says what our tables say."""

import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from trace_processing import TraceProcessor

from harness.cli import call
from reports.exporting.perfetto import export_perfetto
from reports.exporting.perfetto_file import Slice, TraceFile, lanes
from reports.exporting.source import wall_minus_mono_ns
from results.schema import TABLES
from results.store import RunTables, load_run


class Trace:
    """A run, and its trace as the trace processor has it."""

    def __init__(self, folder: Path, out: Path, *flags: str) -> None:
        assert call(["export", str(folder), "--to", "perfetto", "-o", str(out), *flags]) == 0
        self.run: RunTables = load_run(folder)
        self.bytes = out.read_bytes()
        self.processor = TraceProcessor(out)

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self.processor.rows(text)

    def one(self, text: str) -> Any:
        (row,) = self.sql(text)
        (value,) = row.values()
        return value


@pytest.fixture(scope="module", params=["async_run", "gpu_run", "colocated_run"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    folder: Path = request.getfixturevalue(request.param)
    trace = Trace(folder, tmp_path_factory.mktemp("trace") / "run.perfetto-trace")
    yield trace
    trace.processor.close()


def _durations(frame: pd.DataFrame) -> pd.Series:
    return frame["end_ns"] - frame["start_ns"]


def test_nothing_is_lost_or_wrong_while_it_is_read(trace: Trace) -> None:
    assert trace.sql("SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0") == []


def test_seconds_and_number_of_spans_per_phase(trace: Trace) -> None:
    spans = trace.run.frame("spans")
    spans["category"] = spans["phase"].where(~spans["container"] & spans["phase"].notna(), "container")
    spans["ns"] = _durations(spans)
    wanted = {name: (len(rows), int(rows["ns"].sum())) for name, rows in spans.groupby("category")}
    assert {"train", "generation", "tool", "weight_sync"} <= set(wanted)
    ours = "('run', 'step', 'trajectory', 'weights', 'admission', 'failure', 'open')"
    found = trace.sql(
        f"SELECT category, count(*) AS n, sum(dur) AS ns FROM slice WHERE category NOT IN {ours} GROUP BY category"
    )
    assert {row["category"]: (row["n"], row["ns"]) for row in found} == wanted


def test_every_instant_is_the_tables_own(trace: Trace) -> None:
    """Not only sums: the begin and end of each step and each trajectory, to the nanosecond."""
    steps = trace.run.frame("steps")
    found = trace.sql("SELECT name, ts, ts + dur AS ended FROM slice WHERE category = 'step' ORDER BY ts")
    assert [(row["name"], row["ts"], row["ended"]) for row in found] == [
        (f"step {step}", start, end)
        for step, start, end in steps[["step", "start_ns", "end_ns"]].itertuples(index=False)
    ]
    lives = trace.run.frame("trajectories")
    lives = lives[lives["end_ns"].notna()]
    found = trace.sql("SELECT name, ts, ts + dur AS ended FROM slice WHERE category = 'trajectory' AND dur >= 0")
    assert sorted((row["name"], row["ts"], row["ended"]) for row in found) == sorted(
        lives[["trajectory_id", "start_ns", "end_ns"]].itertuples(index=False, name=None)
    )


def test_turns_and_tool_calls_lie_inside_their_trajectory(trace: Trace) -> None:
    """The parent slice of each is its trajectory, and arguments are those of the tables."""
    found = trace.sql(
        """SELECT parent.name AS trajectory, s.dur, extract_arg(s.arg_set_id, 'debug.tool') AS tool,
           extract_arg(s.arg_set_id, 'debug.planned_ns') AS planned, extract_arg(s.arg_set_id, 'debug.status') AS status
           FROM slice s JOIN slice parent ON parent.id = s.parent_id
           WHERE s.category = 'tool' AND parent.category = 'trajectory'"""
    )
    calls = trace.run.frame("tool_calls")
    lives = set(trace.run.frame("trajectories")["trajectory_id"])
    assert len(calls) > 20
    assert set(calls["trajectory_id"]) <= lives

    def key(row: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(str(value) for value in row)

    wanted = zip(
        calls["trajectory_id"], _durations(calls), calls["tool"], calls["planned_ns"], calls["status"], strict=True
    )
    assert sorted((tuple(row.values()) for row in found), key=key) == sorted(wanted, key=key)
    turns = trace.one(
        """SELECT count(*) AS n FROM slice s JOIN slice parent ON parent.id = s.parent_id
           WHERE s.category = 'generation' AND parent.category = 'trajectory'"""
    )
    assert turns == len(trace.run.frame("turns"))
    tokens = trace.one("SELECT sum(extract_arg(arg_set_id, 'debug.generated_tokens')) FROM slice WHERE name = 'turn'")
    assert tokens == trace.run.frame("turns")["generated_tokens"].sum()


def test_a_track_per_trajectory(trace: Trace) -> None:
    lives = trace.run.frame("trajectories")
    named = trace.sql(
        "SELECT t.name, count(DISTINCT t.id) AS n FROM slice s JOIN track t ON t.id = s.track_id"
        " WHERE s.category = 'trajectory' GROUP BY t.name"
    )
    assert {row["name"]: row["n"] for row in named} == dict.fromkeys(lives["trajectory_id"], 1)


def test_running_turns_are_counted_per_engine(trace: Trace) -> None:
    """The counter's integral is the sum of the turns' durations."""
    turns = trace.run.frame("turns")
    turns["engine"] = turns["engine"].fillna("engine not told")
    wanted = {engine: int(_durations(rows).sum()) for engine, rows in turns.groupby("engine")}
    found = trace.sql(
        """SELECT parent.name AS engine, sum(held) AS ns, min(value) AS low FROM (
               SELECT track_id, value, value * (lead(ts) OVER (PARTITION BY track_id ORDER BY ts) - ts) AS held
               FROM counter)
           JOIN track t ON t.id = track_id JOIN track parent ON parent.id = t.parent_id
           WHERE t.name = 'turns open' GROUP BY parent.name"""
    )
    assert {row["engine"]: int(row["ns"]) for row in found} == wanted
    assert all(row["low"] == 0 for row in found)


def test_counters_have_the_samples_their_units_and_means(trace: Trace) -> None:
    samples = trace.run.frame("samples")
    assert len(samples) or trace.run.spec.framework == "simulated"  # which may play faster than a sampler reads
    rows = trace.sql(
        "SELECT t.name, t.unit, count(*) AS n, avg(c.value) AS mean"
        " FROM counter c JOIN counter_track t ON t.id = c.track_id GROUP BY t.name, t.unit"
    )
    found = {row["name"]: row for row in rows}
    units = {field.name: field.metadata[b"unit"].decode() for field in trace.run.tables["samples"].schema}
    known = [
        name for name in samples.columns if pd.api.types.is_numeric_dtype(samples[name]) and samples[name].notna().any()
    ]
    for name in set(known) - {"mono_ns", "uncertainty_ns", "throttle_reasons"}:
        assert found[name]["n"] == samples[name].notna().sum()
        assert found[name]["mean"] == pytest.approx(samples[name].dropna().astype(float).mean(), rel=1e-9)
        assert found[name]["unit"] == units[name]
    unknown = [name for name in units if name not in known and name in found]
    assert unknown == []  # nobody's 0


def test_mean_power_of_each_gpu(gpu_run: Path, tmp_path: Path) -> None:
    trace = Trace(gpu_run, tmp_path / "t")
    samples = trace.run.frame("samples")
    wanted = samples[samples["gpu"].notna()].groupby("gpu")["power_instant_watts"].mean()
    found = trace.sql(
        """SELECT parent.name AS gpu, avg(c.value) AS watts FROM counter c JOIN track t ON t.id = c.track_id
           JOIN track parent ON parent.id = t.parent_id WHERE t.name = 'power_instant_watts' GROUP BY parent.name"""
    )
    trace.processor.close()
    assert {row["gpu"]: pytest.approx(row["watts"]) for row in found} == {
        "GPU-0000 (train)": wanted["GPU-0000"],
        "GPU-0001 (rollout)": wanted["GPU-0001"],
    }


def test_the_questions_of_the_page_are_answered(gpu_run: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "exports.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL)
    questions = [one for one in text.split(";") if one.strip()]
    assert len(questions) == 2
    trace = Trace(gpu_run, tmp_path / "t")
    assert all(trace.sql(question) for question in questions)
    trace.processor.close()


def test_syncs_are_tied_to_the_step_that_made_the_version(trace: Trace) -> None:
    syncs = trace.run.frame("weight_syncs")
    versions = set(trace.run.frame("steps")["policy_version"])
    wanted = sorted(int(version) for version in syncs["version"] if version in versions)
    assert wanted
    found = trace.sql(
        """SELECT extract_arg(o.arg_set_id, 'debug.policy_version') AS made,
                  extract_arg(i.arg_set_id, 'debug.version') AS brought, i.category AS kind
           FROM flow f JOIN slice o ON o.id = f.slice_out JOIN slice i ON i.id = f.slice_in"""
    )
    assert all(row["made"] == row["brought"] and row["kind"] == "weight_sync" for row in found)
    assert sorted(row["made"] for row in found) == wanted
    shown = trace.sql("SELECT ts, name FROM slice WHERE category = 'weights'")
    assert sorted((row["ts"], row["name"]) for row in shown) == sorted(
        (end, f"version {version} visible") for end, version in zip(syncs["end_ns"], syncs["version"], strict=True)
    )


def test_one_clock_that_knows_wall_time(trace: Trace) -> None:
    start = int(trace.run.frame("steps")["start_ns"].iloc[0])
    offset = wall_minus_mono_ns(trace.run)
    assert offset is not None
    assert trace.one(f"SELECT to_realtime({start}) AS wall") == start + offset


def test_processes_are_pools_engines_machines_and_trajectories(trace: Trace) -> None:
    names = {row["name"] for row in trace.sql("SELECT name FROM process WHERE name IS NOT NULL")}
    spans = trace.run.frame("spans")
    trained = spans[spans["phase"] == "train"]
    pools = {f"{pool} pool on {host}" for pool, host in zip(trained["pool"], trained["host"], strict=True)}
    machines = {f"GPUs and host {host}" for host in trace.run.frame("samples")["host"].unique()}
    assert pools
    assert pools | machines | {"engines", "trajectories", f"run {trace.run.run_id}"} <= names
    where = trace.sql(
        """SELECT p.name, s.category FROM slice s JOIN process_track t ON t.id = s.track_id JOIN process p USING (upid)
           WHERE s.category IN ('train', 'trajectory', 'step')"""
    )
    found = {(row["category"], row["name"]) for row in where}
    own = {("trajectory", "trajectories"), ("step", f"run {trace.run.run_id}")}
    assert found == {("train", pool) for pool in pools} | own


def test_what_was_asked_is_only_there_on_demand(async_run: Path, tmp_path: Path) -> None:
    plain, whole = Trace(async_run, tmp_path / "plain"), Trace(async_run, tmp_path / "whole", "--content")
    asked = [text for text in plain.run.frame("tool_calls")["argument"].dropna().unique() if len(text) > 8]
    assert asked
    assert not any(text.encode() in plain.bytes for text in asked)
    assert all(text.encode() in whole.bytes for text in asked)
    for trace in (plain, whole):
        trace.processor.close()


def test_a_run_that_was_cut_shows_what_never_ended(cut_run: Path, tmp_path: Path) -> None:
    trace = Trace(cut_run, tmp_path / "t")
    lives = trace.run.frame("trajectories")
    open_ = set(lives.loc[lives["end_ns"].isna(), "trajectory_id"])
    assert open_
    found = trace.sql("SELECT name FROM slice WHERE category = 'trajectory' AND dur = -1")
    unfinished = trace.sql("SELECT name, ts FROM slice WHERE category = 'open' AND dur = -1 ORDER BY ts, name")
    errors = trace.sql("SELECT name FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0")
    trace.processor.close()
    assert {row["name"] for row in found} == open_
    opens = trace.run.frame("opens")
    opens = opens[opens["phase"].notna() | opens["trajectory_id"].isna()]
    assert len(opens)
    assert sorted((row["name"], row["ts"]) for row in unfinished) == sorted(
        opens[["native_name", "start_ns"]].itertuples(index=False, name=None)
    )
    assert errors == []


def test_lanes_keep_every_slice_and_nest() -> None:
    """Random slices, of no length too: no lane holds two that cross."""
    draw = random.Random(3)
    for _ in range(200):
        count = draw.randrange(12)
        slices = []
        for n in range(count):
            start = draw.randrange(10)
            slices.append(Slice(start, draw.choice([None, start, start + draw.randrange(6)]), str(n), "x"))
        found = lanes(slices)
        assert sorted(one.name for lane in found for one in lane) == sorted(one.name for one in slices)
        for lane in found:
            for n, one in enumerate(lane):
                for other in lane[:n]:
                    end, other_end = (99 if it.end is None else it.end for it in (one, other))
                    assert other_end <= one.start or (other.start <= one.start and end <= other_end)


def test_the_same_run_gives_the_same_bytes(async_run: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert call(["export", str(async_run), "--to", "perfetto", "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("target", ["perfeto", "perfetto=x", "otlp=", "", "mlperf=http://127.0.0.1"])
def test_unknown_targets_are_refused(async_run: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["export", str(async_run), "--to", target]) == 2
    assert "allowed is perfetto, otlp" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(async_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["export", str(async_run), "--to", "perfetto", "-o", str(tmp_path / "new" / "folder" / "x")]) == 0
    assert (tmp_path / "new" / "folder" / "x").stat().st_size > 1000
    (tmp_path / "file").touch()
    assert call(["export", str(async_run), "--to", "perfetto", "-o", str(tmp_path / "file" / "x")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert json.loads((async_run / "meta.json").read_text())["status"] == "finished"


def test_counters_are_written_as_protobuf_writes_them() -> None:
    """Times of every length and values of every kind, read back by protobuf."""
    draw = random.Random(5)
    times = [*range(300), *(1 << bits for bits in range(63)), *((1 << bits) - 1 for bits in range(1, 64))]
    times += [draw.randrange(1 << draw.randrange(1, 63)) for _ in range(70_000)]  # more than are made at once
    values = [draw.choice([0.0, -1.5, 1e300, 5e-324, draw.random(), float(2**53)]) for _ in times]
    file = io.BytesIO()
    TraceFile(file).values(77, np.array(times, dtype=np.int64), np.array(values))
    packets = PerfettoTrace.FromString(file.getvalue()).packet
    assert {(one.timestamp_clock_id, one.trusted_packet_sequence_id) for one in packets} == {(3, 1)}
    assert {(one.track_event.track_uuid, one.track_event.type) for one in packets} == {(77, 4)}
    found = sorted((one.timestamp, one.track_event.double_counter_value) for one in packets)
    assert found == sorted(zip(times, values, strict=True))


def test_engines_counters_and_a_second_host(async_run: Path, tmp_path: Path) -> None:
    """An engine that was scraped, a reading that is unknown, and spans that another host recorded."""
    run = load_run(async_run)
    engine = run.tables["turns"]["engine"].drop_null()[0].as_py()
    start = run.tables["turns"]["start_ns"][0].as_py()
    readings = [(start, 3.0), (start + 10, None), (start + 20, 5.0)]
    rows = [
        {"host": "a", "engine": engine, "mono_ns": at, "uncertainty_ns": 1, "family": "vllm", "running_requests": value}
        for at, value in readings
    ]
    spans = run.tables["spans"]
    elsewhere = pa.array(["other-host" if n % 2 else host for n, host in enumerate(spans["host"].to_pylist())])
    at = spans.schema.get_field_index("host")
    tables = dict(run.tables)
    tables["engine_samples"] = pa.Table.from_pylist(rows, schema=TABLES["engine_samples"])
    tables["spans"] = spans.set_column(at, spans.schema.field(at), elsewhere)
    export_perfetto(replace(run, tables=tables), tmp_path / "t")
    processor = TraceProcessor(tmp_path / "t")
    found = processor.rows(
        f"""SELECT c.ts, c.value FROM counter c JOIN track t ON t.id = c.track_id JOIN track e ON e.id = t.parent_id
            WHERE t.name = 'running_requests' AND e.name = '{engine}' ORDER BY c.ts"""
    )
    names = {row["name"] for row in processor.rows("SELECT name FROM process WHERE name IS NOT NULL")}
    total = processor.rows(
        "SELECT count(*) AS n FROM slice WHERE category NOT IN ('run', 'step', 'trajectory', 'weights',"
        " 'admission', 'failure', 'open')"
    )
    processor.close()
    assert [(row["ts"], row["value"]) for row in found] == [(start, 3.0), (start + 20, 5.0)]
    assert "train pool on other-host" in names
    assert total == [{"n": spans.num_rows}]
