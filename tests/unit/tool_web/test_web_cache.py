"""The cache of web answers: what is kept, for how long, how much, and what trouble with the file does."""

import asyncio
import sqlite3
import stat
from pathlib import Path
from random import Random
from typing import Any

import pytest
from web_servers import StepClock

from harness.protocol.errors import EnvError, SpecError
from workloads.deep_research.serving.web.cache import Cache, default_folder, page_key, search_key


def used(folder: Path, *steps: Any, **settings: Any) -> tuple[list[Any], Cache]:
    """Opens a cache, does the steps ("get", key) or ("put", key, value), closes it."""

    async def run() -> tuple[list[Any], Cache]:
        cache = Cache(folder, **settings)
        await cache.open()
        try:
            return [await getattr(cache, name)(*arguments) for name, *arguments in steps], cache
        finally:
            await cache.close()

    return asyncio.run(run())


KEY = search_key("serper", "who won", 10)
VALUE = {"hits": [["Ä title", "http://x.example/", "words"]]}


def test_what_one_process_keeps_another_finds(tmp_path: Path) -> None:
    used(tmp_path / "new", ("put", KEY, VALUE))
    (found, nothing), cache = used(tmp_path / "new", ("get", KEY), ("get", search_key("brave", "who won", 10)))
    assert found == VALUE
    assert nothing is None
    assert (cache.hits, cache.misses) == (1, 1)


def test_hits_by_answers_of_earlier_runs_are_counted_apart(tmp_path: Path) -> None:
    clock = StepClock()

    async def run(*keys: tuple[str, ...]) -> dict[str, object]:
        cache = Cache(tmp_path, clock=clock)
        await cache.open()
        for key in keys:
            if await cache.get(key) is None:
                await clock.sleep(1.0)
                await cache.put(key, VALUE)
        await cache.close()
        await clock.sleep(1.0)
        return cache.stats()

    other = search_key("serper", "who lost", 10)
    first = asyncio.run(run(KEY, KEY, KEY))
    assert (first["hits"], first["misses"], first["hits_of_earlier_answers"]) == (2, 1, 0)
    second = asyncio.run(run(KEY, other, KEY, other))
    assert (second["hits"], second["misses"], second["hits_of_earlier_answers"]) == (3, 1, 2)


def test_keys_tell_provider_question_and_count_apart_but_not_white_space() -> None:
    assert search_key("serper", " who  won\n", 10) == KEY
    others = {
        search_key("brave", "who won", 10),
        search_key("serper", "who  Won", 10),
        search_key("serper", "who won", 5),
    }
    assert len(others | {KEY}) == 4
    assert page_key("http://a.example/x#part") == page_key("http://a.example/x")
    assert page_key("http://a.example/x?y") != page_key("http://a.example/x")


def test_modes(tmp_path: Path) -> None:
    used(tmp_path, ("put", KEY, VALUE), mode="read")
    assert not list(tmp_path.glob("*.sqlite"))  # reading makes no file
    used(tmp_path, ("put", KEY, VALUE), mode="off")
    assert not list(tmp_path.iterdir())
    used(tmp_path, ("put", KEY, VALUE), mode="write")
    results, _ = used(tmp_path, ("get", KEY), ("put", page_key("http://a.example/"), VALUE), mode="read")
    assert results[0] == VALUE
    assert used(tmp_path, ("get", page_key("http://a.example/")))[0] == [None]
    assert used(tmp_path, ("get", KEY), mode="off")[0] == [None]
    with pytest.raises(SpecError, match="off, read, write"):
        Cache(tmp_path, mode="sometimes")  # type: ignore[arg-type]


def test_old_answers_are_asked_for_again(tmp_path: Path) -> None:
    clock = StepClock()
    used(tmp_path, ("put", KEY, VALUE), clock=clock, max_age_s=60.0)
    clock.now += 59
    assert used(tmp_path, ("get", KEY), clock=clock, max_age_s=60.0)[0] == [VALUE]
    clock.now += 2
    assert used(tmp_path, ("get", KEY), clock=clock, max_age_s=60.0)[0] == [None]
    assert used(tmp_path, ("get", KEY), clock=clock, max_age_s=None)[0] == [VALUE]


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    async def fill() -> list[bool]:
        clock = StepClock()
        cache = Cache(tmp_path, max_bytes=20_000, clock=clock)
        await cache.open()
        for number in range(60):
            clock.now += 1
            text = Random(number).randbytes(500).hex()  # packs to about half
            await cache.put(page_key(f"http://a.example/{number}"), {"text": text})
        kept = [await cache.get(page_key(f"http://a.example/{number}")) is not None for number in range(60)]
        await cache.close()
        return kept

    kept = asyncio.run(fill())
    assert kept[-1]
    assert not kept[0]
    assert sorted(kept) == kept  # the newest, without holes
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as connection:
        assert 5_000 < connection.execute("SELECT sum(size) FROM answers").fetchone()[0] <= 20_000


def test_one_huge_answer_is_not_kept(tmp_path: Path) -> None:
    results, cache = used(tmp_path, ("put", KEY, {"t": VALUE}), ("get", KEY), max_value_bytes=10)
    assert results[1] is None
    assert cache.stored == 0


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    used(tmp_path, ("put", KEY, VALUE))
    file = next(tmp_path.glob("*.sqlite"))
    for ending in ("-wal", "-shm"):
        file.with_name(file.name + ending).unlink(missing_ok=True)
    file.write_bytes(b"this is no database" * 100)
    assert used(tmp_path, ("get", KEY), ("put", KEY, VALUE), ("get", KEY))[0] == [None, None, VALUE]
    assert list(tmp_path.glob("*.damaged"))


def test_a_damaged_record_is_a_miss(tmp_path: Path) -> None:
    used(tmp_path, ("put", KEY, VALUE))
    with sqlite3.connect(next(tmp_path.glob("*.sqlite"))) as connection:
        connection.execute("UPDATE answers SET value = x'00ff'")
    results, cache = used(tmp_path, ("get", KEY))
    assert results == [None]
    assert (cache.errors, cache.misses) == (1, 1)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvError, match="name another folder"):
        used(tmp_path / "file" / "below")


def test_what_was_searched_for_is_for_the_user_alone(tmp_path: Path) -> None:
    used(tmp_path / "own", ("put", KEY, VALUE))
    file = next((tmp_path / "own").glob("*.sqlite"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_two_processes_may_share_it(tmp_path: Path) -> None:
    async def both() -> Any:
        one, other = Cache(tmp_path), Cache(tmp_path)
        await asyncio.gather(one.open(), other.open())
        await asyncio.gather(
            *(cache.put(page_key(f"http://{n}.example/"), VALUE) for n in range(30) for cache in (one, other))
        )
        found = [await one.get(page_key(f"http://{n}.example/")) for n in range(30)]
        errors = one.errors + other.errors
        await one.close()
        await other.close()
        return found, errors

    assert asyncio.run(both()) == ([VALUE] * 30, 0)


def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    assert default_folder() == tmp_path / "web"
    monkeypatch.delenv("BENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "agentic-rl-bench" / "web"
