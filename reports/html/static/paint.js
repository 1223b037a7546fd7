// Draws tracks and trajectories. Nothing here computes a figure: bins and stretches are drawn as they were recorded.

const INK = {};
const HATCHED = {};

// Colours as the style sheet has them now.
function readInk() {
  const styles = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "rule", "ground", "raised", "accent", "hatch"]) {
    INK[name] = styles.getPropertyValue(`--${name}`).trim();
  }
  INK.of = (name) => styles.getPropertyValue(`--c-${name}`).trim() || styles.getPropertyValue("--c-other").trim();
  INK.fills = new Map();
  for (const pattern of document.querySelectorAll("pattern[id^=hatch-]")) HATCHED[pattern.id.slice(6)] = true;
}

// Fill of a phase or class: its colour, hatched where the style sheet hatches it.
function fillOf(context, name) {
  if (!INK.fills.has(name)) {
    let fill = INK.of(name);
    if (HATCHED[name]) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const pen = tile.getContext("2d");
      pen.fillStyle = fill;
      pen.fillRect(0, 0, 6, 6);
      pen.strokeStyle = INK.hatch;
      pen.lineWidth = 1;
      pen.beginPath();
      for (const shift of [-6, 0, 6]) {
        pen.moveTo(shift, 6);
        pen.lineTo(shift + 6, 0);
      }
      pen.stroke();
      fill = context.createPattern(tile, "repeat");
    }
    INK.fills.set(name, fill);
  }
  return INK.fills.get(name);
}

function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  return pen;
}

// How much of each pixel column each state fills: what is shorter than a pixel keeps its share of it.
function columns(view, track, wide) {
  const codes = track.names.length;
  const sums = new Float64Array(codes * wide);
  const per = view.span / wide;
  const add = (code, from, until, weight) => {
    let x = Math.max(0, Math.floor((from - view.from) / per));
    const last = Math.min(wide - 1, Math.floor((until - view.from) / per));
    for (; x <= last; x++) {
      const begin = view.from + x * per;
      const part = Math.min(until, begin + per) - Math.max(from, begin);
      if (part > 0) sums[code * wide + x] += (weight * part) / per;
    }
  };
  if (track.kind === "states") {
    for (let i = 0; i < track.start.length; i++) {
      const [start, end] = [track.start[i], track.end[i]];
      if (end >= view.from && start <= view.until) add(track.code[i], start, end, 1);
    }
  } else {
    const bin = view.model.length / track.bins;
    const first = Math.max(0, Math.floor(view.from / bin));
    const last = Math.min(track.bins - 1, Math.floor(view.until / bin));
    for (let code = 0; code < codes; code++) {
      for (let i = first; i <= last; i++) {
        const weight = track.shares[code * track.bins + i] / 65535;
        if (weight) add(code, i * bin, (i + 1) * bin, weight);
      }
    }
  }
  return sums;
}

function paintStates(pen, view, row) {
  const wide = Math.max(1, Math.round(view.width - view.left));
  const { track } = row;
  const sums = columns(view, track, wide);
  const pieces = track.names.map(() => []);
  for (let x = 0; x < wide; x++) {
    let under = 0;
    for (let code = 0; code < track.names.length; code++) {
      const part = Math.min(sums[code * wide + x], 1 - under);
      if (part <= 0.002) continue;
      const list = pieces[code];
      const last = list[list.length - 1];
      if (last && last.until === x && last.under === under && last.part === part) last.until = x + 1;
      else list.push({ from: x, until: x + 1, under, part });
      under += part;
    }
  }
  track.names.forEach((name, code) => {
    pen.fillStyle = fillOf(pen, name);
    for (const piece of pieces[code]) {
      const tall = piece.part * row.height;
      const foot = row.top + row.height * (1 - piece.under);
      pen.fillRect(view.left + piece.from, foot - tall, piece.until - piece.from, tall);
    }
  });
}

// Least, mean and most of each pixel column; a column finer than a bin has its bin's.
function perPixel(view, track, wide) {
  const bin = view.model.length / track.bins;
  const per = view.span / wide;
  const made = [];
  for (let x = 0; x < wide; x++) {
    const first = Math.min(track.bins - 1, Math.max(0, Math.floor((view.from + x * per) / bin)));
    const last = Math.min(track.bins - 1, Math.max(first, Math.ceil((view.from + (x + 1) * per) / bin) - 1));
    let [low, sum, high, n] = [Infinity, 0, -Infinity, 0];
    for (let i = first; i <= last; i++) {
      if (Number.isNaN(track.mean[i])) continue;
      low = Math.min(low, track.low[i]);
      high = Math.max(high, track.high[i]);
      sum += track.mean[i];
      n += 1;
    }
    made.push(n ? { low, mean: sum / n, high } : null);
  }
  return made;
}

function paintBand(pen, view, row) {
  const { track } = row;
  const wide = Math.max(1, Math.round(view.width - view.left));
  const y = (value) => row.top + row.height - (value / track.top) * (row.height - 2);
  pen.fillStyle = INK.raised;
  pen.fillRect(view.left, row.top, wide, row.height);
  const seen = perPixel(view, track, wide);
  pen.fillStyle = INK.accent;
  pen.globalAlpha = 0.28;
  seen.forEach((bin, x) => {
    if (bin) pen.fillRect(view.left + x, y(bin.high), 1, Math.max(1, y(bin.low) - y(bin.high)));
  });
  pen.globalAlpha = 1;
  pen.strokeStyle = INK.accent;
  pen.lineWidth = 1.2;
  pen.beginPath();
  let open = false;
  seen.forEach((bin, x) => {
    if (!bin) open = false;
    else if (open) pen.lineTo(view.left + x + 0.5, y(bin.mean));
    else {
      pen.moveTo(view.left + x, y(bin.mean));
      open = true;
    }
  });
  pen.stroke();
  if (track.limit) {
    pen.strokeStyle = INK.soft;
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(view.left, y(track.limit));
    pen.lineTo(view.left + wide, y(track.limit));
    pen.stroke();
    pen.setLineDash([]);
  }
}

function paintStack(pen, view, row, from = view.from, until = view.until) {
  const { track } = row;
  const [left, wide] = [row.left ?? view.left, Math.max(1, Math.round(row.wide ?? view.width - view.left))];
  const y = (value) => row.top + row.height - (value / track.top) * (row.height - 2);
  const bin = view.model.length / track.bins;
  const per = (until - from) / wide;
  pen.fillStyle = INK.raised;
  pen.fillRect(left, row.top, wide, row.height);
  const tops = new Float64Array(wide);
  for (const layer of track.layers) {
    pen.fillStyle = fillOf(pen, layer.name);
    for (let x = 0; x < wide; x++) {
      const first = Math.min(track.bins - 1, Math.max(0, Math.floor((from + x * per) / bin)));
      const last = Math.min(track.bins - 1, Math.max(first, Math.ceil((from + (x + 1) * per) / bin) - 1));
      let sum = 0;
      for (let i = first; i <= last; i++) sum += layer.mean[i];
      const mean = sum / (last - first + 1);
      pen.fillRect(left + x, y(tops[x] + mean), 1, y(tops[x]) - y(tops[x] + mean));
      tops[x] += mean;
    }
  }
  pen.strokeStyle = INK.soft;
  pen.lineWidth = 0.8;
  for (const [values, further] of [[track.high, Math.max], [track.low, Math.min]]) {
    pen.beginPath();
    for (let x = 0; x < wide; x++) {
      const first = Math.min(track.bins - 1, Math.max(0, Math.floor((from + x * per) / bin)));
      const last = Math.min(track.bins - 1, Math.max(first, Math.ceil((from + (x + 1) * per) / bin) - 1));
      let found = values[first];
      for (let i = first + 1; i <= last; i++) found = further(found, values[i]);
      pen.lineTo(left + x + 0.5, y(found));
    }
    pen.stroke();
  }
}

// Fills what is in view and not between two instants.
function outside(pen, view, begin, end, top, tall) {
  const from = Math.min(view.x(begin), view.width);
  const until = Math.max(view.x(end), view.left);
  if (from > view.left) pen.fillRect(view.left, top, from - view.left, tall);
  if (until < view.width) pen.fillRect(until, top, view.width - until, tall);
}

function paintLives(pen, view, row) {
  const { lives } = view.model;
  const { turns, tools } = lives;
  const tall = view.lane - (view.lane >= 4 ? 1 : 0);
  const fills = ["queued", "generating", "tool"].map((name) => fillOf(pen, name));
  const box = (start, end, y) => {
    const from = Math.max(view.x(start), view.left);
    const until = Math.min(view.x(end), view.width);
    if (until > from) pen.fillRect(from, y, until - from, tall);
  };
  if (!lives.whole) {
    pen.fillStyle = fillOf(pen, "other");
    outside(pen, view, lives.from, lives.until, row.top, row.height);
  }
  const first = firstFrom(lives.start, view.from - lives.longest);
  for (let i = first; i < lives.start.length && lives.start[i] <= view.until; i++) {
    if (lives.lane[i] === NO_LANE || lives.end[i] < view.from) continue;
    const y = row.top + lives.lane[i] * view.lane;
    pen.fillStyle = fills[0];
    box(lives.start[i], lives.end[i], y);
    pen.fillStyle = fills[1];
    for (let k = turns.offset[i]; k < turns.offset[i + 1]; k++) box(turns.start[k], turns.end[k], y);
    pen.fillStyle = fills[2];
    for (let k = tools.offset[i]; k < tools.offset[i + 1]; k++) box(tools.start[k], tools.end[k], y);
    if (i === view.chosen) {
      pen.strokeStyle = INK.ink;
      pen.lineWidth = 1.5;
      const from = Math.max(view.x(lives.start[i]), view.left);
      pen.strokeRect(from, y - 1, Math.min(view.x(lives.end[i]), view.width) - from, tall + 2);
    }
  }
}
