import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.protocol.events import Gate, Metric, encode
from harness.telemetry.engines.targets import Announcements

NAMES = ["engine.endpoint", "gpu.pool"]


def line(name: str, engine: str, url: str | None) -> bytes:
    labels = {"engine": engine, "url": url} if url else {"engine": engine, "reason": "none"}
    event = Metric(name=name, mono_ns=7, value=1.0 if url else None, labels=labels)
    return encode(event).encode() + b"\n"


announced = st.tuples(st.sampled_from(NAMES), st.text(max_size=8), st.sampled_from([None, "http://h:1/metrics"]))


@settings(max_examples=100, deadline=None)
@given(st.lists(announced, max_size=8), st.lists(st.integers(0, 2_000), max_size=6), st.booleans())
def test_however_the_lines_arrive_each_announcement_is_taken_once(
    lines: list[tuple[str, str, str | None]], cuts: list[int], damaged: bool
) -> None:
    gate = encode(Gate(mono_ns=1, open=True, why="says engine.endpoint", in_flight=None, cap=None)).encode() + b"\n"
    data = gate + b"".join(line(*each) for each in lines)
    if damaged:
        data = b'{"k":"metric","name":"engine.endpoint","labels":\n' + data
    places = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node-1.jsonl"
        followed, found, begin = Announcements(Path(folder)), [], 0
        for end in places:
            with path.open("ab") as file:
                file.write(data[begin:end])
            found += followed.poll()
            begin = end
        assert followed.poll() == []
    expected = [(engine, url) for name, engine, url in lines if name == "engine.endpoint"]
    assert [(target.engine, target.url) for target in found] == expected
    assert all((target.reason is None) == (target.url is not None) for target in found)


def test_a_folder_that_is_not_there_yet_announces_nothing(tmp_path: Path) -> None:
    followed = Announcements(tmp_path / "events")
    assert followed.poll() == []
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.jsonl").write_bytes(line("engine.endpoint", "e", "http://h:1/metrics")[:-1])
    assert followed.poll() == []  # its end has not been written yet
