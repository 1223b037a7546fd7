"""The server as a process: it starts, says where, answers, and ends cleanly in each of its ways."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tool_server_parts import request

from harness.supervisor.processes import read_process
from workloads.deep_research.corpus.loaders import import_corpus
from workloads.deep_research.remote import FILE, RemoteTools
from workloads.deep_research.tools import Observation
from workloads.deep_research.trace import read_trace

MODULE = [sys.executable, "-P", "-m", "workloads.deep_research.serving"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus of one's own."""
    source = tmp_path_factory.mktemp("source")
    for name in ("gislur", "wuck", "zeposund"):
        (source / f"{name}.md").write_text(f"# {name.title()}\n\nAll about the river {name}. " + "Words follow. " * 30)
    out = tmp_path_factory.mktemp("corpora") / "own"
    import_corpus(source, out)
    return out


class Server:
    """A server process of a test."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*MODULE, "--address", str(folder / FILE), "--stats", str(folder / "stats.json"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ready(self) -> "Server":
        end = time.monotonic() + 90
        while not (self.folder / FILE).exists():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.02)
        return self

    def ask(self, *calls: tuple[str, str]) -> list[Observation]:
        async def main() -> list[Observation]:
            tools = RemoteTools(self.folder)
            found = [await tools.call(request(argument, tool=tool)) for tool, argument in calls]
            await tools.close()
            return found

        return asyncio.run(main())

    def wait_for_calls(self, count: int) -> None:
        """Until so many calls have come in, answered or not."""
        address = json.loads((self.folder / FILE).read_text())
        asked = urllib.request.Request(
            address["url"] + "/stats", headers={"Authorization": f"Bearer {address['token']}"}
        )
        end = time.monotonic() + 90
        while True:
            with urllib.request.urlopen(asked, timeout=60) as response:
                stats = json.load(response)
            if stats["in_flight"] + sum(sum(tool.values()) for tool in stats["calls"].values()) >= count:
                return
            assert time.monotonic() < end
            time.sleep(0.02)

    def ended(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task").glob("*/children")  # those of each thread
        return [int(pid) for path in listed for pid in path.read_text().split()]


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    started: list[Server] = []
    yield started
    for server in started:
        with contextlib.suppress(ProcessLookupError):
            server.process.kill()
        server.process.communicate()


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


CALLS = (("search_engine", "river wuck"), ("web_browser", "http://corpus.test/wuck.md"), ("search_engine", "xyzzy"))


@pytest.mark.parametrize("how", ["TERM", "INT", "eof", "KILL"])
def test_a_server_answers_and_ends_in_each_of_its_ways(
    tmp_path: Path, corpus: Path, servers: list[Server], how: str
) -> None:
    server = Server(tmp_path, "--tools", "local", "--corpus", str(corpus), "--until-eof")
    servers.append(server)
    found, page, nothing = server.ready().ask(*CALLS)
    assert (found.status, page.status, nothing.status) == ("ok", "ok", "empty")
    assert found.links[0][1] == "http://corpus.test/wuck.md"
    assert "All about the river wuck." in page.text
    children = server.children()
    assert children
    if how == "eof":
        assert server.process.stdin is not None
        server.process.stdin.close()
        server.process.stdin = None
    else:
        server.process.send_signal(getattr(signal, f"SIG{how}"))
    server.process.wait(60)
    left = [pid for pid in children if (now := read_process(pid)) is not None and now.live]
    code, output = server.ended()
    assert gone(children)
    if how == "KILL":
        assert code == -signal.SIGKILL
        return
    assert not left  # whoever ends the server finds nothing of it to kill
    assert code == 0, output
    assert "Traceback" not in output
    assert not (tmp_path / FILE).exists()
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["calls"] == {"search_engine": {"empty": 1, "ok": 1}, "web_browser": {"ok": 1}}
    assert stats["in_flight"] == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "stats.json"]


def test_calls_under_way_are_answered_before_the_end(tmp_path: Path, corpus: Path, servers: list[Server]) -> None:
    slow = ("--tools", "local", "--corpus", str(corpus), "--faults", "slow=1")  # two seconds an answer
    server = Server(tmp_path, *slow)
    servers.append(server)
    server.ready()

    async def main() -> list[Observation]:
        tools = RemoteTools(tmp_path, return_s=0)
        calls = [asyncio.create_task(tools.call(request("river"))) for _ in range(5)]
        await asyncio.to_thread(server.wait_for_calls, len(calls))
        server.process.send_signal(signal.SIGTERM)
        found = await asyncio.gather(*calls)
        await tools.close()
        return list(found)

    assert {answer.status for answer in asyncio.run(main())} == {"ok"}
    assert server.ended()[0] == 0


def test_a_recording_is_whole_and_plays_the_same_answers(tmp_path: Path, corpus: Path, servers: list[Server]) -> None:
    trace = tmp_path / "trace.parquet"
    servers.append(Server(tmp_path, "--tools", "local", "--corpus", str(corpus), "--record", str(trace)))
    calls = (*CALLS, ("web_browser", "river gislur"))  # a browser that is asked for words
    first = servers[0].ready().ask(*calls)
    servers[0].process.terminate()
    assert servers[0].ended()[0] == 0
    assert [call.argument for call in read_trace(trace).calls()] == [argument for _, argument in calls]
    (tmp_path / "stats.json").unlink()
    servers.append(Server(tmp_path, "--tools", "replay", "--trace", str(trace), "--scale", "2"))
    second = servers[1].ready().ask(*calls, ("search_engine", "never asked"))
    servers[1].process.terminate()
    assert servers[1].ended()[0] == 0
    assert [(a.text, a.status, a.links, a.size) for a in first] == [
        (a.text, a.status, a.links, a.size) for a in second[:-1]
    ]
    assert second[-1].status == "not_found"
    for was, now in zip(first, second, strict=False):
        assert was.planned_s is None
        assert was.served_s is not None
        assert now.planned_s is not None
        assert 0 < now.planned_s <= 2 * was.served_s


def test_a_server_started_again_leaves_the_first_recording_alone(
    tmp_path: Path, corpus: Path, servers: list[Server]
) -> None:
    arguments = ("--tools", "local", "--corpus", str(corpus), "--record", str(tmp_path / "trace.parquet"))
    servers.append(Server(tmp_path, *arguments))
    servers[0].ready().ask(CALLS[0])
    servers[0].process.kill()
    servers[0].ended()
    (tmp_path / FILE).unlink()
    servers.append(Server(tmp_path, *arguments))
    servers[1].ready().ask(CALLS[1])
    servers[1].process.terminate()
    assert servers[1].ended()[0] == 0
    assert [call.argument for call in read_trace(tmp_path / "trace.parquet").calls()] == [CALLS[0][1]]
    assert [call.argument for call in read_trace(tmp_path / "trace-restarted.parquet").calls()] == [CALLS[1][1]]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--tools", "local"], 2, "no corpus is given"),
        (["--tools", "local", "--corpus", "nowhere"], 2, "no corpus there"),
        (["--tools", "local", "--corpus", "CORPUS", "--faults", "hail=1"], 2, "'hail': allowed is"),
        (["--tools", "replay"], 2, "no trace is given"),
        (["--tools", "replay", "--trace", "nowhere.parquet"], 2, "nowhere.parquet"),
        (["--tools", "replay", "--trace", "x", "--faults", "error=1"], 2, "allowed with local tools"),
        (["--tools", "magic"], 2, "a tool server has local, web or replay"),
        (["--tools", "web:nobody"], 2, "nobody"),
        (["--tools", "local", "--corpus", "CORPUS", "--host", "203.0.113.7"], 3, "can't listen on 203.0.113.7"),
        (["--tools", "local", "--corpus", "CORPUS", "--address", "/nowhere/tools.json"], 2, "cannot be written"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, corpus: Path, arguments: list[str], code: int, words: str
) -> None:
    given = [str(corpus) if word == "CORPUS" else word for word in arguments]
    given += ["--record", str(tmp_path / "trace.parquet")]
    environ = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "SEARXNG_URL"))}
    done = subprocess.run([*MODULE, *given], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("the tool server can't start: ")
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []  # no trace of nothing, under a name that then is taken
