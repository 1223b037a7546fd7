// Puts the page together: the runs' data as they are asked for, the timeline, and the downloads.

const runs = {
  parsed: new Map(),
  count: document.querySelectorAll("script[id^=run-]").length,
  data(place) {
    if (!this.parsed.has(place)) this.parsed.set(place, JSON.parse(byId(`run-${place}`).textContent));
    return this.parsed.get(place);
  },
  model(place) {
    const data = this.data(place);
    if (data.model === undefined) data.model = prepare(data);
    return data.model;
  },
};

const stage = { view: null, place: 0, waiting: false };

function redraw() {
  if (stage.waiting) return;
  stage.waiting = true;
  requestAnimationFrame(() => {
    stage.waiting = false;
    drawNow();
  });
}

function drawNow() {
  if (!stage.view) return;
  const { view } = stage;
  const step = byId("t-step");
  const chosen = view.model.steps.find(([number]) => String(number) === step.value);
  const off = chosen ? Math.abs(chosen[1] - view.from) + Math.abs(chosen[2] - view.until) : 0;
  if (off > 0.01 * view.span) step.value = ""; // another stretch than that step's
  const width = byId("t-stage").clientWidth;
  if (width !== view.width) {
    view.width = width;
    view.layout();
  }
  paint(view, byId("t-main"));
  paintOverview(view, byId("t-over"));
  const [from, until] = [instant(view.from, view.span), instant(view.until, view.span)];
  const shown = `Shown: ${from} to ${until} of ${duration(view.model.length)} (${duration(view.span)}).`;
  byId("t-how").textContent = `${shown} ${view.words}`;
}

const actions = {
  say: (text) => {
    byId("t-said").textContent = text;
  },
  open: (place, focus = false) => {
    const { view } = stage;
    showTrajectory(view, place, runs.data(stage.place).run);
    actions.say(lifeWords(view.model.lives, place, null).join(", "));
    if (focus) byId("trajectory").focus();
  },
  openNamed: (run, id) => {
    if (run !== stage.place) showRun(run);
    const found = stage.view?.model.lives.place.get(id);
    if (found === undefined) {
      actions.say(`${id}: no trajectory of that name is drawn one by one in this page`);
      return false;
    }
    const { lives } = stage.view.model;
    const room = (lives.end[found] - lives.start[found]) * 0.15;
    stage.view.show(lives.start[found] - room, lives.end[found] + room);
    actions.open(found, true);
    byId("trajectory").scrollIntoView({ block: "nearest" });
    return true;
  },
  window: () => {
    const { view } = stage;
    if (view.model.window) view.show(...view.model.window);
    else actions.say("this run has no steady window");
  },
  scroll: (row) => {
    const box = byId("t-main").getBoundingClientRect();
    const [top, bottom] = [box.top + row.top, box.top + row.top + Math.min(row.height, 200)];
    if (top < 60) window.scrollBy({ top: top - 80 });
    else if (bottom > window.innerHeight - 20) window.scrollBy({ top: bottom - window.innerHeight + 40 });
  },
};

// What was done to the tracks of each kind, once each.
function howDrawn(model) {
  const told = new Map();
  for (const track of model.tracks) if (!told.has(track.group)) told.set(track.group, track.how);
  if (model.lives.id.length) told.set("Each trajectory", model.lives.how);
  const left = model.lives.tools.how ? [`Tool calls: ${model.lives.tools.how}.`] : [];
  return [...[...told].map(([group, how]) => `${group}: ${how}.`), ...left].join(" ");
}

function showKeys(view) {
  const seen = new Map();
  for (const track of view.model.tracks) {
    if (track.names) track.names.forEach((name, code) => seen.set(track.labels[code], name));
    if (track.layers) for (const layer of track.layers) seen.set(layer.label, layer.name);
  }
  const items = [...seen].map(([label, name]) => el("li", {}, swatch(`c-${name}`), label));
  if (view.model.syncs.length) items.push(el("li", { class: "dashed", text: "new weights visible" }));
  byId("t-keys").replaceChildren(...items);
}

function showGroups(view) {
  const boxes = view.groups().map((group) => {
    const box = el("input", { type: "checkbox", checked: !view.hidden.has(group) });
    box.addEventListener("change", () => {
      if (box.checked) view.hidden.delete(group);
      else view.hidden.add(group);
      view.layout();
      redraw();
    });
    return el("label", {}, box, group);
  });
  if (440 / view.model.lives.lanes < 6) {
    const box = el("input", { type: "checkbox", checked: view.tall });
    box.addEventListener("change", () => {
      view.tall = box.checked;
      view.layout();
      redraw();
    });
    boxes.push(el("label", {}, box, "tall rows"));
  }
  byId("t-groups").replaceChildren(...boxes);
}

// The canvas takes its listeners with it when another run takes its place.
function fresh(id) {
  const old = byId(id);
  const made = old.cloneNode(false);
  old.replaceWith(made);
  return made;
}

function showRun(place) {
  stage.place = place;
  const model = runs.model(place);
  byId("trajectory").hidden = true;
  const room = byId("timeline-room");
  room.hidden = !model;
  byId("t-none").hidden = Boolean(model);
  if (byId("t-run")) byId("t-run").value = String(place);
  if (!model) {
    stage.view = null;
    return;
  }
  const view = new View(model, redraw);
  view.chosen = -1;
  view.cursor.life = -1;
  view.words = howDrawn(model);
  stage.view = view;
  view.width = byId("t-stage").clientWidth;
  view.layout();
  const main = fresh("t-main");
  startPointer(view, main, byId("t-tip"), actions);
  startKeys(view, main, actions);
  startOverview(view, fresh("t-over"));
  const options = model.steps.map(([step]) => el("option", { value: step, text: step }));
  byId("t-step").replaceChildren(el("option", { value: "", text: UNKNOWN }), ...options);
  byId("t-window").disabled = !model.window;
  showGroups(view);
  showKeys(view);
  redraw();
}

function startTools() {
  const on = (id, act) => byId(id).addEventListener("click", () => stage.view && act(stage.view));
  on("t-in", (view) => view.zoom(0.5));
  on("t-out", (view) => view.zoom(2));
  on("t-left", (view) => view.move(-0.25));
  on("t-right", (view) => view.move(0.25));
  on("t-all", (view) => view.show(0, view.model.length));
  on("t-window", () => actions.window());
  byId("t-step").addEventListener("change", (event) => {
    const step = stage.view.model.steps.find(([number]) => String(number) === event.target.value);
    if (step) stage.view.show(step[1], step[2]);
  });
  byId("t-find").addEventListener("submit", (event) => {
    event.preventDefault();
    actions.openNamed(stage.place, byId("t-id").value.trim());
  });
  if (byId("t-run")) byId("t-run").addEventListener("change", (event) => showRun(Number(event.target.value)));
}

// Ids in the table of top stragglers open their trajectory.
function linkStragglers() {
  for (const table of document.querySelectorAll('table[data-name="Stragglers"]')) {
    if (!said(table.tHead.rows[0].cells[0]).startsWith("Top stragglers")) continue;
    for (const row of table.tBodies[0].rows) {
      const code = row.cells[0].querySelector("code");
      const id = code.textContent;
      const open = () => actions.openNamed(0, id);
      code.replaceWith(el("button", { type: "button", class: "link", text: id, onclick: open }));
    }
  }
}

// Paper is white: what is painted is painted anew for it, and again for the screen.
function startPrinting() {
  const root = document.documentElement;
  let theme = null;
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme ?? "";
    root.dataset.theme = "light";
    readInk();
    drawNow();
  });
  window.addEventListener("afterprint", () => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    readInk();
    drawNow();
  });
  matchMedia("print").addEventListener("change", () => {
    readInk();
    redraw();
  });
}

function start() {
  startTheme(() => {
    readInk();
    redraw();
  });
  startTables(runs.count ? runs.data(0).run : "bench");
  if (runs.count) {
    startTools();
    showRun(0);
    startStragglers(runs, { open: actions.openNamed });
    linkStragglers();
    showDownloads();
    new ResizeObserver(redraw).observe(byId("t-stage"));
    startPrinting();
  }
  document.documentElement.dataset.ready = "1";
  requestAnimationFrame(() => setTimeout(() => performance.mark("bench-ready"), 0));
}

start();
