// Scales, ticks, texts and colours that all plots share.
const MARGIN = { left: 66, right: 22, top: 10, bottom: 36 };
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

// First index whose time is at least t, between `low` and `high`.
const lowerBound = (times, t, low = 0, high = times.length) => {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < t) low = middle + 1; else high = middle;
  }
  return low;
};

const ticks = (low, high, wanted) => {
  const raw = (high - low) / Math.max(wanted, 1);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push([i * step, (i * step).toFixed(Math.min(digits, 12))]);
  }
  return found;
};

const digits = (value) => {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.min(6, Math.max(0, 3 - size)));
};

const grouped = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// Wall clock (UTC) of a time in nanoseconds after `start`, a BigInt: a double cannot hold epoch nanoseconds.
const wallClock = (start, ns) => {
  const at = start + BigInt(Math.round(ns));
  const day = new Date(Number(at / 1000000n)).toISOString();
  return `${day.slice(0, 10)} ${day.slice(11, 19)}.${String(at % 1000000000n).padStart(9, "0")} UTC`;
};

let known = {}, painted = document.documentElement;  // whose style sheet names the colours
const colour = (name) => known[name]
  ?? (known[name] = getComputedStyle(painted).getPropertyValue(`--${name}`).trim() || "#888");
const forgetColours = (host = painted) => { known = {}; painted = host; };

// "#rrggbb" as the 32 bits of a pixel.
const pixelOf = (hex, alpha) => {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
};

const element = (name, text, parent) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
};

// A table of texts, which may come from a file: never as HTML.
const tableOf = (caption, head, rows) => {
  const table = document.createElement("table");
  element("caption", caption, table);
  const top = element("tr", undefined, element("thead", undefined, table));
  for (const name of head) element("th", name, top).scope = "col";
  const body = element("tbody", undefined, table);
  for (const row of rows) {
    const line = element("tr", undefined, body);
    for (const cell of row) element("td", cell, line);
  }
  return table;
};
