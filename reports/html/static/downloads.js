// What the page holds, as tables: made when someone asks for one.

// Names and rows of each table of a run.
function tablesOf(place) {
  const data = runs.data(place);
  const made = Object.entries(data.tables).map(([name, table]) => [name, () => [table.columns, ...table.rows]]);
  if (!data.timeline) return made;
  made.push(["trajectories", () => lifeRows(runs.model(place).lives)]);
  made.push(["turns", () => callRows(runs.model(place).lives, "turns")]);
  made.push(["tool calls", () => callRows(runs.model(place).lives, "tools")]);
  for (const group of new Set(data.timeline.tracks.map((track) => track.group))) {
    made.push([group, () => trackRows(runs.model(place), group)]);
  }
  return made;
}

function lifeRows(lives) {
  const columnsOf = {
    trajectory_id: (i) => lives.id[i],
    group_id: (i) => lives.groups[lives.group[i]],
    status: (i) => lives.statuses[lives.status[i]],
    start_s: (i) => lives.start[i],
    end_s: (i) => (lives.open[i] ? null : lives.end[i]),
    step_consumed: (i) => optional(lives.step[i]),
    staleness_at_start: (i) => optional(lives.stale[i]),
    generated_tokens: (i) => optional(lives.tokens[i]),
    reward: (i) => lives.reward[i],
    message: (i) => lives.message[i],
  };
  const values = Object.values(columnsOf);
  return [Object.keys(columnsOf), ...lives.id.map((_, i) => values.map((value) => value(i)))];
}

function callRows(lives, kind) {
  const calls = lives[kind];
  const own =
    kind === "turns"
      ? {
          engine: (k) => (calls.engine[k] < 0 ? null : calls.engines[calls.engine[k]]),
          version_start: (k) => optional(calls.version[k]),
        }
      : {
          tool: (k) => calls.tools[calls.tool[k]],
          status: (k) => calls.statuses[calls.status[k]],
          argument: (k) => calls.argument[k],
          detail: (k) => calls.detail[k],
        };
  const values = Object.values(own);
  const rows = [["trajectory_id", "number", "start_s", "end_s", "tokens", ...Object.keys(own)]];
  lives.id.forEach((id, i) => {
    for (let k = calls.offset[i]; k < calls.offset[i + 1]; k++) {
      const place = [id, k - calls.offset[i], calls.start[k], calls.end[k], optional(calls.tokens[k])];
      rows.push([...place, ...values.map((value) => value(k))]);
    }
  });
  return rows;
}

// The tracks of a group as they are in the page: stretches as recorded, or bins.
function trackRows(model, group) {
  const rows = [["track", "start_s", "end_s", "what", "low", "mean_or_share", "high"]];
  for (const track of model.tracks.filter((one) => one.group === group)) {
    const { name, kind } = track;
    if (kind === "states") {
      for (let i = 0; i < track.start.length; i++) {
        rows.push([name, track.start[i], track.end[i], track.names[track.code[i]], null, null, null]);
      }
      continue;
    }
    const bin = model.length / track.bins;
    for (let i = 0; i < track.bins; i++) {
      const place = [name, i * bin, (i + 1) * bin];
      if (kind === "shares") {
        track.names.forEach((what, code) => {
          const part = track.shares[code * track.bins + i] / 65535;
          if (part) rows.push([...place, what, null, part, null]);
        });
      } else if (kind === "stack") {
        for (const layer of track.layers) rows.push([...place, layer.name, null, layer.mean[i], null]);
        rows.push([...place, "in flight", track.low[i], track.mean[i], track.high[i]]);
      } else rows.push([...place, track.unit, track.low[i], track.mean[i], track.high[i]]);
    }
  }
  return rows;
}

function showDownloads() {
  for (let place = 0; place < runs.count; place++) {
    const data = runs.data(place);
    const buttons = tablesOf(place).map(([name, rows]) => {
      const label = `save ${name} of ${data.name} as CSV`;
      const act = () => save(`${data.run}-${name}`, rows());
      return el("button", { type: "button", text: name, "aria-label": label, onclick: act });
    });
    if (runs.count > 1) byId("d-list").append(el("h3", { text: data.name }));
    byId("d-list").append(el("p", { class: "downloads" }, ...buttons));
  }
}
