"""Lines that are read together give the rows, failures and counts of lines that are read one by one."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

from harness.protocol.events import Bye, Hello, Metric, Open, Span, Step, Trajectory, encode
from results import bulk, event_parts, recorded
from results.defects import Defects
from results.reading import EventFile
from results.recorded import Recorded
from results.schema import TABLES
from results.texts import texts_as

KEYS = list(recorded.SORT_KEYS)


def line(event: object) -> bytes:
    return encode(event).encode()  # type: ignore[arg-type]


def with_nulls(raw: bytes, **changes: object) -> bytes:
    """As the recorder writes a span: fields that are unknown are null; and changed as told."""
    fields = json.loads(raw)
    if not fields.get("attributes"):
        fields.pop("attributes", None)
    blank = {"pool": None, "unit": None, "step": None, "trajectory_id": None, "turn": None, "open_id": None}
    return (
        json.dumps({"k": fields.pop("k"), "phase": fields.pop("phase", None), **blank, **fields, **changes})
        .encode()
        .replace(b'": ', b'":')
        .replace(b', "', b',"')
    )


def made(rng: random.Random, count: int) -> list[bytes]:
    """Lines of a process, some of them odd in each way that the reading knows."""
    lines = [line(Hello(protocol=1, run_id="r", host="h", pid=7, role="rollout", wall_ns=5, mono_ns=5))]
    for number in range(count):
        name, at = f"p{number}-s0-a0", number * 100 + rng.randint(0, 250)
        lines.append(line(Open(id=number + 1, start_ns=at, phase=None, native_name="trajectory", trajectory_id=name)))
        turn = Span(
            phase="generation",
            native_name="turn",
            start_ns=at,
            end_ns=at + 50,
            container=False,
            trajectory_id=name,
            turn=0,
            attributes={"engine": "http://é", "submitted_ns": None, "prompt_tokens": number, "generated_tokens": 5},
        )
        tool = Span(
            phase="tool",
            native_name="tool",
            start_ns=at + 50,
            end_ns=at + 90,
            container=False,
            trajectory_id=name,
            turn=0,
            attributes={"tool": "search_engine", "call": 0, "planned_ns": 40, "status": "ok", "detail": None},
        )
        reward = Span(phase="reward", native_name="reward", start_ns=at + 90, end_ns=at + 91, trajectory_id=name)
        lines += [with_nulls(line(turn), container=False), with_nulls(line(tool), container=False)]
        lines.append(with_nulls(line(reward), container=False))
        if rng.random() < 0.8:
            closed = Trajectory(
                trajectory_id=name,
                group_id=f"p{number}",
                prompt=number,
                sample=0,
                attempt=0,
                status="ok",
                start_ns=at,
                end_ns=at + 95,
                turns=1,
                tool_calls=1,
                tool_ns=40,
                prompt_tokens=3,
                generated_tokens=5,
                observation_tokens=2,
                reward=rng.choice([1, 0.25, None]),
                open_id=number + 1,
            )
            lines.append(line(closed))
        if number % 10 == 0:
            lines.append(line(Metric(name="m", mono_ns=at, value=1.5, labels={"x": 1})))
    return lines


ODD = [
    (b'"turn":0', b'"turn":"0"'),
    (b'"turn":0', b'"turn":true'),
    (b'"turn":0', b'"turn":0.5'),
    (b'"turn":0', b'"turn":99999999999999999999'),
    (b'"turn":0', b'"turn":4611686018427387904'),
    (b'"prompt_tokens":', b'"prompt_tokens":-'),
    (b'"prompt_tokens":', b'"prompt_tokens":4611686018427387904,"a":'),
    (b'"engine":', b'"other":{"x":1},"engine":'),
    (b'"engine":', b'"other":null,"engine":'),
    (b'"engine":"http', b'"engine":5,"e":"http'),
    (b'"engine":"http', b'"engine":"\\ud800'),
    (b'"container":false', b'"container":null'),
    (b'"container":false', b'"container":0'),
    (b',"container":false', b""),
    (b'"native_name":"turn"', b'"native_name":null'),
    (b'"native_name":"turn"', b'"native_name":"turn","reward":1.0'),
    (b'"native_name":"turn"', b'"native_name":"turn","native_name":"again"'),
    (b'"start_ns":', b'"start_ns":9'),
    (b'"status":"ok"', b'"status":7'),
    (b'"reward":0.25', b'"reward":NaN'),
    (b'"reward":0.25', b'"reward":1e999'),
    (b'"reward":0.25', b'"reward":9e18'),
    (b'"sample":0', b'"sample":null'),
    (b'"attributes":{', b'"attributes":null,"x":{'),
    (b"http://\\u00e9", b"\xff"),
    (b'"trajectory_id":"p', b'"trajectory_id":null,"y":"p'),
    (b'{"k":"span"', b' {"k":"span"'),
    (b'{"k":"span"', b'{"k":"spam"'),
    (b"}", b""),
    (b"}", b"}{}"),
]


def read(path: Path, monkeypatch: pytest.MonkeyPatch, least: int, block: int) -> tuple[object, ...]:
    monkeypatch.setattr(bulk, "LEAST_LINES", least)
    monkeypatch.setattr(event_parts, "BLOCK_BYTES", block)
    defects = Defects()
    taken = Recorded("r", defects)
    file = EventFile(path)
    taken.take_file(file)
    tables = {name: texts_as(table, TABLES[name]) for name, table in taken.finish().items()}
    closed = sorted(taken.closed)
    rest = (file.lines, file.damaged, file.first_damage, closed, defects.rows())
    return {**tables, "trajectories": taken.trajectories.table("start_ns"), "failures": taken.failures.table()}, rest


def same(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, pa.Table]:
    alone, about = read(path, monkeypatch, 10**9, 2**24)
    for block, parsed in ((2**24, 2**20), (5000, 2**20), (2**24, 1000)):
        monkeypatch.setattr(bulk, "BLOCK_BYTES", parsed)
        together, also = read(path, monkeypatch, 2, block)
        for name, table in alone.items():
            assert together[name].equals(table), name
        assert also == about
    return alone


@pytest.mark.parametrize("place", range(len(ODD)))
def test_an_odd_line_changes_nothing_for_the_others(tmp_path, monkeypatch, place):
    before, after = ODD[place]
    rng = random.Random(place)
    lines = made(rng, 60)
    candidates = [number for number, one in enumerate(lines) if before in one]
    for number in rng.sample(candidates, 3):
        lines[number] = lines[number].replace(before, after, 1)
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    tables = same(path, monkeypatch)
    assert tables["turns"].num_rows >= 50


def test_what_never_closed_and_what_came_out_of_order_is_open(tmp_path, monkeypatch):
    lines = made(random.Random(1), 100)
    lines.append(line(Open(id=3, start_ns=10**6, native_name="again", phase="train")))  # its number was used and ended
    ended = Span(phase="train", native_name="train", start_ns=1, end_ns=2, open_id=999, container=False)
    lines += [with_nulls(line(ended)), line(Open(id=999, start_ns=1, native_name="after its end", phase="train"))]
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(b"\n".join(lines))
    tables = same(path, monkeypatch)
    names = tables["opens"]["native_name"].to_pylist()
    assert {"again", "after its end"} <= set(names)


def test_several_processes_in_one_file_keep_their_lines(tmp_path, monkeypatch):
    first, second = made(random.Random(1), 80), made(random.Random(2), 80)
    second[0] = line(Hello(protocol=1, run_id="r", host="other", pid=8, role="rollout", wall_ns=5, mono_ns=5))
    step = Step(step=1, policy_version=1, start_ns=1, end_ns=2, trajectory_ids=("p1-s0-a0",))
    bye = Bye(mono_ns=9, wall_ns=9, events=5, lost_events=0, recorder_ns=1)
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(b"\n".join([*first, line(bye), *second, line(step), b"", b"{"]))
    tables = same(path, monkeypatch)
    assert set(tables["turns"]["host"].to_pylist()) == {"h", "other"}
    assert tables["processes"].num_rows == 2


def test_a_file_without_its_first_line_and_an_empty_one(tmp_path, monkeypatch):
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(b"\n".join(made(random.Random(3), 70)[1:]))
    assert same(path, monkeypatch)["turns"]["pid"].to_pylist()[:2] == [7, 7]
    path.write_bytes(b"")
    assert same(path, monkeypatch)["turns"].num_rows == 0


def test_the_kinds_that_come_by_the_million_are_read_together(tmp_path, monkeypatch):
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(b"\n".join([*made(random.Random(4), 200), b""]))
    alone: list[int] = []
    whole = EventFile.line
    monkeypatch.setattr(EventFile, "line", lambda self, raw, number: alone.append(number) or whole(self, raw, number))
    read(path, monkeypatch, 64, 2**24)
    assert len(alone) == 1 + 20  # the hello and the metrics


def test_a_line_that_is_longer_than_a_block_is_read_with_the_others(tmp_path, monkeypatch):
    lines = [
        one.replace(b'"native_name":"reward"', b'"native_name":"' + b"x" * 5000 + b'"')
        for one in made(random.Random(5), 100)
    ]
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(b"\n".join([*lines, b""]))
    monkeypatch.setattr(bulk, "BLOCK_BYTES", 1000)
    alone: list[int] = []
    whole = EventFile.line
    monkeypatch.setattr(EventFile, "line", lambda self, raw, number: alone.append(number) or whole(self, raw, number))
    tables, _ = read(path, monkeypatch, 64, 2**24)
    assert len(alone) == 1 + 10
    assert max(map(len, tables["spans"]["native_name"].to_pylist())) == 5000


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\n\nbc\n", b"\n" * 9 + b"x" * 30, b"ab\n" * 9])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_blocks_hold_each_line_of_the_file_once(tmp_path, content, size):
    path = tmp_path / "h-7.jsonl"
    path.write_bytes(content)
    file, found = EventFile(path), []
    for first, lines in file.blocks(size):
        assert first == len(found) + 1
        found += lines.to_pylist()
    assert found == content.splitlines(keepends=True)
    assert file.lines == len(found)
