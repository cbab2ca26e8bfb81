// Sorting and searching the table of flows; without this script the page shows it as it was written.
const table = document.getElementById("flows");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const search = document.getElementById("search");
const only = document.getElementById("only");
const count = document.getElementById("count");

function value(row, column) {
  const cell = row.cells[column];
  return cell.dataset.v === undefined ? cell.textContent : parseFloat(cell.dataset.v);
}

function sort(column, descending) {
  rows.sort((a, b) => {
    const x = value(a, column), y = value(b, column);
    if (typeof x === "number" && typeof y === "number") {
      if (isNaN(x) || isNaN(y)) return (isNaN(x) ? 1 : 0) - (isNaN(y) ? 1 : 0);  // unknown last, either way
      return descending ? y - x : x - y;
    }
    return descending ? String(y).localeCompare(x) : String(x).localeCompare(y);
  });
  body.append(...rows);
}

Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending"
      || (!head.hasAttribute("aria-sort") && !head.classList.contains("text"));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    sort(column, descending);
  });
});

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word)) || (only.value && row.dataset.verdict !== only.value);
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = `${shown.toLocaleString("en")} flows`;
}

search.addEventListener("input", filter);
only.addEventListener("change", filter);
document.getElementById("tools").hidden = false;
filter();
