"""Chromium as the machine has it, and HTML reports of played runs."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "unit" / "reports"))  # the played runs

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser of the machine's own. Where there is none these tests fail: they were asked for by their marker."""
    there = os.environ.get("BENCH_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if there is None:
        pytest.fail(f"no browser ({', '.join(NAMES)}): install one, or name it in BENCH_CHROMIUM")
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=there, args=list(FLAGS))
        yield chromium
        chromium.close()


@dataclass
class Watched:
    """A page, and all that it did beside being looked at."""

    page: Page
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # dialogs, errors, and what its policy refused

    @property
    def shown(self) -> str:
        """The line under the timeline that says which stretch is in view."""
        return self.page.locator("#t-how").inner_text()

    def view(self) -> tuple[float, float]:
        """Begin and end of the stretch in view, in seconds."""
        words = self.shown.removeprefix("Shown: ").replace(",", "").split()
        return float(words[0]), float(words[3])


Opened = Callable[..., Watched]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opened]:
    """Opens a file as its reader would: `open_page(path, width=360, dark=True)`; waits until it is ready."""
    contexts: list[BrowserContext] = []

    def opened(path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, **more: Any) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **more
        )
        contexts.append(context)
        watched = Watched(context.new_page())
        page = watched.page
        page.on("request", lambda request: watched.requests.append(request.url))
        page.on("pageerror", lambda error: watched.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (watched.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "console",
            lambda said: watched.problems.append(f"{said.type}: {said.text}") if said.type != "log" else None,
        )
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.ready === '1'")
        page.wait_for_timeout(100)  # a frame or two
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`reports(name, make)`: the page of the runs that `make(folder)` writes; made once."""
    from reports.report import write_report

    folder = tmp_path_factory.mktemp("pages")

    def made(name: str, make: Callable[[Path], list[Path]]) -> Path:
        target = folder / f"{name}.html"
        if not target.exists():
            write_report(make(folder / name), folder / name / "out", html=target, draw=False)
        return target

    return made
