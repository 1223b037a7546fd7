"""The page of a comparison in a real browser: drawn as it says, sorted, saved, by keys, on a phone, in the dark."""

import csv
import io
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit" / "comparing"))  # the made measures

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

EVIL = "=cmd()</script><script>window.pwned=1;alert('run')</script><img src=x onerror='window.pwned=1'>"
LONG = "a-label-that-is-longer-than-any-phone-is-wide-" * 3


def side(label: str, train: float, tool: float, count: int = 5, **more: Any) -> Any:
    from made_measures import steady

    from results.comparing.comparison import Side

    runs = [
        steady(
            f"{label}-{i}",
            train + 0.003 * i,
            tool + 0.004 * ((2 * i) % 5),
            values={"tail_gap_share": 0.3 * train + 0.01 * i, "tool_latency_s": tool * (1 + 0.4 * (i % 3))},
            **more,
        )
        for i in range(count)
    ]
    return Side.of(label, runs)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from reports.compared.html import html
    from results.comparing.comparison import compare_sides

    two = compare_sides([side("main", 0.30, 1.0), side("branch", 0.42, 0.9)])
    other = compare_sides([side("main", 0.30, 1.0, framework="areal"), side(LONG, 0.33, 0.9, framework="areal")])
    evil = compare_sides(
        [side("a", 0.3, 1.0, notes=(EVIL,), commit=EVIL), side(EVIL, 0.4, 1.0, notes=(EVIL,))], apart=(EVIL,)
    )
    folder = tmp_path_factory.mktemp("comparisons")
    made = {"two": [two], "cells": [two, other], "evil": [evil]}
    for name, found in made.items():
        (folder / f"{name}.html").write_text(html(found), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


def test_opens_without_a_request_or_a_complaint(open_page: Any, pages: dict[str, Path]) -> None:
    watched = open_page(pages["two"])
    assert watched.requests == [pages["two"].as_uri()]
    assert watched.problems == []
    assert watched.page.locator("h1").inner_text().startswith("simulated colocated: branch against main")
    assert watched.page.locator("figure.changes").count() >= 3


def test_the_bars_as_drawn_sum_to_the_total_and_end_where_the_next_begins(
    open_page: Any, pages: dict[str, Path]
) -> None:
    page = open_page(pages["two"]).page
    rows = page.locator("figure.waterfall .row[data-seconds]").evaluate_all(
        "rows => rows.map(row => { const box = row.querySelector('rect.effect').getBoundingClientRect();"
        "return [Number(row.dataset.seconds), box.left, box.right]; })"
    )
    *parts, total = rows
    assert len(parts) >= 3
    assert sum(seconds for seconds, _, _ in parts) == pytest.approx(total[0], abs=1e-9)
    drawn = sum((right - left) * (1 if seconds > 0 else -1) for seconds, left, right in parts)
    assert drawn == pytest.approx((total[2] - total[1]) * (1 if total[0] > 0 else -1), abs=1.0)
    for (before, *earlier), (after, *later) in pairwise(parts):
        assert earlier[1 if before > 0 else 0] == pytest.approx(later[0 if after > 0 else 1], abs=1.0)


def test_a_change_stands_on_its_own_side_of_none(open_page: Any, pages: dict[str, Path]) -> None:
    page = open_page(pages["two"]).page
    row = page.locator("figure.changes .row.k-worse").first
    place = row.evaluate(
        "row => ['.zero', '.point'].map(name => row.querySelector(name).getBoundingClientRect())"
        ".map(box => (box.left + box.right) / 2)"
    )
    zero, point = place
    assert point - zero > 4  # slower is to the right
    assert "worse" in row.inner_text()
    fill = row.locator(".point").evaluate("e => getComputedStyle(e).fill")
    even = page.locator("figure.changes .row.k-even .point").first.evaluate("e => getComputedStyle(e).fill")
    assert fill != even


def test_sorts_and_saves_its_tables(open_page: Any, pages: dict[str, Path]) -> None:
    page = open_page(pages["two"]).page
    table = page.locator('table:has(th:has-text("verdict"))').first
    before = table.locator("tbody th").all_inner_texts()
    table.locator("thead th").nth(2).locator("button").click()
    values = [float(v) for v in table.locator("tbody td:nth-child(3)").evaluate_all("c => c.map(x => x.dataset.v)")]
    assert values == sorted(values, reverse=True)
    with page.expect_download() as waiting:
        table.locator("xpath=ancestor::figure").get_by_role("button", name="CSV").click()
    rows = list(csv.reader(io.StringIO(Path(waiting.value.path()).read_text(encoding="utf-8"))))
    assert sorted(row[0] for row in rows[1:]) == sorted(before)


def test_light_and_dark(open_page: Any, pages: dict[str, Path]) -> None:
    def ground(watched: Any) -> int:
        colour = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    light, dark = open_page(pages["two"]), open_page(pages["two"], dark=True)
    assert ground(light) > 700
    assert ground(dark) < 120
    dark.page.locator("#theme").click()
    assert ground(dark) > 700


def test_with_keys_alone(open_page: Any, pages: dict[str, Path]) -> None:
    page = open_page(pages["two"]).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
    assert {"sort", "csv", "scroll"} <= seen
    for chart in page.locator("svg[role=img]").all():
        assert chart.get_attribute("aria-label")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_phone(open_page: Any, pages: dict[str, Path], dark: bool) -> None:
    for name in pages:
        watched = open_page(pages[name], width=390, height=844, dark=dark, has_touch=True, device_scale_factor=2)
        page = watched.page
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        # No word is broken letter by letter: a name keeps most of the width to itself.
        for row in page.locator("figure.changes .row.span:not(.axis)").all():
            assert row.locator(".name").bounding_box()["height"] < 60
            assert row.locator("svg.bar").bounding_box()["width"] > 300
        assert watched.problems == []


def test_what_goes_on_beyond_a_tables_edge_has_a_shade(open_page: Any, pages: dict[str, Path]) -> None:
    """At the right while there is more at the right, then at the left; on a desk, where all is seen, nowhere."""

    def shades(page: Any) -> tuple[int, int]:
        box = page.locator(".scroll").first
        box.scroll_into_view_if_needed()
        image = box.screenshot()
        return page.evaluate(
            "async (bytes) => { const blob = new Blob([new Uint8Array(bytes)], {type: 'image/png'});"
            "const image = await createImageBitmap(blob); const canvas = document.createElement('canvas');"
            "canvas.width = image.width; canvas.height = image.height; const pen = canvas.getContext('2d');"
            "pen.drawImage(image, 0, 0); const y = 6;"
            "return [1, image.width - 2].map(x => pen.getImageData(x, y, 1, 1).data[0]); }",
            list(image),
        )

    phone = open_page(pages["two"], width=390, height=844, has_touch=True).page
    left, right = shades(phone)
    assert left > 245
    assert right < 220
    phone.locator(".scroll").first.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    left, right = shades(phone)
    assert left < 220
    assert right > 245
    desk = open_page(pages["two"]).page
    assert min(shades(desk)) > 245


def test_a_side_full_of_markup_executes_nothing(open_page: Any, pages: dict[str, Path]) -> None:
    watched = open_page(pages["evil"])
    watched.page.wait_for_timeout(300)
    assert watched.page.evaluate("window.pwned") is None
    assert watched.problems == []
    assert watched.requests == [pages["evil"].as_uri()]
    assert EVIL in watched.page.locator("main").inner_text()
    assert watched.page.locator("img").count() == 0
