"""How soon the HTML report of a large run opens: one hour on 8 GPUs, a million spans, ten million readings.

From the begin of the navigation to the first frame after the page has drawn itself, in Chromium (headless, from a file,
a fresh profile's context each time). The alternative is the plain page of the same run: every span and every reading in
it, as the most compact arrays there are, unpacked and drawn once, without a table, a chart or a thing to click. Both
are opened by turns, ROUNDS times; figures are medians. `build_s` is the making of the page from the run's figures.

Limits: our page opens in less than 2 s, and is no larger than 5 MB. It needs Chromium (in the PATH, or BENCH_CHROMIUM).
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tracked
from hour_run import hour_run
from playwright.sync_api import Browser, sync_playwright

from reports.case import Case
from reports.html.packing import embedded, packed
from reports.html.page import render
from reports.run_page import single
from results.metrics import compute
from results.store import RunTables

ROUNDS = 5
SOURCES = ("reports/html", "benchmarks/html_open.py", "benchmarks/hour_run.py")
LIMIT_S = 2.0
LIMIT_BYTES = 5_000_000
NAMES = ("chromium", "chromium-browser", "google-chrome")
PLAIN = """<!doctype html><meta charset="utf-8"><title>plain</title><canvas id="c" width="1200" height="3000"></canvas>
<script type="application/json" id="d">%s</script><script>
const kinds = { u4: Uint32Array, u2: Uint16Array, f4: Float32Array };
function unpack(p) {
  const text = atob(p.d), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new kinds[p.k](bytes.buffer);
}
const data = JSON.parse(document.getElementById("d").textContent);
const pen = document.getElementById("c").getContext("2d");
const [start, end, row] = [unpack(data.start), unpack(data.end), unpack(data.row)];
const x = (tick) => tick / 3.6e9 * 1200;
pen.fillStyle = "#4477AA";
for (let i = 0; i < start.length; i++) pen.fillRect(x(start[i]), row[i] * 4, Math.max(0.2, x(end[i]) - x(start[i])), 3);
data.series.forEach((packed, place) => {
  const values = unpack(packed), top = Math.max(1, values.reduce((a, b) => Math.max(a, b)));
  pen.beginPath();
  for (let i = 0; i < values.length; i++) pen.lineTo(i / values.length * 1200, 2400 + place * 6 - values[i] / top * 5);
  pen.stroke();
});
requestAnimationFrame(() => setTimeout(() => performance.mark("bench-ready"), 0));
</script>"""


def main(record: bool) -> int:
    """Measures, prints, and with --record keeps; returns 1 where a limit is missed."""
    chromium = os.environ.get("BENCH_CHROMIUM") or next(
        (there for name in NAMES if (there := shutil.which(name))), None
    )
    if chromium is None:
        print(f"no browser ({', '.join(NAMES)}): install one, or name it in BENCH_CHROMIUM", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run, spans, readings = hour_run(folder / "hour")
        ours, plain = folder / "ours.html", folder / "plain.html"
        build_s = write_ours(run, ours, folder)
        write_plain(run, plain)
        seconds: dict[Path, list[float]] = {ours: [], plain: []}
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for _ in range(ROUNDS):
                for path, taken in seconds.items():
                    taken.append(opened_s(browser, path))
            browser.close()
        sizes = {path: path.stat().st_size for path in seconds}
    medians = {path: statistics.median(taken) for path, taken in seconds.items()}
    ok = medians[ours] < LIMIT_S and sizes[ours] <= LIMIT_BYTES
    figures = {
        "spans": spans,
        "readings": readings,
        "rounds": ROUNDS,
        "open_s": round(medians[ours], 3),
        "open_worst_s": round(max(seconds[ours]), 3),
        "plain_open_s": round(medians[plain], 3),
        "ratio_to_plain": round(medians[ours] / medians[plain], 3),
        "bytes": sizes[ours],
        "plain_bytes": sizes[plain],
        "build_s": round(build_s, 2),
        "limit_open_s": LIMIT_S,
        "limit_bytes": LIMIT_BYTES,
    }
    return tracked.finish("html_open", figures, ok=ok, description=__doc__ or "", sources=SOURCES, record=record)


def write_ours(run: RunTables, path: Path, folder: Path) -> float:
    """Writes the report's page; returns seconds from the figures to the file, without those of the Markdown report."""
    figures = compute(run)
    assert figures.window is not None, figures.no_window
    steps = tuple(range(figures.window.after_step + 1, figures.window.last_step + 1))
    case = Case(run=run, figures=figures, steps=steps)
    lines = single(case, folder / "figures")
    begin = time.perf_counter()
    path.write_text(render(lines, folder, [case]), encoding="utf-8")
    return time.perf_counter() - begin


def write_plain(run: RunTables, path: Path) -> None:
    """Writes the page that holds everything."""
    starts, ends, rows = [], [], []
    for name in ("turns", "tool_calls", "spans"):
        starts.append(run.tables[name].column("start_ns").to_numpy())
        ends.append(run.tables[name].column("end_ns").to_numpy())
        rows.append(np.arange(starts[-1].size) // 9 % 600)
    first = min(int(each.min()) for each in starts)
    samples = run.tables["samples"]
    series = [
        packed(samples.column(name).cast("float64").to_numpy(), "f4")
        for name in samples.column_names
        if name not in ("host", "gpu", "mono_ns") and samples.column(name).null_count == 0
    ]
    data = {
        "start": packed((np.concatenate(starts) - first) // 1_000, "u4"),
        "end": packed((np.concatenate(ends) - first) // 1_000, "u4"),
        "row": packed(np.concatenate(rows), "u2"),
        "series": series,
    }
    path.write_text(PLAIN.replace("%s", embedded(data)), encoding="utf-8")


def opened_s(browser: Browser, path: Path) -> float:
    """Seconds until the page says that it has drawn itself."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri(), timeout=120_000)
    page.wait_for_function("performance.getEntriesByName('bench-ready').length > 0", timeout=120_000)
    ready = page.evaluate("performance.getEntriesByName('bench-ready')[0].startTime")
    context.close()
    return float(ready) / 1e3


if __name__ == "__main__":
    options: argparse.ArgumentParser = tracked.options(__doc__ or "")
    sys.exit(main(options.parse_args().record))
