"""What a node hands over: pieces of growing files from where the other side is, none waiting behind another."""

import pytest

from harness.nodes.agent import Agent
from harness.nodes.outbox import SHARE_BYTES, WHOLE, may_come, others, take
from harness.protocol.recorder import Recorder, make_hello
from harness.telemetry.description import Description
from harness.telemetry.engines.__main__ import Rows
from harness.telemetry.engines.beside import FOLDER
from harness.telemetry.engines.scrape import Scrape
from harness.telemetry.engines.targets import Target
from harness.telemetry.segment import Segment


@pytest.fixture
def root(tmp_path):
    for folder in ("events", "samples", "logs"):
        (tmp_path / folder).mkdir()
    return tmp_path


def joined(taken):
    return {piece.path: piece.data for piece in taken.pieces}


def test_pieces_put_together_are_the_files(root):
    files = {"events/a-1.jsonl": bytes(range(256)) * 900, "samples/a-1.arrows": b"x" * 300_000, "logs/a.log": b"l"}
    for name, data in files.items():
        (root / name).write_bytes(data)
    have, got, left = {}, dict.fromkeys(files, b""), 1
    while left:
        taken = take(root, have, 100_000)
        left = taken.left
        assert sum(len(piece.data) for piece in taken.pieces) <= 100_000
        for piece in taken.pieces:
            assert piece.at == len(got[piece.path])
            got[piece.path] += piece.data
            have[piece.path] = piece.mark
    assert got == files
    assert take(root, have).pieces == ()


def test_a_lost_answer_is_given_again(root):
    (root / "events" / "a-1.jsonl").write_bytes(b"one\n")
    assert joined(take(root, {})) == joined(take(root, {})) == {"events/a-1.jsonl": b"one\n"}


def test_what_is_added_comes_next(root):
    path = root / "events" / "a-1.jsonl"
    path.write_bytes(b"one\n")
    have = {piece.path: piece.mark for piece in take(root, {}).pieces}
    with path.open("ab") as file:
        file.write(b"two\n")
    (piece,) = take(root, have).pieces
    assert (piece.at, piece.data) == (4, b"two\n")


def test_a_short_file_does_not_wait_behind_a_long_one(root):
    (root / "events" / "a-1.jsonl").write_bytes(b"e" * 10 * SHARE_BYTES)
    (root / "samples" / "a-1.arrows").write_bytes(b"s" * 100)
    taken = take(root, {}, 2 * SHARE_BYTES)
    assert len(joined(taken)["samples/a-1.arrows"]) == 100
    assert taken.left == 9 * SHARE_BYTES


def test_a_replaced_file_comes_whole_and_only_when_it_changed(root):
    path = root / "samples" / "gpus.json"
    path.write_text("{}")
    (piece,) = take(root, {}).pieces
    assert (piece.at, piece.data) == (WHOLE, b"{}")
    assert take(root, {piece.path: piece.mark}).pieces == ()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("events/a-1.jsonl", True),
        ("samples/a-1-2.arrows", True),
        ("samples/engines/a-1-2.jsonl", True),
        ("samples/gpus.json", True),
        ("logs/a-sampler.log", True),
        ("meta.json", False),
        ("events/../meta.json", False),
        ("../events/a.jsonl", False),
        ("/etc/passwd", False),
        ("events/sub/a.jsonl", False),
        ("samples/.gpus.json", False),
        ("events/a.sh", False),
    ],
)
def test_a_node_writes_no_other_file(path, allowed):
    assert may_come(path) is allowed


def test_all_that_is_written_on_a_node_is_handed_over(root):
    """By those who write it: names that they and the outbox each keep for themselves could part."""
    hello = make_hello("r", "sampler")
    Recorder(root / "events" / f"{hello.host}-{hello.pid}.jsonl", hello).bye()
    Segment(root / "samples" / f"{hello.host}-{hello.pid}-{hello.wall_ns}.arrows").close()
    Description(root / "samples", hello.host).write_empty()
    target = Target(engine="e", url=None, mono_ns=1, reason="none")
    reading = Scrape(mono_ns=1, uncertainty_ns=0, reading=None, reason="no answer", size_bytes=0)
    Rows(root / "samples" / FOLDER, hello.host).put(target, reading)
    (root / "logs" / f"{hello.host}-sampler.log").write_text("said\n")
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert len(there) == 5
    assert joined(take(root, {})).keys() == there
    assert others(root) == []


def test_what_no_one_asks_for_is_told_once_and_stays(root):
    agent = Agent("r", root / "node")
    kept, handed = agent.root / "samples" / "engines" / "a-1.csv", agent.root / "events" / "a-1.jsonl"
    kept.parent.mkdir()
    kept.write_text("1\n")
    handed.write_text("{}\n")
    (agent.root / "samples" / ".gpus.json.a-1").write_text("{")  # being made
    _, trouble = agent.take({})
    assert trouble == f"not handed over, and left in {agent.root}: samples/engines/a-1.csv"
    assert agent.take({})[1] is None
    agent.remove()
    assert kept.read_text() == "1\n"
    assert not handed.exists()
    assert {path for path in agent.root.rglob("*") if path.is_file()} == {kept}
    kept.unlink()
    agent.remove()
    assert not agent.root.exists()
