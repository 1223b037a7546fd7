"""The HTML report in a real browser: opened, zoomed, sorted, saved, read with keys alone, on a phone, in the dark."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

EVIL = "=cmd()</script><script>window.pwned=1;alert('run')</script><img src=x onerror='window.pwned=1'>"


def small(placement: str, **changes: Any) -> Any:
    from played_runs import make_spec

    from harness.protocol.spec import Device, Gpus

    split = Gpus(train=1, rollout=2) if placement != "colocated" else Gpus(train=2, rollout=2)
    given = {"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split, "device": Device.CUDA} | changes
    return make_spec(placement, **given)


def one(placement: str) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        from played_gpus import write_gpu_run

        return [write_gpu_run(folder / "run", small(placement))]

    return make


def three(folder: Path) -> list[Path]:
    from played_gpus import write_gpu_run

    return [
        write_gpu_run(folder / f"run-{placement}", small(placement))
        for placement in ("colocated", "disaggregated", "async")
    ]


def evil(folder: Path) -> list[Path]:
    """A run whose queries, engines, timers, errors and machine would run a script where they were not escaped."""
    from played_folders import write_run
    from played_runs import BEGIN, S, play

    from harness.protocol.events import Failure, Span, Trajectory
    from harness.protocol.spec import Device

    spec = small("async", device=Device.CPU)
    events: list[Any] = []
    for event in play(spec):
        if isinstance(event, Span) and event.phase == "tool":
            attributes = {**event.attributes, "argument": EVIL, "tool": EVIL, "detail": EVIL, "status": "error"}
            events.append(replace(event, attributes=attributes))
        elif isinstance(event, Span) and event.phase == "generation" and event.trajectory_id:
            events.append(replace(event, attributes={**event.attributes, "engine": EVIL}))
        elif isinstance(event, Span) and event.phase == "train":
            events.append(replace(event, native_name=EVIL))
        elif isinstance(event, Trajectory):
            events.append(replace(event, message=EVIL, group_id=EVIL))
        else:
            events.append(event)
    failure = Failure(boundary="worker", type=EVIL, message=EVIL, mono_ns=BEGIN + S)
    machine = {"host": EVIL, "cpu": EVIL, "cores": 2, "memory_bytes": 2**30}
    events = [*events[:-1], failure, events[-1]]
    return [write_run(folder / "run", spec, events, machine=machine, status="failed", reason=EVIL, note=[EVIL])]


@pytest.fixture
def page_of_async(reports: Any) -> Path:
    return reports("async", one("async"))


@pytest.fixture
def page_of_colocated(reports: Any) -> Path:
    return reports("colocated", one("colocated"))


def saved(watched: Any, click: Callable[[], None]) -> tuple[str, list[list[str]]]:
    """Name and rows of the file that a click saves."""
    with watched.page.expect_download() as waiting:
        click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    return waiting.value.suggested_filename, list(csv.reader(io.StringIO(text)))


def test_opens_without_a_request_or_a_complaint(open_page: Any, page_of_async: Path) -> None:
    watched = open_page(page_of_async)
    assert watched.page.title() == "skyrl, async"
    assert watched.requests == [page_of_async.as_uri()]
    assert watched.problems == []
    assert watched.page.locator("h2").count() > 10
    colours = watched.page.evaluate(
        "(() => { const c = document.getElementById('t-main'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; const seen = new Set();"
        "for (let i = 0; i < d.length; i += 4) seen.add([d[i], d[i + 1], d[i + 2], d[i + 3]].join());"
        "return [...seen]; })()"
    )
    assert {"68,119,170,255", "34,136,51,255"} <= set(colours)  # generating and train, in the colours of all pictures


def test_zooms_by_button_wheel_drag_and_key(open_page: Any, page_of_async: Path) -> None:
    watched = open_page(page_of_async)
    page, canvas = watched.page, watched.page.locator("#t-main")
    page.get_by_role("button", name="Whole run").click()
    page.wait_for_timeout(80)
    whole = watched.view()

    def zoomed(act: Callable[[], object]) -> tuple[float, float]:
        act()
        page.wait_for_timeout(80)
        return watched.view()

    def length(view: tuple[float, float]) -> float:
        return view[1] - view[0]

    half = zoomed(lambda: page.get_by_role("button", name="zoom in").click())
    assert length(half) == pytest.approx(length(whole) / 2, rel=0.01)
    assert zoomed(lambda: page.get_by_role("button", name="Whole run").click()) == whole

    box = canvas.bounding_box()
    assert box is not None
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    top = page.evaluate("scrollY")
    assert zoomed(lambda: page.mouse.wheel(0, -120)) == whole  # the page's own, until the timeline has the focus
    page.wait_for_timeout(500)
    assert page.evaluate("scrollY") <= top

    canvas.focus()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    assert length(zoomed(lambda: page.mouse.wheel(0, -120))) < length(whole)
    zoomed(lambda: canvas.press("Home"))

    def drag() -> None:
        page.mouse.move(box["x"] + 400, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
        page.mouse.up()

    dragged = zoomed(drag)
    assert length(dragged) == pytest.approx(length(whole) * 100 / (box["width"] - 150), rel=0.03)
    moved = zoomed(lambda: canvas.press("ArrowRight"))
    assert moved[0] > dragged[0]
    assert length(moved) == pytest.approx(length(dragged), rel=0.02)
    assert zoomed(lambda: canvas.press("Backspace")) == whole
    assert length(zoomed(lambda: canvas.press("+"))) == pytest.approx(length(whole) / 2, rel=0.01)
    window = zoomed(lambda: canvas.press("w"))
    assert whole[0] < window[0] < window[1] <= whole[1]
    page.select_option("#t-step", "5")
    page.wait_for_timeout(80)
    assert window[0] - 1 < watched.view()[0] < watched.view()[1] < window[1] + 1
    assert watched.problems == []


def test_from_the_run_to_one_trajectorys_turns(open_page: Any, page_of_colocated: Path) -> None:
    watched = open_page(page_of_colocated)
    page = watched.page
    link = page.locator('table[data-name="Stragglers"] button.link').first
    name = link.inner_text()
    link.click()
    panel = page.locator("#trajectory")
    assert panel.is_visible()
    assert page.locator("#trajectory-title").inner_text() == f"Trajectory {name}"
    first = panel.locator("tbody tr").first
    assert first.locator("th").inner_text() == "turn 0"
    turns = [text for text in panel.locator("tbody th").all_inner_texts() if text.startswith("turn ")]
    facts = dict(zip(panel.locator("dt").all_inner_texts(), panel.locator("dd").all_inner_texts(), strict=True))
    assert facts["turns"] == str(len(turns))
    filename, rows = saved(watched, lambda: panel.get_by_role("button", name="as CSV").click())
    assert name in filename
    assert [row[0] for row in rows[1:]] == panel.locator("tbody th").all_inner_texts()
    panel.get_by_role("button", name="Close").click()
    assert not panel.is_visible()
    page.fill("#t-id", "no-such-trajectory")
    page.press("#t-id", "Enter")
    assert "no trajectory of that name" in page.locator("#t-said").inner_text()


def test_a_trajectory_under_the_pointer_says_what_it_is_and_opens(open_page: Any, page_of_colocated: Path) -> None:
    watched = open_page(page_of_colocated, height=1400)
    page, canvas = watched.page, watched.page.locator("#t-main")
    for group in ("Training phases", "Units: time account", "Engines: turns open", "GPUs: power"):
        page.get_by_role("checkbox", name=group).uncheck()
    page.select_option("#t-step", "4")
    canvas.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 170, box["y"] + box["height"] - 15)
    for up in range(4, 90, 4):
        page.mouse.move(box["x"] + 170, box["y"] + box["height"] - up)
        if page.locator("#t-tip").is_visible():
            break
    said = page.locator("#t-tip strong").inner_text()
    assert re.fullmatch(r"p\d+-s\d+-a0", said)
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#trajectory-title").inner_text() == f"Trajectory {said}"


def test_sorts_and_keeps_totals_and_unknowns_apart(open_page: Any, page_of_async: Path) -> None:
    page = open_page(page_of_async).page
    table = page.locator('table[data-name="Where a step goes"]').first
    before = table.locator("tbody th").all_inner_texts()
    head = table.locator("thead th").nth(1)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(v) for v in table.locator("tbody td:nth-child(2)").evaluate_all("c => c.map(x => x.dataset.v)")]
    assert values == sorted(values, reverse=True)
    head.locator("button").click()
    values = [float(v) for v in table.locator("tbody td:nth-child(2)").evaluate_all("c => c.map(x => x.dataset.v)")]
    assert values == sorted(values)
    assert table.locator("tfoot th").inner_text() == "Total step"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    assert table.locator("tbody th").all_inner_texts() == before
    figures = page.locator('table:has(th:has-text("95 % interval"))').last
    page.get_by_text("All figures").click()
    figures.locator("thead th").nth(1).locator("button").click()
    shown = figures.locator("tbody td:nth-child(2)").all_inner_texts()
    known = [place for place, text in enumerate(shown) if not text.startswith("–")]
    assert known == list(range(len(known)))
    assert len(known) < len(shown)


def test_saves_tables_as_they_stand_and_data_in_full(open_page: Any, page_of_async: Path) -> None:
    watched = open_page(page_of_async)
    page = watched.page
    table = page.locator('table[data-name="Where a step goes"]').first
    _, rows = saved(
        watched, lambda: page.locator('button[aria-label="save table Where a step goes as CSV"]').first.click()
    )
    assert [row[0] for row in rows[1:-1]] == table.locator("tbody th").all_inner_texts()
    assert rows[-1][0] == "Total step"
    data = page.locator("#d-list")
    name, rows = saved(watched, lambda: data.get_by_role("button", name="save trajectories of").click())
    assert name.endswith("-trajectories.csv")
    ids = page.evaluate("JSON.parse(document.getElementById('run-0').textContent).timeline.lives.id")
    assert [row[0] for row in rows[1:]] == ids
    _, rows = saved(watched, lambda: data.get_by_role("button", name="save figures").click())
    figures = {row[0]: row for row in rows[1:]}
    assert float(figures["step_time_s"][2]) > 0
    unknown = figures["slot_loss_share"]
    assert (unknown[2], unknown[7] != "") == ("", True)  # unknown is empty, never 0, and says why
    _, rows = saved(watched, lambda: data.get_by_role("button", name="save GPUs: power").click())
    assert rows[0][-3:] == ["low", "mean_or_share", "high"]
    assert all(float(low) <= float(mean) <= float(high) for *_, low, mean, high in rows[1:] if mean)
    assert watched.requests[1:] == [url for url in watched.requests if url.startswith("blob:")]


def test_dark_as_the_system_has_it_or_as_it_is_asked_for(open_page: Any, page_of_async: Path) -> None:
    def ground(watched: Any) -> int:
        colour = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3])

    light, dark = open_page(page_of_async), open_page(page_of_async, dark=True)
    assert ground(light) > 700
    assert ground(dark) < 120
    button = dark.page.locator("#theme")
    button.click()
    assert button.get_attribute("aria-label") == "colours: light"
    assert ground(dark) > 700
    dark.page.reload()
    dark.page.wait_for_function("document.documentElement.dataset.ready === '1'")
    assert ground(dark) > 700  # remembered
    button.click()
    assert button.get_attribute("aria-label") == "colours: dark"
    assert ground(dark) < 120


def test_with_keys_alone(open_page: Any, page_of_async: Path) -> None:
    watched = open_page(page_of_async)
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "t-main":
            break
    assert page.evaluate("document.activeElement.id") == "t-main"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"  # where the focus is can be seen
    said = page.locator("#t-said")
    page.keyboard.press("ArrowDown")
    first = said.inner_text()
    assert first
    page.keyboard.press(".")
    assert said.inner_text() != first
    for _ in range(60):
        if "trajectories: comma and full stop" in said.inner_text():
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press(".")
    name = said.inner_text().split(",")[0]
    page.keyboard.press("Enter")
    assert page.locator("#trajectory-title").inner_text() == f"Trajectory {name}"
    assert page.evaluate("document.activeElement.id") == "trajectory"
    for element in page.locator("button, select, input, a, canvas[tabindex]").all():
        label = element.evaluate(
            "e => e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels[0]?.textContent.trim())"
        )
        assert label, element.evaluate("e => e.outerHTML")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(open_page: Any, reports: Any, dark: bool) -> None:
    for name, make in (("async", one("async")), ("three", three), ("evil", evil)):
        watched = open_page(
            reports(name, make), width=360, height=740, dark=dark, has_touch=True, device_scale_factor=2
        )
        wide = watched.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, name
        inside = watched.page.evaluate("document.getElementById('t-main').getBoundingClientRect().width")
        assert 300 < inside <= 360
        before = watched.view()
        watched.page.get_by_role("button", name="zoom in").tap()
        watched.page.wait_for_timeout(80)
        assert watched.view() != before
        assert watched.problems == []


def test_several_runs_by_choice(open_page: Any, reports: Any) -> None:
    watched = open_page(reports("three", three))
    page = watched.page
    whole = watched.view()
    page.select_option("#t-run", label="async")
    page.wait_for_timeout(100)
    assert watched.view() != whole
    assert page.locator(".run-head").count() == 3
    page.select_option("#s-run", label="async")
    page.locator("#s-rows button.link").last.click()
    assert page.locator("#trajectory").is_visible()
    assert page.locator("#t-run option:checked").inner_text() == "async"
    assert watched.problems == []


def test_a_run_full_of_markup_executes_nothing(open_page: Any, reports: Any) -> None:
    watched = open_page(reports("evil", evil))
    page = watched.page
    name = page.evaluate("JSON.parse(document.getElementById('run-0').textContent).timeline.lives.id[0]")
    page.fill("#t-id", name)
    page.press("#t-id", "Enter")
    panel = page.locator("#trajectory")
    assert EVIL in panel.inner_text()  # it is there, as text
    canvas = page.locator("#t-main")
    box = canvas.bounding_box()
    assert box is not None
    for y in range(30, 300, 20):
        page.mouse.move(box["x"] + 500, box["y"] + y)
    _, rows = saved(watched, lambda: panel.get_by_role("button", name="as CSV").click())
    cells = {cell for row in rows for cell in row if "cmd()" in cell}
    assert cells
    assert all(not cell.startswith("=") for cell in cells)  # nor does a spreadsheet
    page.wait_for_timeout(300)
    assert page.evaluate("window.pwned") is None
    assert watched.problems == []
    assert [url for url in watched.requests[1:] if not url.startswith("blob:")] == []
    assert page.evaluate("document.querySelectorAll('img, script:not([type]) ~ script').length") == 0


def test_markup_that_got_in_all_the_same_executes_nothing(open_page: Any, page_of_async: Path, tmp_path: Path) -> None:
    text = page_of_async.read_text(encoding="utf-8")
    slip = "<script>window.pwned=1</script><img src='https://example.org/x.png' onerror='window.pwned=1'></main>"
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("</main>", slip), encoding="utf-8")
    watched = open_page(broken)
    page = watched.page
    assert page.evaluate("window.pwned") is None
    assert sum("Content Security Policy" in problem for problem in watched.problems) >= 2  # it tried, and was refused
    refused = page.evaluate(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return false; }"
        "catch (error) { return error instanceof TypeError; } })()"
    )
    assert refused  # text can't become markup, even by our own script's mistake
    assert watched.page.evaluate("document.documentElement.dataset.ready") == "1"
