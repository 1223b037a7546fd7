// What of a run is shown, and where: its tracks unpacked, the stretch in view, and the rows on the canvas.

const LABEL_WIDTH = 150; // left of the tracks, where there is room for it
const NARROW = 640;
const AXIS = 34;
const HEIGHTS = { states: 18, shares: 18, band: 30, stack: 84 };
const GROUP_LINE = 24;
const NO_LANE = 65535;

function prepare(data) {
  const timeline = data.timeline;
  if (!timeline) return null;
  const at = (packed) => Float64Array.from(unpack(packed), (tick) => tick * timeline.tick);
  const tracks = timeline.tracks.map((track) => {
    const made = { ...track };
    if (track.kind === "states") {
      Object.assign(made, { start: at(track.start), end: at(track.end), code: unpack(track.code) });
      made.said = track.said ? unpack(track.said) : null;
    } else if (track.kind === "shares") {
      made.shares = unpack(track.shares);
    } else if (track.kind === "band") {
      Object.assign(made, { low: unpack(track.low), mean: unpack(track.mean), high: unpack(track.high) });
      let top = track.limit || 0;
      for (const value of made.high) if (value > top) top = value;
      made.top = top || 1;
    } else {
      made.layers = track.layers.map((layer) => ({ ...layer, mean: unpack(layer.mean) }));
      Object.assign(made, { low: unpack(track.low), mean: unpack(track.mean), high: unpack(track.high) });
      made.top = made.high.reduce((most, value) => Math.max(most, value), 1);
    }
    return made;
  });
  // Tracks of one kind share a scale: what is higher in one is higher in all.
  for (const group of new Set(tracks.map((track) => track.group))) {
    const mine = tracks.filter((track) => track.group === group && track.kind === "band");
    const top = Math.max(...mine.map((track) => track.top));
    for (const track of mine) track.top = top;
  }
  return { ...timeline, tracks, lives: unpackLives(timeline.lives, at) };
}

function unpackLives(lives, at) {
  const calls = (some) => ({
    ...some,
    offset: unpack(some.offset),
    start: at(some.start),
    end: at(some.end),
    tokens: unpack(some.tokens),
  });
  const turns = calls(lives.turns);
  turns.engine = unpack(lives.turns.engine);
  turns.version = unpack(lives.turns.version);
  const tools = calls(lives.tools);
  tools.tool = unpack(lives.tools.tool);
  tools.status = unpack(lives.tools.status);
  const made = { ...lives, turns, tools, start: at(lives.start), end: at(lives.end), lane: unpack(lives.lane) };
  for (const name of ["status", "group", "open", "step", "stale", "tokens"]) made[name] = unpack(lives[name]);
  made.place = new Map(lives.id.map((id, place) => [id, place]));
  let longest = 0;
  for (let i = 0; i < made.start.length; i++) longest = Math.max(longest, made.end[i] - made.start[i]);
  made.longest = longest;
  return made;
}

class View {
  constructor(model, changed) {
    this.model = model;
    this.changed = changed;
    this.hidden = new Set();
    this.tall = false;
    this.past = [];
    this.cursor = { row: -1, at: null };
    this.width = 800;
    [this.from, this.until] = this.busy();
    this.layout();
  }

  get span() {
    return this.until - this.from;
  }

  get left() {
    return this.width < NARROW ? 0 : LABEL_WIDTH;
  }

  // What is shown first: the whole run, unless most of it is start-up and shut-down.
  busy() {
    const { model } = this;
    const first = Math.min(model.lives.start[0] ?? Infinity, ...model.steps.slice(0, 1).map((step) => step[1]));
    const last = Math.max(-Infinity, ...model.steps.slice(-1).map((step) => step[2]));
    if (!(last > first) || last - first > 0.7 * model.length) return [0, model.length];
    const room = 0.04 * (last - first);
    return [Math.max(0, first - room), Math.min(model.length, last + room)];
  }

  x(at) {
    return this.left + ((at - this.from) / this.span) * (this.width - this.left);
  }

  at(x) {
    return this.from + ((x - this.left) / (this.width - this.left)) * this.span;
  }

  groups() {
    const named = [...new Set(this.model.tracks.map((track) => track.group))];
    return this.model.lives.id.length ? [...named, "Each trajectory"] : named;
  }

  // Rows from top to bottom: {track | lives, top, height}; narrow, names stand above their rows.
  layout() {
    const above = this.width < NARROW ? 15 : 0;
    let top = AXIS;
    this.rows = [];
    this.heads = [];
    for (const group of this.groups()) {
      if (this.hidden.has(group)) continue;
      this.heads.push({ name: group, top });
      top += GROUP_LINE;
      if (group === "Each trajectory") {
        const lanes = Math.max(1, this.model.lives.lanes);
        this.lane = this.tall ? Math.min(8, 12000 / lanes) : Math.min(8, 440 / lanes);
        this.rows.push({ lives: true, top, height: Math.max(12, lanes * this.lane), name: "" });
        top += Math.max(12, lanes * this.lane) + 8;
        continue;
      }
      for (const track of this.model.tracks.filter((one) => one.group === group)) {
        const height = HEIGHTS[track.kind];
        this.rows.push({ track, top: top + above, height, name: track.name });
        top += above + height + 4;
      }
      top += 4;
    }
    this.height = top + 4;
    this.cursor.row = Math.min(this.cursor.row, this.rows.length - 1);
  }

  show(from, until, remember = true) {
    const least = Math.max(this.model.tick * 20, this.model.length * 1e-7);
    const span = Math.min(Math.max(until - from, least), this.model.length);
    const middle = (from + until) / 2;
    const begin = Math.min(Math.max(middle - span / 2, 0), this.model.length - span);
    if (remember && (begin !== this.from || begin + span !== this.until)) this.past.push([this.from, this.until]);
    if (this.past.length > 100) this.past.shift();
    [this.from, this.until] = [begin, begin + span];
    this.changed();
  }

  zoom(factor, about = (this.from + this.until) / 2, remember = true) {
    this.show(about - (about - this.from) * factor, about + (this.until - about) * factor, remember);
  }

  move(part) {
    this.show(this.from + part * this.span, this.until + part * this.span, false);
  }

  back() {
    const before = this.past.pop();
    if (before) this.show(before[0], before[1], false);
  }

  // Keeps a thing in view: moves as little as it must.
  reveal(start, end) {
    if (start >= this.from && end <= this.until) return this.changed();
    const room = Math.max(this.span, (end - start) * 1.3);
    return this.show((start + end) / 2 - room / 2, (start + end) / 2 + room / 2);
  }

  rowAt(y) {
    return this.rows.findIndex((row) => y >= row.top - 2 && y < row.top + row.height + 2);
  }

  // The trajectory in that lane at that instant, or -1.
  lifeAt(lane, at) {
    const lives = this.model.lives;
    for (let i = firstFrom(lives.start, at - lives.longest); i < lives.start.length && lives.start[i] <= at; i++) {
      if (lives.lane[i] === lane && lives.end[i] >= at) return i;
    }
    return -1;
  }
}
