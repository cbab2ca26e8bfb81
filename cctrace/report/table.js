// A table of flows: a click on a head sorts, the field above it searches, and a choice beside that keeps one cause.
const sortable = (table) => {
  const units = { "": 1, k: 1e3, M: 1e6, G: 1e9, "µ": 1e-6, u: 1e-6, m: 1e-3, n: 1e-9 };
  const valueOf = (cell) => {  // NaN unknown, null no number
    const text = cell.textContent.trim();
    if (cell.dataset.v !== undefined || /^(unknown|)$/.test(text)) return parseFloat(cell.dataset.v);
    const found = /^([\d.]+)\s*([kMGuµmn]?)(?=B|bit|s|%|$)/.exec(text);
    return found ? Number(found[1]) * units[found[2]] : null;
  };
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const rows = [...body.rows].map((row) => [row, valueOf(row.cells[column]), row.cells[column].textContent]);
    const largestFirst = body.rows[0]?.cells[column].dataset.v !== undefined;
    const sorted = head.getAttribute("aria-sort");
    const up = sorted === "descending" || (sorted !== "ascending" && !largestFirst);
    for (const one of heads) one.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const isNumeric = rows.every(([, value]) => value !== null);
    const order = ([, x, a], [, y, b]) => (isNumeric ? x - y : a.localeCompare(b, "en", { numeric: true }));
    const isKnown = ([, value]) => !isNumeric || !isNaN(value);
    const known = rows.filter(isKnown).sort((a, b) => (up ? order(a, b) : order(b, a)));
    const last = rows.filter((row) => !isKnown(row));  // unknown, either way
    body.replaceChildren(...[...known, ...last].map(([row]) => row));
  }));
  const field = document.getElementById("search"), only = document.getElementById("only");
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean), cause = only?.value;
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || Boolean(cause && row.dataset.verdict !== cause);
      shown += row.hidden ? 0 : 1;
    }
    document.getElementById("found").textContent = words.length || cause ? `${shown} of ${body.rows.length} flows` : "";
  };
  field?.addEventListener("input", filter);
  only?.addEventListener("change", filter);
  const tools = document.getElementById("tools");
  if (tools) tools.hidden = false;  // of no use without this script
};
