"""The browser and its cache."""

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web
from browser_parts import LIMITS, answering, html
from web_servers import Handler, opening, served

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.cache import Cache
from workloads.deep_research.tools import Observation


def cached(folder: Path, handler: Handler, urls: list[str], extractor: Extractor, **settings: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        async with served(handler) as port:
            cache = Cache(folder, **settings)
            await cache.open()
            browser = Browser(mapped={".test": ("127.0.0.1", port)}, limits=LIMITS, cache=cache, extractor=extractor)
            found = list(await asyncio.gather(*(browser.call(opening(url)) for url in urls)))
            await browser.close()
            await cache.close()
            return found

    return asyncio.run(run())


def test_a_page_is_fetched_once_for_all_and_for_later_runs(tmp_path: Path, extractor: Extractor) -> None:
    count = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        await asyncio.sleep(0.05)
        return await html(request) if request.path == "/a" else web.Response(status=404)

    urls = ["http://lake.test/a", "http://lake.test/a#x", "http://lake.test/gone"]
    first = cached(tmp_path, page, urls, extractor)
    assert count == 2
    second = cached(tmp_path, answering("", 500), urls, extractor)
    assert [each.text for each in second] == [each.text for each in first]
    assert [each.status for each in second] == ["ok", "ok", "not_found"]
    assert [each.links for each in second] == [each.links for each in first]
    assert [each.size for each in second] == [None] * 3


def test_failures_of_a_moment_are_not_kept(tmp_path: Path, extractor: Extractor) -> None:
    assert cached(tmp_path, answering("", 500), ["http://lake.test/"], extractor)[0].status == "error"
    assert cached(tmp_path, html, ["http://lake.test/"], extractor)[0].status == "ok"


def test_a_private_page_does_not_come_out_of_the_cache_where_it_may_not_be_opened(
    tmp_path: Path, extractor: Extractor
) -> None:
    async def run() -> list[str]:
        async with served(html) as port:
            statuses = []
            for allow in (True, True, False):
                cache = Cache(tmp_path)
                await cache.open()
                browser = Browser(allow_private=allow, limits=LIMITS, cache=cache, extractor=extractor)
                statuses.append((await browser.call(opening(f"http://127.0.0.1:{port}/"))).status)
                statuses.append(str(cache.hits))
                await browser.close()
                await cache.close()
            return statuses

    assert asyncio.run(run()) == ["ok", "0", "ok", "1", "refused", "0"]
