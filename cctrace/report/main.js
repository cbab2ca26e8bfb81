const report = JSON.parse(document.getElementById("data").textContent);
const flows = [];
const drawAll = (all = false) => { forgetColours(); for (const flow of flows) flow.draw(all); };
const root = document.documentElement, button = document.getElementById("theme");
const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const named = () => { button.textContent = isDark() ? "Light" : "Dark"; };
button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; named(); drawAll(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { named(); drawAll(); });
window.addEventListener("resize", () => drawAll());
let before;
const setPrinting = (on) => {
  root.classList.toggle("printing", on);
  if (on) { before = root.dataset.theme; root.dataset.theme = "light"; }
  else if (before) root.dataset.theme = before;
  else delete root.dataset.theme;
  drawAll(on);
};
window.addEventListener("beforeprint", () => setPrinting(true));
window.addEventListener("afterprint", () => setPrinting(false));
named();
if (document.getElementById("flows")) sortable(document.getElementById("flows"));
// The address of a part of a flow: #flow0&from=3.2&to=3.24, in seconds.
const goToAddress = () => {
  const [id, ...settings] = location.hash.slice(1).split("&"), given = new URLSearchParams(settings.join("&"));
  const flow = flows.find((one) => one.id === id), low = Number(given.get("from")), high = Number(given.get("to"));
  if (!flow || !(high > low)) return;
  flow.zoom(low, high);
  flow.toolbar.scrollIntoView({ block: "start" });
};
window.addEventListener("hashchange", goToAddress);
// One flow after the other: the first can be read while the others are unpacked.
const ready = (async () => {
  for (const data of report.flows) {
    const flow = await Flow.from(data);
    flows.push(flow);
    flow.draw();
    await flow.rest;
  }
  goToAddress();
  document.documentElement.dataset.ready = "true";
  return flows;
})();
window.cctrace = { ready, flows };  // for whoever explores the page from the browser's console
