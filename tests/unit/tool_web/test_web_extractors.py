"""The extracting processes: several at a time, each on its own, replaced when they die, hang or talk nonsense."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from workloads.deep_research.serving import extractors
from workloads.deep_research.serving.extraction import Extraction
from workloads.deep_research.serving.extractors import Extractor

PAGE = b"<html><title>Lake</title><body><p>All about the lake, and <a href='/x'>more</a>.</p></body></html>"


async def pages(extractor: Extractor, count: int) -> list[Extraction]:
    work = (extractor.extract(PAGE, "text/html", None, f"http://lake.test/{n}") for n in range(count))
    return list(await asyncio.gather(*work))


def test_there_is_one_for_each_core_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes in ((1, 1), (2, 2), (6, 6), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert Extractor().processes == processes


def test_each_of_several_gets_pages_at_the_same_time(tmp_path: Path) -> None:
    # Each process waits for the other: one after the other they would never answer.
    program = f"""
import os, sys, time
from pathlib import Path
from workloads.deep_research.serving.extractors import receive, send
while True:
    asked, _ = receive(sys.stdin.buffer)
    Path({str(tmp_path)!r}, str(os.getpid())).touch()
    end = time.monotonic() + 60
    while len(list(Path({str(tmp_path)!r}).iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    late = len(list(Path({str(tmp_path)!r}).iterdir())) < 2
    page = {{"title": "", "url": asked["url"], "text": "", "links": []}}
    send(sys.stdout.buffer, {{"page": page, "error": None, "late": late, "note": None}})
"""

    async def run() -> list[Extraction]:
        extractor = Extractor(processes=2, wait_s=90, program=(sys.executable, "-c", program))
        found = await pages(extractor, 2)
        await extractor.close()
        return found

    found = asyncio.run(run())
    assert [each.page.url for each in found if each.page] == ["http://lake.test/0", "http://lake.test/1"]
    assert [each.late for each in found] == [False, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_one_that_dies_is_replaced_and_its_page_tried_again() -> None:
    async def run() -> tuple[list[Extraction], int, list[int], list[int]]:
        extractor = Extractor(processes=2)
        await extractor.start()
        before = extractor.pids()
        os.kill(before[0], signal.SIGKILL)
        found = await pages(extractor, 6)
        replaced, after = extractor.replaced, extractor.pids()
        await extractor.close()
        assert extractor.pids() == []
        return found, replaced, before, after

    found, replaced, before, after = asyncio.run(run())
    assert [each.error for each in found] == [None] * 6
    assert replaced == 1
    assert len(after) == 2
    assert before[1] in after  # the other one had no part in it
    assert before[0] not in after


def test_one_that_dies_of_every_page_costs_that_page_and_no_more() -> None:
    program = (sys.executable, "-c", "import os; os.read(0, 100); os.abort()")

    async def run() -> tuple[list[Extraction], int]:
        extractor = Extractor(processes=1, program=program)
        found = await pages(extractor, 2)
        await extractor.close()
        return found, extractor.replaced

    found, replaced = asyncio.run(run())
    assert [each.error for each in found] == ["its text could not be extracted: the process died"] * 2
    assert replaced == 4  # each page was tried twice


def test_one_that_hangs_is_killed_and_the_next_page_has_a_new_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extractors, "_HUNG_S", 0.1)
    monkeypatch.setattr(extractors, "_START_S", 0.1)
    here = tmp_path / "hung"
    # The first hangs so that no signal but KILL ends it, as inside a library; the next are what they should be.
    program = f"""
import os, runpy, signal, time
from pathlib import Path
if not Path({str(here)!r}).exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path({str(here)!r}).write_text(str(os.getpid()))
    while True:
        time.sleep(1)
runpy.run_module("workloads.deep_research.serving.extractor", run_name="__main__")
"""

    async def run() -> tuple[Extraction, Extraction]:
        extractor = Extractor(processes=1, limit_s=2.0, program=(sys.executable, "-c", program))
        (hung,) = await pages(extractor, 1)
        monkeypatch.setattr(extractors, "_START_S", 60.0)
        (fine,) = await pages(extractor, 1)
        assert extractor.replaced == 1
        await extractor.close()
        return hung, fine

    hung, fine = asyncio.run(run())
    assert (hung.page, hung.late) == (None, True)
    assert fine.page is not None
    assert not Path(f"/proc/{here.read_text()}").exists()


@pytest.mark.parametrize("answer", ["b'nonsense' * 4", "b'\\0' * 16", "__import__('struct').pack('!QQ', 2, 0) + b'{}'"])
def test_nonsense_in_place_of_an_answer_is_a_page_that_could_not_be_read(answer: str) -> None:
    program = (sys.executable, "-c", f"import sys; sys.stdout.buffer.write({answer}); sys.stdout.flush()")

    async def run() -> Extraction:
        extractor = Extractor(processes=1, program=program)
        (found,) = await pages(extractor, 1)
        await extractor.close()
        return found

    assert asyncio.run(run()).error == "its text could not be extracted: the process died"


def test_a_program_that_is_not_there_is_said_of_each_page() -> None:
    async def run() -> Extraction:
        extractor = Extractor(processes=1, program=("/nowhere/python",))
        (found,) = await pages(extractor, 1)
        await extractor.close()
        return found

    assert asyncio.run(run()).error == "its text could not be extracted: the process died"


def test_closing_does_not_wait_for_a_page_in_the_middle(tmp_path: Path) -> None:
    here = tmp_path / "begun"
    begin = f"import time; from pathlib import Path; Path({str(here)!r}).touch(); time.sleep(1000)"

    async def run() -> Extraction:
        extractor = Extractor(processes=1, limit_s=900, wait_s=900, program=(sys.executable, "-c", begin))
        work = asyncio.create_task(extractor.extract(PAGE, "text/html", None, "http://lake.test/"))
        end = time.monotonic() + 60
        while not here.exists():
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        await asyncio.wait_for(extractor.close(), 60)
        return await asyncio.wait_for(work, 60)

    assert asyncio.run(run()).page is None


def test_the_loop_goes_on_while_pages_are_extracted(extractor: Extractor) -> None:
    huge = b"<html><body>" + b"<p>Some words about <a href='/x'>lakes</a>.</p>" * 5_000

    async def run() -> tuple[int, Extraction]:
        work = asyncio.create_task(extractor.extract(huge, "text/html", None, "http://lake.test/"))
        turns = 0
        while not work.done():
            await asyncio.sleep(0.001)
            turns += 1
        return turns, await work

    turns, found = asyncio.run(run())
    assert found.page is not None
    assert turns >= 10  # one turn if the loop had been held


def test_what_takes_too_long_to_begin_is_said() -> None:
    async def run() -> Extraction:
        extractor = Extractor(processes=1, wait_s=0.001)
        found = await extractor.extract(PAGE, "text/html", None, "http://lake.test/")
        assert extractor.waiting == 0
        await extractor.close()
        return found

    found = asyncio.run(run())
    assert found.late
