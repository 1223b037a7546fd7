"""A tool server in a process of its own for benchmarks, and what its processes hold."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.cache import cache_folder
from harness.supervisor.processes import all_processes, descendants
from workloads.deep_research import remote
from workloads.deep_research.corpus.build import build_corpus, generated_name

START_S = 120.0


def corpus_of(pages: int, seed: int = 1) -> Path:
    """A generated corpus in the user's cache folder, built if it is not there."""
    folder = cache_folder() / "corpora" / generated_name(pages, seed)
    build_corpus(folder, pages=pages, seed=seed)
    return folder


@contextlib.contextmanager
def tool_server(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The block in which a server answers, its address in `folder`; it is ended as a run ends it.

    Raises:
        RuntimeError: it did not start, or ended otherwise than asked.
    """
    address = folder / remote.FILE
    log = folder / "tool-server.log"
    module = [sys.executable, "-P", "-m", "workloads.deep_research.serving"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*module, "--until-eof", "--address", str(address), "--stats", str(folder / "stats.json"), *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_S
        while not address.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the tool server did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield process
        process.terminate()
        if (code := process.wait(60)) != 0:
            raise RuntimeError(f"the tool server ended with {code}: {log.read_text(errors='replace')[-2000:]}")
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    return [pid, *descendants([pid], all_processes())]


def sockets(pids: Sequence[int]) -> int:
    """Sockets that the processes hold, listening ones included."""
    found = 0
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found += str(entry.readlink()).startswith("socket:")
    return found


def own_bytes(pids: Sequence[int]) -> int:
    """Memory that is the processes' own: resident and of no file (pages of a mapped index are the kernel's to take)."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    found += int(line.split()[1]) * 1024
    return found
