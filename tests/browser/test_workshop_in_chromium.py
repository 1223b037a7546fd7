"""The workshop page as a hand moves it."""

import json
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from harness.cli import call
from reports.workshop.answers import warm
from reports.workshop.server import Server

pytestmark = pytest.mark.browser
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = Server(0)
    warm()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.url
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = context.new_page()
    problems: list[str] = []
    asked: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    made.on("request", lambda request: asked.append(request.url))
    made.goto(url)
    settled(made)
    yield made
    assert problems == []
    assert all(address.startswith((url, "data:")) for address in asked)
    context.close()


def settled(page: Page) -> None:
    """Waits until the newest wish of both kinds is shown."""
    for _ in range(PATIENCE_MS // 50):
        if page.evaluate("workshop.shown.point === workshop.asked && workshop.shown.curve === workshop.asked"):
            return
        page.wait_for_timeout(50)
    pytest.fail("the page never showed the newest setting")


def move(page: Page, name: str, value: float) -> None:
    page.locator(f"#{name}").fill(str(value))
    settled(page)


def row(capsys: pytest.CaptureFixture[str], command: str, mode: str) -> dict[str, float]:
    capsys.readouterr()
    assert call([*command.split()[1:], "--mode", mode, "--json"]) == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


def test_read_outs_and_curve_agree_with_the_command_line(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("sigma", 0.3), ("workers", 96), ("max_staleness", 2)):
        move(page, name, value)
        command = page.locator("#command").inner_text()
        slow, quick = (row(capsys, command, mode) for mode in ("synchronous", "async"))
        gain = quick["updates_per_hour"] / slow["updates_per_hour"]
        assert float(page.locator("#gain").inner_text().removesuffix("×")) == pytest.approx(gain, abs=0.0051)
        assert page.locator("#busy-async").inner_text() == f"{100 * quick['worker_busy_ratio']:.0f} %"
        assert page.locator("#stale").inner_text() == f"{quick['staleness_at_start']:.2f}"
        shown = page.evaluate("workshop.curve.lines.async.find((p) => p.sigma === 0.3).updates_per_hour")
        assert shown == quick["updates_per_hour"]


def test_keys_move_a_slider_and_reset_brings_it_back(page: Page) -> None:
    page.locator("#sigma").focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.locator("#sigma-value").inner_text() == "1.05 log units"
    page.locator("#start-over").click()
    settled(page)
    assert page.locator("#sigma-value").inner_text() == "1 log units"
    before = page.locator("#rates").inner_text()
    page.locator("#another-hour").click()
    settled(page)
    assert page.locator("#seed").inner_text() == "2"
    assert page.locator("#rates").inner_text() != before


def test_a_trainer_that_can_t_keep_up_is_said_to_be_unstable(page: Page) -> None:
    assert not page.locator("#warning").is_visible()
    move(page, "update_s", 90)
    assert "Unstable" in page.locator("#warning").inner_text()
    move(page, "max_staleness", 1)
    assert "Unstable" not in page.locator("#warning").inner_text()


def test_a_hand_that_drags_is_followed_to_where_it_stops(page: Page) -> None:
    for step in range(30):
        page.locator("#median").fill(str(20 + step))
    settled(page)
    assert page.locator("#median-value").inner_text() == "49 s"
    assert "--median 49 " in page.locator("#command").inner_text()


def test_the_pictures_are_drawn(page: Page) -> None:
    assert page.locator("#curve circle").count() == 32
    assert page.locator("#batch rect.busy").count() == 64
    assert page.locator("#staleness rect").count() >= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_has_no_sideways_scroll(browser: Browser, url: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = context.new_page()
    page.goto(url)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()
