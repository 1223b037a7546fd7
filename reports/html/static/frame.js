// Around the tracks: names, the axis of time, the cursor, and the strip of the whole run.

function shorten(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let size = text.length;
  while (size > 1 && pen.measureText(`${text.slice(0, size)}…`).width > room) size -= 1;
  return `${text.slice(0, size)}…`;
}

// The axis: seconds, steps, syncs; what lies outside the steady window is dimmed.
function paintAxis(pen, view) {
  const { model } = view;
  const wide = view.width - view.left;
  const raw = view.span / Math.max(2, Math.floor(wide / 90));
  const power = 10 ** Math.floor(Math.log10(raw));
  const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  pen.textAlign = "center";
  pen.fillStyle = INK.soft;
  for (let at = Math.ceil(view.from / tick) * tick; at <= view.until; at += tick) {
    const text = `${Number(at.toPrecision(10)).toLocaleString("en-US", { maximumFractionDigits: 6 })} s`;
    const half = pen.measureText(text).width / 2;
    const x = Math.min(Math.max(view.x(at), view.left + half), view.width - half);
    pen.fillText(text, x, 11);
    pen.fillRect(view.x(at), 15, 1, 4);
  }
  if (model.window) {
    pen.fillStyle = INK.ground;
    pen.globalAlpha = 0.55;
    outside(pen, view, ...model.window, 20, view.height);
    pen.globalAlpha = 1;
  }
  const inside = (at) => at >= view.from && at <= view.until;
  pen.setLineDash([3, 3]);
  pen.strokeStyle = INK.accent;
  pen.lineWidth = 1;
  const syncs = model.syncs.filter(([, at]) => inside(at));
  if (syncs.length < wide / 24) {
    pen.beginPath();
    for (const [, at] of syncs) {
      pen.moveTo(view.x(at), AXIS);
      pen.lineTo(view.x(at), view.height);
    }
    pen.stroke();
  }
  pen.setLineDash([]);
  pen.strokeStyle = INK.soft;
  let free = view.left;
  const steps = model.steps.filter(([, start, end]) => end >= view.from && start <= view.until);
  const foot = steps.length < wide / 24 ? view.height : AXIS; // many lines would hide what they cross
  for (const [step, start, end] of steps) {
    if (inside(end)) {
      pen.globalAlpha = 0.5;
      pen.beginPath();
      pen.moveTo(view.x(end), 20);
      pen.lineTo(view.x(end), foot);
      pen.stroke();
      pen.globalAlpha = 1;
    }
    const [from, until] = [Math.max(view.x(start), view.left), Math.min(view.x(end), view.width)];
    if (until - from < 2) continue; // no more than its edge is in view
    const text = until - from > 60 ? `step ${step}` : String(step);
    const need = pen.measureText(text).width + 6;
    const middle = Math.min(Math.max((from + until) / 2, view.left + need / 2), view.width - need / 2);
    if (middle - need / 2 >= free) {
      pen.fillStyle = INK.ink;
      pen.fillText(text, middle, 30);
      free = middle + need / 2 + (until - from < need ? 24 : 0);
    }
  }
  pen.textAlign = "left";
}

function paint(view, canvas) {
  const pen = sized(canvas, view.width, view.height);
  const painters = { states: paintStates, shares: paintStates, band: paintBand, stack: paintStack };
  for (const row of view.rows) {
    if (row.lives) paintLives(pen, view, row);
    else painters[row.track.kind](pen, view, row);
  }
  paintAxis(pen, view);
  pen.fillStyle = INK.ground;
  pen.fillRect(0, AXIS, view.left, view.height);
  for (const head of view.heads) {
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillStyle = INK.ink;
    pen.fillText(head.name, 0, head.top + 16);
    pen.font = "12px system-ui, sans-serif";
  }
  pen.fillStyle = INK.soft;
  for (const row of view.rows) {
    if (!row.name) continue;
    if (view.left) pen.fillText(shorten(pen, row.name, view.left - 12), 0, row.top + Math.min(row.height - 4, 14));
    else {
      // above its row, where lines may cross it
      const text = shorten(pen, row.name, view.width);
      pen.strokeStyle = INK.ground;
      pen.lineWidth = 4;
      pen.strokeText(text, 0, row.top - 4);
      pen.fillText(text, 0, row.top - 4);
    }
    if (row.track.kind === "band" || row.track.kind === "stack") {
      const text = `${shortNumber(row.track.top)} ${row.track.unit}`.trim();
      const room = pen.measureText(text).width;
      const line = row.name.length > 14 ? 27 : 14;
      if (view.left && row.height >= 28) pen.fillText(text, view.left - room - 6, row.top + line);
    }
  }
  paintCursor(pen, view);
}

function paintCursor(pen, view) {
  const row = view.rows[view.cursor.row];
  pen.strokeStyle = INK.accent;
  if (row && view.focused) {
    pen.lineWidth = 1.5;
    pen.strokeRect(view.left + 0.75, row.top - 1.5, view.width - view.left - 1.5, row.height + 3);
  }
  if (view.cursor.at !== null && view.cursor.at >= view.from && view.cursor.at <= view.until) {
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(view.x(view.cursor.at), 20);
    pen.lineTo(view.x(view.cursor.at), view.height);
    pen.stroke();
  }
  if (view.brush) {
    const [from, until] = view.brush;
    pen.fillStyle = INK.accent;
    pen.globalAlpha = 0.15;
    pen.fillRect(Math.min(from, until), 20, Math.abs(until - from), view.height);
    pen.globalAlpha = 1;
  }
}

// The whole run in a strip, and where in it the view is.
function paintOverview(view, canvas) {
  const pen = sized(canvas, view.width, 34);
  const track = view.model.tracks.find((one) => one.kind === "stack");
  const row = { track, top: 0, height: 34, left: view.left, wide: view.width - view.left };
  if (track) paintStack(pen, view, row, 0, view.model.length);
  const x = (at) => view.left + (at / view.model.length) * (view.width - view.left);
  pen.fillStyle = INK.ground;
  pen.globalAlpha = 0.65;
  pen.fillRect(view.left, 0, x(view.from) - view.left, 34);
  pen.fillRect(x(view.until), 0, view.width - x(view.until), 34);
  pen.globalAlpha = 1;
  pen.strokeStyle = INK.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(x(view.from) + 0.75, 0.75, Math.max(2, x(view.until) - x(view.from) - 1.5), 32.5);
  pen.fillStyle = INK.soft;
  if (view.left) pen.fillText("whole run", 0, 21);
}
