// Pointer, wheel, touch and keys on the timeline. All of it can be done with keys alone.

const DRAG = 4; // pixels before a press is a drag

function startPointer(view, canvas, tip, actions) {
  const pointers = new Map();
  let press = null;
  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const under = (x, y) => {
    const index = view.rowAt(y);
    const row = view.rows[index];
    if (!row || x < view.left) return null;
    const lane = row.lives ? Math.floor((y - row.top) / view.lane) : null;
    const what = whatIs(view, index, view.at(x), lane);
    return what && { ...what, index };
  };
  const hover = (x, y) => {
    const what = under(x, y);
    view.cursor.at = x >= view.left ? view.at(x) : null;
    canvas.style.cursor = what && what.place !== undefined ? "pointer" : "crosshair";
    showTip(tip, what && what.lines, x, y, view.width);
    view.changed();
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = local(event);
    pointers.set(event.pointerId, x);
    const pan = event.pointerType === "touch" || event.shiftKey || event.button === 1;
    press = { x, y, pan, from: view.from, until: view.until, moved: false, pinch: null };
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      press.pinch = { apart: Math.max(8, Math.abs(a - b)), at: view.at((a + b) / 2) };
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = local(event);
    if (!press || !pointers.has(event.pointerId)) return hover(x, y);
    pointers.set(event.pointerId, x);
    if (press.pinch && pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      const factor = press.pinch.apart / Math.max(8, Math.abs(a - b));
      const about = press.pinch.at;
      press.moved = true;
      return view.show(about - (about - press.from) * factor, about + (press.until - about) * factor, false);
    }
    if (Math.abs(x - press.x) < DRAG && !press.moved) return undefined;
    press.moved = true;
    tip.hidden = true;
    if (press.pan) {
      const shift = ((press.x - x) / (view.width - view.left)) * (press.until - press.from);
      return view.show(press.from + shift, press.until + shift, false);
    }
    view.brush = [Math.max(press.x, view.left), Math.max(x, view.left)];
    return view.changed();
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (!press || pointers.size) return;
    const { moved } = press;
    press = null;
    if (view.brush) {
      const [a, b] = view.brush.map((x) => view.at(x));
      view.brush = null;
      if (event.type === "pointerup" && Math.abs(a - b) > 0) view.show(Math.min(a, b), Math.max(a, b));
      else view.changed();
    } else if (!moved && event.type === "pointerup") {
      const [x, y] = local(event);
      const what = under(x, y);
      view.cursor.row = what ? what.index : view.cursor.row;
      if (what && what.place !== undefined) actions.open(what.place);
      hover(x, y);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    if (!press) view.cursor.at = null;
    view.changed();
  });
  canvas.addEventListener("dblclick", (event) => view.zoom(0.4, view.at(local(event)[0])));
  canvas.addEventListener(
    "wheel",
    (event) => {
      const zooms = event.ctrlKey || event.metaKey || document.activeElement === canvas;
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!zooms && !sideways) return; // the page scrolls
      event.preventDefault();
      if (sideways) view.move(event.deltaX / (view.width - view.left));
      else view.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), view.at(local(event)[0]), false);
    },
    { passive: false },
  );
}

function showTip(tip, lines, x, y, width) {
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(...lines.map((line, place) => el(place ? "span" : "strong", { text: line })));
  const wide = Math.min(tip.offsetWidth, width);
  tip.style.left = `${Math.max(0, Math.min(x + 14, width - wide))}px`;
  tip.style.top = `${y + 16}px`;
}

// Dragging in the strip of the whole run moves the view there.
function startOverview(view, canvas) {
  const go = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = ((event.clientX - box.left - view.left) / (view.width - view.left)) * view.model.length;
    view.show(at - view.span / 2, at + view.span / 2, false);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons && go(event));
}

// Starts of the things on a row, in order, for the keys that go from one to the next.
function stops(view, row) {
  const { lives } = view.model;
  if (row.lives) return lives.start;
  if (row.track.kind === "states") return row.track.start;
  return null;
}

function startKeys(view, canvas, actions) {
  const place = () => {
    if (view.cursor.row < 0) view.cursor.row = 0;
    const { at } = view.cursor;
    if (at === null || at < view.from || at > view.until) view.cursor.at = (view.from + view.until) / 2;
  };
  const tell = () => {
    const row = view.rows[view.cursor.row];
    if (!row) return;
    if (row.lives) {
      const { lives } = view.model;
      const i = view.cursor.life;
      const all = `${counted(lives.id.length)} trajectories: comma and full stop go from one to the next`;
      actions.say(i >= 0 ? lifeWords(lives, i, null).join(", ") : all);
    } else actions.say(whatIs(view, view.cursor.row, view.cursor.at)?.lines.join(", ") ?? "");
  };
  const next = (sign) => {
    place();
    const row = view.rows[view.cursor.row];
    const starts = stops(view, row);
    if (!starts) {
      view.cursor.at = Math.min(view.model.length, Math.max(0, view.cursor.at + (sign * view.span) / 50));
      view.reveal(view.cursor.at, view.cursor.at);
    } else if (starts.length) {
      const after = firstFrom(starts, view.cursor.at + (sign > 0 ? view.model.tick : 0)) - (sign > 0 ? 0 : 1);
      const wanted = row.lives && view.cursor.life >= 0 ? view.cursor.life + sign : after;
      const i = Math.min(starts.length - 1, Math.max(0, wanted));
      const ends = row.lives ? view.model.lives.end : row.track.end;
      if (row.lives) {
        view.cursor.life = i;
        view.chosen = i;
      }
      view.cursor.at = starts[i];
      view.reveal(starts[i], ends[i]);
    }
    tell();
  };
  const row = (sign) => {
    place();
    view.cursor.row = Math.min(view.rows.length - 1, Math.max(0, view.cursor.row + sign));
    view.cursor.life = -1;
    actions.scroll(view.rows[view.cursor.row]);
    view.changed();
    tell();
  };
  const keys = {
    "+": () => view.zoom(0.5, view.cursor.at ?? undefined),
    "=": () => view.zoom(0.5, view.cursor.at ?? undefined),
    "-": () => view.zoom(2),
    ArrowLeft: () => view.move(-0.2),
    ArrowRight: () => view.move(0.2),
    ArrowUp: () => row(-1),
    ArrowDown: () => row(1),
    Home: () => view.show(0, view.model.length),
    w: () => actions.window(),
    Backspace: () => view.back(),
    ",": () => next(-1),
    ".": () => next(1),
    Enter: () => view.rows[view.cursor.row]?.lives && view.cursor.life >= 0 && actions.open(view.cursor.life, true),
    Escape: () => canvas.blur(),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  for (const kind of ["focus", "blur"]) {
    canvas.addEventListener(kind, () => {
      view.focused = kind === "focus" && canvas.matches(":focus-visible");
      view.changed();
    });
  }
}
