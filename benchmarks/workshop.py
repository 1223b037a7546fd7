"""How far the workshop's page stays behind a hand that drags its sliders, in Chromium, in milliseconds.

Each slider is dragged through its range, a step every 40 ms, once with the page as it opens and once with 256 workers
and batches of one, where most happens. A lag is the time from a slider's event to the picture made from its answer, for
the read-outs (`point`) and the curves (`curve`) apart. Beside it: a fixed loop in Python, which says how fast the
machine was in that minute, and how long an idle frame of the page takes.

Limit: the median lag of every slider, of both kinds, at most 100 ms. Needs Chromium (or its path in BENCH_CHROMIUM).
"""

import itertools
import os
import shutil
import statistics
import sys
import threading
import time
from typing import Any

import tracked
from playwright.sync_api import Page, sync_playwright

from reports.workshop.answers import SLIDERS, warm
from reports.workshop.server import Server

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
LIMIT_MS = 100.0
STEPS, STEP_MS = 24, 40
SETTINGS: dict[str, dict[str, float]] = {"as it opens": {}, "256 workers, batch 1": {"workers": 256, "batch_size": 1}}
SHOWN = "['point', 'curve'].every((kind) => workshop.shown[kind] === workshop.asked && workshop.whole[kind])"
FRAME = """new Promise((done) => {
  const times = [];
  const next = (now) => { times.push(now); times.length < 30 ? requestAnimationFrame(next) : done(times); };
  requestAnimationFrame(next);
})"""


def loop_ms() -> float:
    """A fixed piece of work."""
    begin = time.perf_counter()
    sum(number * number for number in range(300_000))
    return 1e3 * (time.perf_counter() - begin)


def settle(page: Page) -> None:
    """Waits until the newest setting is shown, as a whole hour. The page's policy forbids scripts that wait in it."""
    until = time.monotonic() + 180
    while not page.evaluate(SHOWN):
        if time.monotonic() > until:
            raise TimeoutError("the page never showed the newest setting")
        page.wait_for_timeout(25)


def drag(page: Page, name: str) -> dict[str, list[float]]:
    """Drags a slider through its range; returns the lags of both kinds."""
    page.evaluate("workshop.lags_ms = { point: [], curve: [] }")
    box = page.locator(f"#{name}").bounding_box()
    assert box is not None
    x, y, reach = box["x"] + 9, box["y"] + box["height"] / 2, box["width"] - 9
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(STEPS + 1):
        page.mouse.move(x + reach * step / STEPS, y)
        page.wait_for_timeout(STEP_MS)
    page.mouse.up()
    settle(page)
    found: dict[str, list[float]] = page.evaluate("workshop.lags_ms")
    return found


def main() -> int:
    """Measures; returns 1 where a limit is missed, 3 without a browser."""
    record = tracked.options(__doc__ or "").parse_args().record
    browser_path = os.environ.get("BENCH_CHROMIUM") or next(
        (path for name in NAMES if (path := shutil.which(name))), None
    )
    if browser_path is None:
        print(f"no browser ({', '.join(NAMES)}): install one, or name it in BENCH_CHROMIUM", file=sys.stderr)
        return 3
    server = Server(0)
    how = warm()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    figures: dict[str, Any] = {"engine": how}
    worst = 0.0
    loops = [loop_ms()]
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser_path, args=list(FLAGS))
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.goto(server.url)
        settle(page)
        times = page.evaluate(FRAME)
        frames = [later - sooner for sooner, later in itertools.pairwise(times)]
        for title, values in SETTINGS.items():
            lags: dict[str, dict[str, list[float]]] = {}
            for slider in SLIDERS:
                page.locator("#start-over").click()
                for name, value in values.items():
                    if name != slider.name:
                        page.locator(f"#{name}").fill(str(value))
                settle(page)
                lags[slider.name] = drag(page, slider.name)
                loops.append(loop_ms())
            figures[title] = {
                kind: {
                    name: {
                        "n": len(own[kind]),
                        "median_ms": round(statistics.median(own[kind]), 1),
                        "max_ms": round(max(own[kind]), 1),
                    }
                    for name, own in lags.items()
                }
                for kind in ("point", "curve")
            }
            worst = max(worst, *(statistics.median(own[kind]) for own in lags.values() for kind in own))
        chromium.close()
    server.shutdown()
    server.server_close()
    figures["frame_ms"] = round(statistics.median(frames), 1)
    figures["loop_ms"] = {"median": round(statistics.median(loops), 1), "max": round(max(loops), 1)}
    return tracked.finish(
        "workshop",
        {**figures, "worst_median_ms": round(worst, 1), "limits": {"worst_median_ms": LIMIT_MS}},
        ok=worst <= LIMIT_MS,
        description=__doc__ or "",
        sources=("benchmarks/workshop.py", "reports/workshop", "results/planner"),
        record=record,
    )


if __name__ == "__main__":
    sys.exit(main())
