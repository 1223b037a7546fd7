"use strict";
// Sliders ask the server; the newest answer is shown, and older ones are dropped. While the hand moves a quick look is
// asked for; where that is less than an hour, the hour is asked for when the hand rests. `window.workshop` tells tests
// the state: what was asked and shown last, whether it is the hour, and how long after the hand each came (milliseconds).

const form = document.getElementById("settings");
const inputs = [...form.querySelectorAll("input")];
const by = (id) => document.getElementById(id);
const CONVENTIONS = [
  ["at_finish", "when it ends"],
  ["at_take_moved", "when its batch is taken, if the version moves then"],
  ["at_start", "when its batch is taken, if the version moves after the update"],
  ["after_update", "after the update it is in"],
];
const REST_MS = 200;
const state = {
  seed: 1, asked: 0, shown: { point: 0, curve: 0 }, whole: { point: false, curve: false }, lags_ms: { point: [], curve: [] },
  point: null, curve: null, failed: 0,
};
window.workshop = state;
let lines = null;

function setting() {
  const found = Object.fromEntries(inputs.map((input) => [input.name, Number(input.value)]));
  return { ...found, seed: state.seed };
}

function span(seconds) {
  if (seconds === 3600) return "one simulated hour";
  const words = seconds >= 90 ? `${plain(seconds / 60)} minutes` : `${plain(seconds)} s`;
  return `a quick look, the first ${words} of the hour, which follows when the hand rests`;
}

function label(input) {
  const value = Number(input.value);
  if (input.name === "max_staleness") return value < 0 ? "none" : String(value);
  return [plain(value), input.dataset.unit].filter(Boolean).join(" ");
}

function percent(ratio) {
  return ratio === null ? "–" : `${(100 * ratio).toFixed(0)} %`;
}

function showPoint(found) {
  const { synchronous, async: free } = found.modes;
  state.point = found;
  const slow = synchronous.updates_per_hour, quick = free.updates_per_hour;
  by("gain").textContent = slow > 0 ? `${(quick / slow).toFixed(quick / slow < 10 ? 2 : 1)}×` : "–";
  by("rates").textContent = `${plain(quick)} against ${plain(slow)}`;
  by("busy-synchronous").textContent = percent(synchronous.worker_busy_ratio);
  by("busy-async").textContent = percent(free.worker_busy_ratio);
  by("stale").textContent = free.staleness_at_start === null ? "–" : free.staleness_at_start.toFixed(2);
  const said = [];
  if (free.unstable) said.push("Unstable: the trainer can't keep up, and finished trajectories pile up without end. Give it a bound.");
  if (free.violations) said.push(`${free.violations} trajectories were staler than the bound: it limits what starts, and a straggler passes it.`);
  by("warning").textContent = said.join(" ");
  by("warning").hidden = said.length === 0;
  const { batch } = found;
  by("batch-words").textContent = batch.ends_s === null || batch.ends_s === undefined ? "" :
    `${batch.bars.length} trajectories, ${plain(Number(batch.ends_s.toFixed(1)))} s; ${percent(batch.idle_ratio)} of the workers' time is waiting`;
  drawBatch(by("batch"), batch);
  drawStaleness(by("staleness"), free.staleness.at_start);
  const rows = CONVENTIONS.map(([name, words]) => {
    const row = document.createElement("tr");
    const mean = free[`staleness_${name}`];
    for (const text of [words, mean === null ? "–" : mean.toFixed(2)]) row.appendChild(document.createElement("td")).textContent = text;
    return row;
  });
  by("conventions").tBodies[0].replaceChildren(...rows);
  by("command").textContent = found.command;
}

function showCurve(found) {
  state.curve = found;
  lines = found.lines;
  by("extent").textContent = span(found.horizon_s);
  by("unstable").hidden = !Object.values(lines).flat().some((p) => p.unstable);
  drawCurve(by("curve"), lines, setting());
}

// One request of a kind at a time: while a quick one is under way only the newest wish is kept; a long one is given up.
function asker(path, show) {
  let running = null, wanted = null;
  async function go() {
    const wish = wanted;
    wanted = null;
    running = { wish, give_up: new AbortController() };
    const { signal } = running.give_up;
    try {
      const query = new URLSearchParams({ ...wish.setting, quick: wish.quick ? 1 : 0 });
      const reply = await fetch(`/${path}?${query}`, { signal });
      const found = await reply.json();
      if (reply.ok) {
        show(found);
        state.shown[path] = wish.number;
        state.whole[path] = found.whole;
        by("state").textContent = "";
        if (wish.quick) state.lags_ms[path].push(performance.now() - wish.at);
      } else {
        state.failed = wish.number;
        by("state").textContent = found.error;
      }
    } catch {
      if (!signal.aborted) {
        state.failed = wish.number;
        by("state").textContent = "The server has ended; start bench workshop again.";
      }
    }
    running = null;
    if (wanted) go();
  }
  return (wish) => {
    wanted = wish;
    if (!running) go();
    else if (!running.wish.quick) running.give_up.abort();
  };
}

const askPoint = asker("point", showPoint);
const askCurve = asker("curve", showCurve);
let resting = 0;

function changed() {
  for (const input of inputs) by(`${input.id}-value`).textContent = label(input);
  by("seed").textContent = state.seed;
  state.asked += 1;
  const wish = { setting: setting(), number: state.asked, at: performance.now(), quick: true };
  askPoint(wish);
  if (lines) drawCurve(by("curve"), lines, wish.setting);
  askCurve(wish);
  clearTimeout(resting);
  resting = setTimeout(rested, REST_MS);
}

function rested() {
  const { shown, whole, asked, failed } = state;
  if (failed === asked) return;
  if (shown.point !== asked || shown.curve !== asked) {
    resting = setTimeout(rested, REST_MS);
    return;
  }
  const wish = { setting: setting(), number: asked, at: performance.now(), quick: false };
  if (!whole.point) askPoint(wish);
  if (!whole.curve) askCurve(wish);
}

form.addEventListener("input", changed);
form.addEventListener("submit", (event) => event.preventDefault());
by("start-over").addEventListener("click", () => {
  form.reset();
  state.seed = 1;
  changed();
});
by("another-hour").addEventListener("click", () => {
  state.seed += 1;
  changed();
});
let resized = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(() => {
    measure(by("curve"));
    if (lines) drawCurve(by("curve"), lines, setting());
  });
});
measure(by("curve"));
form.reset(); // a reload keeps sliders where they were in some browsers
changed();
