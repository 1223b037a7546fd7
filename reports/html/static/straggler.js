// The straggler chart: one bar per trajectory of the step that is chosen, in order of completion.

const MOST_BARS = 64; // of one step; the others are drawn when they are asked for

// Shades that darken with the number of tool calls, also without colour.
function shade(calls, fewest, most) {
  const part = most > fewest ? (calls - fewest) / (most - fewest) : 0.4;
  return `color-mix(in oklab, var(--shade-from), var(--shade-to) ${Math.round(100 * part)}%)`;
}

function showBatch(batch, batches, actions, room = MOST_BARS) {
  const [start, end, calls] = [unpack(batch.start), unpack(batch.end), unpack(batch.calls)];
  const drawn = Math.min(batch.id.length, room);
  const skipped = batch.id.length - drawn; // the first to end
  const [fewest, most] = [Math.min(...calls), Math.max(...calls)];
  const [first, last] = [Math.min(0, ...start), Math.max(...end, 1e-9)];
  const at = (value) => (value - first) / (last - first);
  const of = batches.relative ? "the longest trajectory" : "the rollout phase";
  byId("s-title").textContent =
    batch.gap === null
      ? `How long each of ${batch.id.length} trajectories took`
      : batches.relative
        ? `The slowest trajectory took ${duration(batch.gap)} longer than the median one`
        : `The last trajectory ended ${duration(batch.gap)} after the median one: ${share(batch.share)} of ${of}`;
  const order = batches.relative
    ? "shortest first; asynchronous, so each bar begins at its trajectory's own start"
    : "in order of completion, from the begin of the rollout phase";
  const cut = skipped ? ` Drawn: the ${counted(drawn)} latest.` : "";
  const all = `Step ${batch.step}, ${counted(batch.id.length)} trajectories`;
  byId("s-how").textContent = `${all}, ${order}.${cut} First shown: ${batches.how}.`;
  const keys = [];
  for (let n = fewest; n <= most; n += Math.max(1, Math.ceil((most - fewest + 1) / 9))) {
    const square = swatch(null);
    square.firstChild.style.fill = shade(n, fewest, most);
    keys.push(el("li", {}, square, `${n} ${n === 1 ? "tool call" : "tool calls"}`));
  }
  if (batch.gap !== null) keys.push(el("li", {}, swatch("tail"), "median to last"));
  byId("s-keys").replaceChildren(...keys);
  const rows = [];
  for (let i = skipped; i < batch.id.length; i++) {
    const value = `${duration(end[i] - start[i])} · ${calls[i]}`;
    const words = `${batch.id[i]}: ${duration(end[i] - start[i])}, ${calls[i]} tool calls`;
    const parts = [];
    if (batch.gap !== null) parts.push({ class: "tail", from: at(batch.median), until: at(batch.last) });
    parts.push({ fill: shade(calls[i], fewest, most), from: at(start[i]), until: at(end[i]), title: words });
    const open = () => actions.open(batch.id[i]);
    const name = el("button", { type: "button", class: "name link", text: batch.id[i], onclick: open });
    rows.push(el("div", { class: "row thin" }, name, bar(parts, words), el("span", { class: "value", text: value })));
  }
  if (skipped) {
    const more = () => showBatch(batch, batches, actions, Infinity);
    const words = `Draw all ${counted(batch.id.length)}`;
    rows.unshift(el("p", {}, el("button", { type: "button", text: words, onclick: more })));
  }
  byId("s-rows").replaceChildren(...rows);
}

function startStragglers(runs, actions) {
  if (!byId("stragglers-chart")) return;
  const [run, step] = [byId("s-run"), byId("s-step")];
  const batches = () => runs.data(run ? Number(run.value) : 0).batches;
  const draw = () => {
    const batch = batches().steps.find((one) => String(one.step) === step.value);
    if (batch) showBatch(batch, batches(), { open: (id) => actions.open(run ? Number(run.value) : 0, id) });
  };
  const fill = () => {
    const known = [...batches().steps];
    const chosen = known.length ? known[0].step : "";
    known.sort((a, b) => a.step - b.step);
    const words = (one) => (one.gap === null ? `${one.step}` : `${one.step} (gap ${duration(one.gap)})`);
    step.replaceChildren(...known.map((one) => el("option", { value: one.step, text: words(one) })));
    step.value = String(chosen);
    step.closest("label").hidden = !known.length;
    if (!known.length) {
      byId("s-rows").replaceChildren();
      byId("s-keys").replaceChildren();
      byId("s-title").textContent = "No straggler chart";
      byId("s-how").textContent = `Not drawn: ${batches().how}.`;
    }
    draw();
  };
  step.addEventListener("change", draw);
  if (run) run.addEventListener("change", fill);
  fill();
}
