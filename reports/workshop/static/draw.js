"use strict";
// Pictures as SVG: each function draws its element anew. All text is set as text.
//
// A slider that is dragged draws almost the same shapes again: what an earlier picture has at a place is used once more
// where it is of the same kind, and only what differs is set, which costs a browser far less than new elements.

const SVG = "http://www.w3.org/2000/svg";
const set = new WeakMap(); // of each element: the attributes and the text it has
const next = new WeakMap(); // of each parent: what the earlier picture has where the next shape goes

function put(parent, tag, attributes, text) {
  let made = next.get(parent) ?? null;
  if (made?.localName !== tag) {
    const old = made;
    made = document.createElementNS(SVG, tag);
    set.set(made, { attributes: {}, text: undefined });
    if (old) old.replaceWith(made);
    else parent.appendChild(made);
  }
  next.set(parent, made.nextElementSibling);
  change(made, attributes, text);
  next.set(made, made.firstElementChild);
  return made;
}

function change(made, attributes, text) {
  const has = set.get(made);
  for (const name of Object.keys(has.attributes)) if (!(name in attributes)) made.removeAttribute(name);
  for (const [name, value] of Object.entries(attributes)) if (has.attributes[name] !== value) made.setAttribute(name, value);
  has.attributes = attributes;
  if (has.text !== text) made.textContent = text ?? "";
  has.text = text;
}

function begin(svg, width, height) {
  const box = `0 0 ${width} ${height}`;
  if (svg.getAttribute("viewBox") !== box) svg.setAttribute("viewBox", box);
  next.set(svg, svg.firstElementChild);
}

// What an earlier picture had beyond the last shape goes.
function finish(svg) {
  for (let left = next.get(svg), after; left; left = after) {
    after = left.nextElementSibling;
    left.remove();
  }
}

// A round number at or above `most`, and how far apart the ticks below it are.
function ticks(most, about) {
  if (!(most > 0)) return { top: 1, step: 1 };
  const rough = most / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  return { top: Math.ceil(most / step - 1e-9) * step, step };
}

function plain(value) {
  return Number(value.toPrecision(6)).toString();
}

// Whether the curve has little room. Asked when the window changes, not at each picture: to answer, a browser lays out
// the whole page.
let narrow = false;

function measure(svg) {
  narrow = svg.clientWidth > 0 && svg.clientWidth < 560;
}

function drawCurve(svg, lines, setting) {
  const width = narrow ? 560 : 1080;
  const height = narrow ? 320 : 300;
  const left = 44, right = width - (narrow ? 14 : 110), top = 12, bottom = height - 40;
  begin(svg, width, height);
  const values = Object.values(lines).flat().flatMap((p) => [p.updates_per_hour, p.long_run]).filter((v) => v !== null);
  const { top: most, step } = ticks(Math.max(...values, 1), 5);
  const widest = Math.max(...lines.async.map((p) => p.sigma));
  const x = (sigma) => left + (sigma / widest) * (right - left);
  const y = (value) => bottom - (value / most) * (bottom - top);
  for (let value = 0; value <= most + 1e-9; value += step) {
    put(svg, "line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "axis" });
    put(svg, "text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, plain(value));
  }
  for (let sigma = 0; sigma <= widest + 1e-9; sigma += 0.5) {
    put(svg, "text", { x: x(sigma), y: bottom + 18, "text-anchor": "middle" }, plain(sigma));
  }
  put(svg, "text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "spread σ of the durations");
  put(svg, "line", { x1: x(setting.sigma), x2: x(setting.sigma), y1: top, y2: bottom, class: "here" });
  for (const [mode, name] of [["async", "async"], ["synchronous", "sync"]]) {
    const known = lines[mode].filter((p) => p.long_run !== null);
    if (known.length > 1) {
      const path = known.map((p, k) => `${k ? "L" : "M"}${x(p.sigma).toFixed(1)} ${y(p.long_run).toFixed(1)}`).join("");
      put(svg, "path", { d: path, class: name });
    } else {
      const path = lines[mode].map((p, k) => `${k ? "L" : "M"}${x(p.sigma).toFixed(1)} ${y(p.updates_per_hour).toFixed(1)}`);
      put(svg, "path", { d: path.join(""), class: name });
    }
    for (const p of lines[mode]) {
      const kind = p.unstable ? `${name} unstable` : name;
      const dot = put(svg, "circle", { cx: x(p.sigma), cy: y(p.updates_per_hour), r: p.unstable ? 4 : 3.5, class: kind });
      const said = p.unstable ? "; unstable: the trainer can't keep up" : "";
      put(dot, "title", {}, `σ ${plain(p.sigma)}: ${plain(p.updates_per_hour)} updates an hour, ${mode}${said}`);
    }
    const last = lines[mode][lines[mode].length - 1];
    if (!narrow) {
      put(svg, "text", { x: right + 10, y: y(last.updates_per_hour) + 4, class: `${name}-name` }, mode);
    } else {
      const first = lines[mode][0];
      const above = y(first.updates_per_hour) - 8;
      put(svg, "text", { x: x(first.sigma) + 8, y: above < top + 12 ? above + 26 : above, class: `${name}-name` }, mode);
    }
  }
  finish(svg);
}

// A row per worker, in the order in which they come to rest: what is grey is a worker that waits, and nothing else.
function drawBatch(svg, batch) {
  const width = 540, height = 300, left = 4, right = width - 4, top = 4, bottom = height - 40;
  begin(svg, width, height);
  if (!batch.bars.length || !(batch.ends_s > 0)) {
    put(svg, "text", { x: left, y: 24 }, "No batch was complete in that time.");
    finish(svg);
    return;
  }
  const whole = batch.ends_s + batch.update_s;
  const x = (t) => left + (t / whole) * (right - left);
  const rows = new Map();
  for (let worker = 0; worker < batch.workers; worker += 1) rows.set(worker, []);
  for (const [start, end, worker] of batch.bars) rows.get(worker).push([start, end]);
  const rest = (bars) => Math.max(0, ...bars.map(([, end]) => end));
  const ordered = [...rows.values()].sort((one, other) => rest(one) - rest(other));
  const each = (bottom - top) / ordered.length;
  ordered.forEach((bars, k) => {
    const at = { y: top + k * each, height: Math.max(each - (each > 3 ? 1 : 0), 0.5) };
    put(svg, "rect", { ...at, x: x(0), width: x(batch.ends_s) - x(0), class: "idle" });
    for (const [start, end] of bars) {
      const gap = bars.length > 1 && x(end) - x(start) > 2 ? 0.75 : 0; // else two trajectories would be one bar
      put(svg, "rect", { ...at, x: x(start), width: Math.max(x(end) - x(start) - gap, 0.5), class: "busy" });
    }
  });
  if (batch.update_s > 0) {
    const wide = x(whole) - x(batch.ends_s) - 2;
    put(svg, "rect", { x: x(batch.ends_s) + 2, y: top, width: Math.max(wide, 0.5), height: bottom - top, class: "train" });
    if (wide > 52) put(svg, "text", { x: x(batch.ends_s) + 8, y: top + 18, class: "inside" }, "update");
  }
  const { step } = ticks(whole, 5);
  for (let t = 0; t <= whole; t += step) put(svg, "text", { x: x(t), y: bottom + 18, "text-anchor": t ? "middle" : "start" }, `${plain(t)} s`);
  put(svg, "text", { x: left, y: height - 4 }, "a row is a worker; blue: a trajectory; grey: it waits for the slowest; green: the update");
  finish(svg);
}

function drawStaleness(svg, shares) {
  const width = 540, height = 200, left = 40, right = width - 4, top = 18, bottom = height - 40;
  begin(svg, width, height);
  if (!shares.length) {
    put(svg, "text", { x: left, y: 24 }, "Nothing was trained on in that time.");
    finish(svg);
    return;
  }
  // The far end in one bar: a straggler or two would squeeze all the others.
  let seen = 0;
  let cut = 0;
  for (const [value, share] of shares) {
    seen += share;
    cut = value;
    if (seen >= 0.998 && value >= 4) break;
  }
  const beyond = shares.filter(([value]) => value > cut).reduce((sum, [, share]) => sum + share, 0);
  const bars = shares.filter(([value]) => value <= cut);
  if (beyond > 0) bars.push([cut + 1, beyond]);
  const most = Math.max(...bars.map(([, share]) => share));
  const highest = Math.max(...bars.map(([value]) => value), 4);
  const each = Math.min((right - left) / (highest + 1), 64);
  for (const [value, share] of bars) {
    const tall = (share / most) * (bottom - top);
    const at = left + value * each;
    put(svg, "rect", { x: at + 2, y: bottom - tall, width: Math.max(each - 4, 1), height: tall, class: "busy" });
    if (each > 34) {
      const text = share < 0.0005 ? "<0.1%" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
      put(svg, "text", { x: at + each / 2, y: bottom - tall - 5, "text-anchor": "middle" }, text);
    }
  }
  const every = Math.ceil((highest + 1) / 16);
  for (let value = 0; value <= highest; value += every) {
    put(svg, "text", { x: left + value * each + each / 2, y: bottom + 16, "text-anchor": "middle" }, String(value) + (beyond > 0 && value > cut ? "+" : ""));
  }
  put(svg, "line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" });
  put(svg, "text", { x: left, y: height - 6 }, "versions behind, when its batch is taken");
  finish(svg);
}
