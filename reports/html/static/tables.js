// Tables: sorted by any column, and saved as CSV.

function sortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = el("button", { type: "button", class: "sort" });
    button.append(...head.childNodes);
    if (!button.textContent.trim()) button.setAttribute("aria-label", `sort by column ${column + 1}`);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const next = before === "descending" ? "ascending" : before === "ascending" ? null : "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (next) head.setAttribute("aria-sort", next);
      body.append(...(next ? [...original].sort(order(column, next === "ascending" ? 1 : -1)) : original));
    });
  });
}

// Numbers by size, then what has none by its text; what is not known stays last either way.
function order(column, sign) {
  const key = (row) => {
    const cell = row.cells[column];
    const number = cell.dataset.v === undefined ? null : Number(cell.dataset.v);
    const text = said(cell);
    return { number, text, rank: number !== null ? 0 : text === UNKNOWN || text === "" ? 2 : 1 };
  };
  return (a, b) => {
    const one = key(a);
    const two = key(b);
    if (one.rank !== two.rank) return one.rank - two.rank;
    if (one.rank === 0) return sign * (one.number - two.number);
    return sign * one.text.localeCompare(two.text);
  };
}

// A cell's text without the numbers of its notes.
function said(cell) {
  const copy = cell.cloneNode(true);
  for (const note of copy.querySelectorAll("sup")) note.remove();
  return copy.textContent.replace(/\s+/g, " ").trim();
}

// A value for CSV: quoted where it must be; text that a spreadsheet would take for a formula is made text.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  let text = String(value);
  if (/^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+(e[+-]?\d+)?\s?[%a-zA-Z/]*$/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csv = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

function save(name, rows) {
  const url = URL.createObjectURL(new Blob([csv(rows)], { type: "text/csv" }));
  const link = el("a", { href: url, download: name.replace(/[^\w.-]+/g, "-") + ".csv" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Rows of a table as they stand, a dash with the reason that its note gives.
function rowsOf(table) {
  return [...table.rows].map((row) =>
    [...row.cells].map((cell) => {
      const text = said(cell);
      const note = cell.querySelector("a.noteref");
      return text === UNKNOWN && note ? `unknown: ${note.title}` : text === UNKNOWN ? "" : text;
    }),
  );
}

function startTables(prefix) {
  for (const table of document.querySelectorAll("table[data-sortable]")) sortable(table);
  for (const table of document.querySelectorAll("main table[data-name]")) {
    const name = `${prefix}-${table.dataset.name}-${said(table.tHead.rows[0].cells[0]) || "table"}`;
    const label = `save table ${table.dataset.name} as CSV`;
    const button = el("button", { type: "button", class: "csv", "aria-label": label, title: label, text: "CSV" });
    button.addEventListener("click", () => save(name, rowsOf(table)));
    table.closest("figure").append(button);
  }
}
