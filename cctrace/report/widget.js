// A flow in a notebook: the page's section in a shadow tree, drawn from the columns that the kernel sends as bytes.
const isDarkAround = () => {
  const { classList, dataset } = document.body;
  if (dataset.jpThemeLight) return dataset.jpThemeLight === "false";  // JupyterLab
  if (classList.contains("vscode-light") || classList.contains("vscode-dark")) return classList.contains("vscode-dark");
  return matchMedia("(prefers-color-scheme: dark)").matches;
};

const render = async ({ model, el }) => {
  const host = element("div", undefined, el);
  host.className = "cctrace";
  host.dataset.lmSuppressShortcuts = "true";  // keys on a plot are the plot's, not the notebook's
  const root = host.attachShadow({ mode: "open" });
  root.innerHTML = model.get("html");
  const dress = () => { host.dataset.theme = isDarkAround() ? "dark" : "light"; forgetColours(host); };
  dress();
  const flow = await Flow.from(model.get("data"), root);
  // JupyterLab hides all of itself while it changes its theme: what is drawn then is drawn again.
  const repaint = () => { dress(); flow.draw(); };
  const redress = () => { repaint(); requestAnimationFrame(repaint); setTimeout(repaint, 500); };
  const follow = () => { const [low, high] = model.get("span"); if (high > low && flow.inSpan !== `${low},${high}`) flow.zoom(low, high); };
  let waiting = 0;
  flow.changed = ([low, high]) => {
    flow.inSpan = `${low},${high}`;
    clearTimeout(waiting);
    waiting = setTimeout(() => { model.set("span", [low, high]); model.save_changes(); }, 150);
  };
  model.on("change:span", follow);
  const width = new ResizeObserver(() => flow.draw()), theme = new MutationObserver(redress);
  width.observe(host);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  host.flow = flow;  // for whoever explores the widget from the browser's console
  flow.draw();
  follow();
  return () => { width.disconnect(); theme.disconnect(); clearTimeout(waiting); model.off("change:span", follow); };
};
export default { render };
