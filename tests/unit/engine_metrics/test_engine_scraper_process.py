"""The scraper as the process it is: engines announced late, moved, gone and back; what it leaves when it is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_servers import Page, engine
from expositions import vllm_page

from adapters.child.engines import announce_engine
from harness.protocol.events import Bye, Metric, decode
from harness.protocol.recorder import Recorder, make_hello
from harness.telemetry.engines.beside import FOLDER, EngineScraper
from results.engine_samples import read_engine_samples

LIMIT_S = 60.0


class Run:
    """A run folder with a recorder that announces, and a scraper beside it."""

    def __init__(self, folder: Path) -> None:
        self.events, self.samples = folder / "events", folder / "samples"
        self.events.mkdir()
        self.recorder = Recorder(self.events / "node-1.jsonl", make_hello("run-1", "controller"))
        command = [sys.executable, "-m", "harness.telemetry.engines", "--run-id", "run-1", "--period", "0.1"]
        places = ["--out", str(self.samples / FOLDER), "--events", str(self.events)]
        self.process = subprocess.Popen([*command, *places], stdin=subprocess.PIPE)

    @property
    def rows(self) -> list[dict[str, Any]]:
        table, _ = read_engine_samples(self.samples / FOLDER)
        return list(table.to_pylist())

    def until(self, seen: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if seen(rows := self.rows):
                return rows
            assert self.process.poll() is None, "the scraper ended"
            time.sleep(0.05)
        raise AssertionError(f"not seen within {LIMIT_S} s: {self.rows[-3:]}")

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LIMIT_S)

    def told(self) -> list[Any]:
        """The events of the scraper's own file."""
        paths = [path for path in self.events.glob("*.jsonl") if path.name != "node-1.jsonl"]
        return [decode(line) for path in paths for line in path.read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_an_engine_that_comes_late_goes_and_comes_back_is_read_while_it_is_there(run: Run) -> None:
    page = Page(vllm_page(2, 10))
    with engine(page) as port:
        announce_engine(run.recorder, "e0", url=f"http://127.0.0.1:{port}/metrics")
        run.until(lambda rows: any(row["generation_tokens"] == 10 for row in rows))
        page.text = vllm_page(1, 30)
        run.until(lambda rows: any(row["generation_tokens"] == 30 for row in rows))
    run.until(lambda rows: any(row["family"] is None for row in rows))
    page.text = vllm_page(1, 3)
    with engine(page, port):
        rows = run.until(lambda rows: any(row["generation_tokens"] == 3 for row in rows))
        assert run.end() == 0
    assert {row["engine"] for row in rows} == {"e0"}
    lost = next(row for row in rows if row["family"] is None)
    assert "Connection" in lost["reason"]
    assert lost["running_requests"] is lost["generation_tokens"] is None
    assert [row["mono_ns"] for row in rows] == sorted(row["mono_ns"] for row in rows)
    read = [row for row in rows if row["family"] == "vllm"]
    assert all(row["uncertainty_ns"] > 0 for row in read)
    # What this page does not tell is unknown, with its reason.
    assert all(row["prefix_hit_tokens"] is None and "prefix_hit_tokens" in row["reason"] for row in read)
    told = run.told()
    assert isinstance(told[-1], Bye)
    call = next(each for each in told if isinstance(each, Metric) and each.name == "telemetry.engines.call")
    assert call.value is not None
    assert call.value > 0
    assert call.labels["engine"] == "e0"
    calls, failed = call.labels["calls"], call.labels["failed"]
    assert isinstance(calls, int)
    assert calls >= len(read)
    assert isinstance(failed, int)
    assert failed >= 1
    cpu = next(each for each in told if isinstance(each, Metric) and each.name == "telemetry.engines.cpu")
    assert cpu.value is not None
    assert cpu.value > 0


def test_an_engine_without_a_page_is_one_row_with_its_reason_and_one_that_moved_is_followed(run: Run) -> None:
    announce_engine(run.recorder, "quiet", reason="no endpoint")
    announce_engine(run.recorder, "odd", url="ftp://h/metrics")
    with engine(Page(vllm_page(1, 1))) as first, engine(Page(vllm_page(1, 2))) as second:
        announce_engine(run.recorder, "e0", url=f"http://127.0.0.1:{first}/metrics")
        run.until(lambda rows: any(row["generation_tokens"] == 1 for row in rows))
        announce_engine(run.recorder, "e0", url=f"http://127.0.0.1:{second}/metrics")
        rows = run.until(lambda rows: sum(row["generation_tokens"] == 2 for row in rows) > 3)
        assert run.end() == 0
    values = [row["generation_tokens"] for row in rows if row["engine"] == "e0"]
    assert values == sorted(values)
    quiet = [row for row in rows if row["engine"] == "quiet"]
    assert [(row["family"], row["reason"]) for row in quiet] == [(None, "no endpoint")]
    assert "not an http:// address" in next(row["reason"] for row in rows if row["engine"] == "odd")


def test_one_that_hangs_does_not_hold_up_the_others(run: Run) -> None:
    slow = Page(vllm_page(1, 1))
    slow.delay_s = 3.0
    with engine(slow) as hanging, engine(Page(vllm_page(1, 2))) as quick:
        announce_engine(run.recorder, "slow", url=f"http://127.0.0.1:{hanging}/metrics")
        announce_engine(run.recorder, "quick", url=f"http://127.0.0.1:{quick}/metrics")
        rows = run.until(lambda rows: sum(row["engine"] == "quick" for row in rows) >= 5)
        assert sum(row["engine"] == "slow" for row in rows) <= 1
        assert run.end() == 0


def test_what_was_read_before_a_kill_is_there_and_a_cut_line_is_told(run: Run, tmp_path: Path) -> None:
    with engine(Page(vllm_page(1, 1))) as port:
        announce_engine(run.recorder, "e0", url=f"http://127.0.0.1:{port}/metrics")
        before = len(run.until(lambda rows: len(rows) >= 3))
        run.process.send_signal(signal.SIGKILL)
        run.process.wait(LIMIT_S)
    (path,) = (run.samples / FOLDER).glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"host": "h", "engine": "e0", "mono')
    table, problems = read_engine_samples(run.samples / FOLDER)
    assert table.num_rows >= before
    assert problems == [f"{path.name}: 1 lines cut or damaged"]


def test_a_run_without_engines_leaves_nothing_of_the_scraper(run: Run) -> None:
    run.recorder.metric("something.else", 1.0)
    time.sleep(1.0)
    assert run.end() == 0
    assert not run.samples.exists()
    assert [path.name for path in run.events.glob("*.jsonl")] == ["node-1.jsonl"]


def test_the_period_is_the_environments_and_zero_starts_nothing(tmp_path: Path) -> None:
    def start(period: str) -> EngineScraper:
        environ = {**os.environ, "BENCH_ENGINE_SCRAPE_S": period}
        return EngineScraper.start(run_id="r", out=tmp_path, events=tmp_path, environ=environ)

    assert start("0").stop() is None
    assert start("2.5").stop() is None
    for period in ("soon", "-1", "0.001", "nan"):
        with pytest.raises(ValueError, match=f"BENCH_ENGINE_SCRAPE_S = {period}"):
            start(period)


GOOD = {"host": "h", "engine": "e", "mono_ns": 1, "uncertainty_ns": 1, "running_requests": 2}
BAD = ({"mono_ns": 1.5}, {"running_requests": "2"}, {"engine": None}, {"mono_ns": 2**70}, {"reason": 3})


@pytest.mark.parametrize("line", ["[]", '"text"', "{", *(json.dumps({**GOOD, **wrong}) for wrong in BAD)])
def test_lines_that_are_no_readings_are_counted_and_cost_only_themselves(line: str, tmp_path: Path) -> None:
    good = json.dumps(GOOD)
    (tmp_path / "a.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    table, problems = read_engine_samples(tmp_path)
    assert table.column("running_requests").to_pylist() == [2.0, 2.0]
    assert problems == ["a.jsonl: 1 lines cut or damaged"]
