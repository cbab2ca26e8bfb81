// The overview: a click on a head sorts, the field above searches.
const sortable = (table) => {
  const units = { "": 1, k: 1e3, M: 1e6, G: 1e9, "µ": 1e-6, u: 1e-6, m: 1e-3, n: 1e-9 };
  const valueOf = (text) => {
    const found = /^([\d.]+)\s*([kMGuµmn]?)(?=B|bit|s|%|$)/.exec(text.trim());
    return found ? Number(found[1]) * units[found[2]] : null;
  };
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const one of heads) one.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [row, row.cells[column].textContent]);
    const numbers = rows.every(([, text]) => valueOf(text) !== null || /^(unknown|)$/.test(text));
    rows.sort(([, a], [, b]) => (numbers ? (valueOf(a) ?? -1) - (valueOf(b) ?? -1) : a.localeCompare(b, "en", { numeric: true })));
    if (!up) rows.reverse();
    body.replaceChildren(...rows.map(([row]) => row));
  }));
  const field = document.getElementById("search");
  if (field) field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    document.getElementById("found").textContent = words.length ? `${shown} of ${body.rows.length} flows` : "";
  });
};
