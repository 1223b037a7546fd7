// Elements, packed arrays and words. What comes from a run only ever becomes text: no markup is made of strings here.

const SVG = "http://www.w3.org/2000/svg";
const UNKNOWN = "–";
const byId = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const svg = tag === "svg" || tag === "rect" || tag === "title" || tag === "line";
  const made = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
  return made;
}

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };

// The array that was packed. Bytes are little-endian, as on every machine that has a browser.
function unpack(packed) {
  const text = atob(packed.d);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[packed.k](bytes.buffer);
}

// Seconds as the report writes them: two digits below 10 s, milliseconds below a tenth.
function duration(value) {
  const size = Math.abs(value);
  if (size >= 10) return `${value.toFixed(0)} s`;
  if (size >= 1) return `${value.toFixed(1)} s`;
  if (size >= 0.1) return `${value.toFixed(2)} s`;
  return value ? `${Number((1e3 * value).toPrecision(2))} ms` : "0 s";
}

// An instant of the run: as fine as the stretch that is shown.
function instant(value, span) {
  const digits = span >= 100 ? 0 : span >= 10 ? 1 : span >= 1 ? 2 : span >= 0.1 ? 3 : 4;
  return `${value.toFixed(digits)} s`;
}

const counted = (value) => value.toLocaleString("en-US");
const share = (value) => `${(100 * value).toFixed(1)}%`;
const shortNumber = (value) => (Number.isFinite(value) ? counted(Number(value.toPrecision(3))) : UNKNOWN);

// A square in the colour of a phase or class, for the key of a chart.
const swatch = (kind) =>
  el("svg", { width: 12, height: 12, "aria-hidden": "true" }, el("rect", { class: kind, width: 12, height: 12 }));

// The first place in ascending `values` that is not below `wanted`.
function firstFrom(values, wanted) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
