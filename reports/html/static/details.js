// What is under the pointer or the cursor, in words; and one trajectory with its turns.

const optional = (value) => (value === -1 || value === -2147483648 ? null : value);

// [title, ...lines] of what a row shows at an instant; null where it shows nothing.
function whatIs(view, index, at, lane = null) {
  const row = view.rows[index];
  if (!row || at < 0 || at > view.model.length) return null;
  if (row.lives) {
    const place = lane === null ? -1 : view.lifeAt(lane, at);
    return place < 0 ? null : { place, lines: lifeWords(view.model.lives, place, at) };
  }
  const words = { states: stateWords, shares: shareWords, band: bandWords, stack: stackWords };
  return { lines: words[row.track.kind](view, row.track, at) };
}

// The bin that an instant is in, in words.
const binWords = (view, track, i) => {
  const bin = view.model.length / track.bins;
  return `bin of ${duration(bin)} at ${instant(i * bin, view.span)}`;
};

function stateWords(view, track, at) {
  const i = stateAt(track, at);
  if (i < 0) return [track.name, "nothing recorded at this instant", instant(at, view.span)];
  const lines = [track.name, track.labels[track.code[i]]];
  if (track.said) lines.push(`the framework calls it ${track.natives[track.said[i]]}`);
  lines.push(`${duration(track.end[i] - track.start[i])}, from ${instant(track.start[i], view.span)}`);
  return lines;
}

// Of the stretches open at that instant the one that began last.
function stateAt(track, at) {
  let found = -1;
  for (let i = 0; i < track.start.length && track.start[i] <= at; i++) if (track.end[i] > at) found = i;
  return found;
}

function shareWords(view, track, at) {
  const i = Math.min(track.bins - 1, Math.floor((at / view.model.length) * track.bins));
  const shares = track.labels
    .map((label, code) => [label, track.shares[code * track.bins + i] / 65535])
    .filter(([, part]) => part > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([label, part]) => `${label}: ${share(part)}`);
  return [track.name, ...(shares.length ? shares : ["nothing recorded in this bin"]), binWords(view, track, i)];
}

function bandWords(view, track, at) {
  const i = Math.min(track.bins - 1, Math.floor((at / view.model.length) * track.bins));
  const unit = track.unit ? ` ${track.unit}` : "";
  const known = !Number.isNaN(track.mean[i]);
  const lines = [track.name];
  lines.push(known ? `mean ${shortNumber(track.mean[i])}${unit}` : "no reading in this bin");
  if (known) lines.push(`${shortNumber(track.low[i])} to ${shortNumber(track.high[i])}${unit}`);
  lines.push(binWords(view, track, i));
  if (track.about) lines.push(track.about);
  if (track.limit && track.unit) lines.push(`limit ${shortNumber(track.limit)}${unit}`);
  return lines;
}

function stackWords(view, track, at) {
  const i = Math.min(track.bins - 1, Math.floor((at / view.model.length) * track.bins));
  const lines = track.layers.map((layer) => `${layer.label}: ${shortNumber(layer.mean[i])}`);
  const reach = `at any instant: ${track.low[i]} to ${track.high[i]}, mean ${shortNumber(track.mean[i])}`;
  return ["trajectories in flight, means", ...lines, reach, binWords(view, track, i)];
}

function lifeWords(lives, place, at) {
  const { turns, tools } = lives;
  const took = duration(lives.end[place] - lives.start[place]);
  const lines = [lives.id[place], took + (lives.open[place] ? ", never ended" : "")];
  const call = (calls, name) => {
    for (let k = calls.offset[place]; k < calls.offset[place + 1]; k++) {
      const here = at !== null && calls.start[k] <= at && calls.end[k] >= at;
      if (here) lines.push(`${name(k)}: ${duration(calls.end[k] - calls.start[k])}`);
    }
  };
  call(turns, (k) => `turn ${k - turns.offset[place]}`);
  call(tools, (k) => tools.tools[tools.tool[k]] ?? "tool");
  const step = optional(lives.step[place]);
  lines.push(step === null ? "not trained on" : `trained in step ${step}`);
  return lines;
}

function lifeFacts(lives, place, length) {
  const stale = optional(lives.stale[place]);
  const tokens = optional(lives.tokens[place]);
  const step = optional(lives.step[place]);
  const took = duration(lives.end[place] - lives.start[place]);
  const facts = [
    ["status", lives.statuses[lives.status[place]]],
    ["group", lives.groups[lives.group[place]]],
    ["began", instant(lives.start[place], length)],
    ["took", lives.open[place] ? `${took} up to the run's end: it never ended` : took],
    ["turns", counted(lives.turns.offset[place + 1] - lives.turns.offset[place])],
    ["tool calls", counted(lives.tools.offset[place + 1] - lives.tools.offset[place])],
    ["generated tokens", tokens === null ? null : counted(tokens)],
    ["trained in", step === null ? "no step" : `step ${step}`],
    ["staleness at start", stale === null ? null : String(stale)],
    ["reward", lives.reward[place] === null ? null : shortNumber(lives.reward[place])],
    ["why", lives.message[place]],
  ];
  return facts.filter(([name, value]) => value !== null || name !== "why");
}

// Turns and tool calls of one trajectory, in order.
function callsOf(lives, place) {
  const rows = [];
  const { turns, tools } = lives;
  for (let k = turns.offset[place]; k < turns.offset[place + 1]; k++) {
    const version = optional(turns.version[k]);
    const engine = turns.engine[k] < 0 ? null : turns.engines[turns.engine[k]];
    rows.push({
      start: turns.start[k],
      end: turns.end[k],
      colour: "generating",
      kind: `turn ${k - turns.offset[place]}`,
      tokens: optional(turns.tokens[k]),
      about: [engine, version === null ? null : `version ${version}`].filter(Boolean).join(", "),
      status: "",
    });
  }
  for (let k = tools.offset[place]; k < tools.offset[place + 1]; k++) {
    rows.push({
      start: tools.start[k],
      end: tools.end[k],
      colour: "tool",
      kind: tools.tools[tools.tool[k]] ?? "tool call",
      tokens: optional(tools.tokens[k]),
      about: [tools.argument[k], tools.detail[k]].filter(Boolean).join(" · "),
      status: tools.statuses[tools.status[k]] ?? "never ended",
    });
  }
  return rows.sort((a, b) => a.start - b.start || a.end - b.end);
}

// A bar in a row of a chart: shares of the row's width.
function bar(parts, label) {
  const svg = el("svg", { class: "bar", role: "img", "aria-label": label, preserveAspectRatio: "none" });
  for (const part of parts) {
    const at = { x: `${100 * part.from}%`, width: `${100 * Math.max(0, part.until - part.from)}%` };
    const rect = el("rect", { class: part.colour ? `c-${part.colour}` : part.class, y: 0, height: "100%", ...at });
    if (part.fill) rect.style.fill = part.fill;
    if (part.title) rect.append(el("title", { text: part.title }));
    svg.append(rect);
  }
  return svg;
}

function showTrajectory(view, place, run) {
  const { lives } = view.model;
  const [panel, body] = [byId("trajectory"), byId("trajectory-body")];
  byId("trajectory-title").textContent = `Trajectory ${lives.id[place]}`;
  const facts = el("dl", { class: "pairs" });
  for (const [name, value] of lifeFacts(lives, place, view.model.length)) {
    facts.append(el("div", {}, el("dt", { text: name }), el("dd", { text: value ?? UNKNOWN })));
  }
  const [begin, length] = [lives.start[place], Math.max(lives.end[place] - lives.start[place], 1e-9)];
  const rows = el("tbody");
  const columnsOf = [["what"], ["when"], ["took", "r"], ["tokens", "r"], ["status"], ["about"]];
  const head = el("tr", {}, ...columnsOf.map(([name, side]) => el("th", { scope: "col", class: side, text: name })));
  const calls = callsOf(lives, place);
  for (const call of calls) {
    const at = { colour: call.colour, from: (call.start - begin) / length, until: (call.end - begin) / length };
    at.until = Math.min(1, Math.max(at.until, at.from + 0.002));
    const label = `${call.kind}: from ${duration(call.start - begin)}, ${duration(call.end - call.start)}`;
    rows.append(
      el(
        "tr",
        {},
        el("th", { scope: "row", text: call.kind }),
        el("td", { class: "when" }, bar([at], label)),
        el("td", { class: "r", text: duration(call.end - call.start) }),
        el("td", { class: "r", text: call.tokens === null ? UNKNOWN : counted(call.tokens) }),
        el("td", { text: call.status }),
        el("td", { class: "about", text: call.about }),
      ),
    );
  }
  const name = `trajectory ${lives.id[place]}`;
  const region = { class: "scroll", tabindex: 0, role: "region", "aria-label": `table: ${name}` };
  const scroll = el("div", region, el("table", {}, el("thead", {}, head), rows));
  const download = el("button", {
    type: "button",
    class: "csv",
    text: "CSV",
    "aria-label": `save ${name} as CSV`,
    onclick: () =>
      save(`${run}-${lives.id[place]}`, [
        ["what", "start_s", "end_s", "tokens", "status", "about"],
        ...calls.map((call) => [call.kind, call.start, call.end, call.tokens, call.status, call.about]),
      ]),
  });
  const close = el("button", { type: "button", class: "close", text: "Close", onclick: () => closeTrajectory(view) });
  body.replaceChildren(facts, el("figure", { class: "table" }, scroll, download), close);
  panel.hidden = false;
  view.chosen = place;
  view.changed();
}

function closeTrajectory(view) {
  byId("trajectory").hidden = true;
  view.chosen = -1;
  byId("t-main").focus();
  view.changed();
}
