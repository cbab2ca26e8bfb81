// Saving what a plot shows: its picture as PNG, its numbers as CSV. The files are made here; nothing leaves the page.
const LINE = 20;  // pixels of a line of text above the picture

const offer = (blob, name) => {
  const link = document.createElement("a");
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};

const csvOf = ([head, rows]) => {
  const cell = (value) => {
    const text = String(value ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
};

// Entries of a legend broken into lines: [[text, colour, left]].
const legendLines = (c, entries, width) => {
  const lines = [[]];
  let left = MARGIN.left;
  for (const [text, name] of entries) {
    const wide = 28 + c.measureText(text).width + 18;
    if (left + wide > width && lines.at(-1).length) { lines.push([]); left = MARGIN.left; }
    lines.at(-1).push([text, name, left]);
    left += wide;
  }
  return lines;
};

// The plot as it is on the screen, under its title, the name of the flow and a legend of the curves shown.
const pictureOf = (panel) => {
  const ratio = window.devicePixelRatio || 1, width = panel.canvas.clientWidth;
  const canvas = document.createElement("canvas"), c = canvas.getContext("2d");
  c.font = FONT;
  const lines = legendLines(c, panel.legend(), width), top = LINE * (2 + lines.length) + 8, height = top + panel.height + 4;
  Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.fillStyle = colour("card");
  c.fillRect(0, 0, width, height);
  c.textBaseline = "middle";
  c.fillStyle = colour("ink");
  c.font = FONT.replace("12px", "600 14px");
  c.fillText(panel.figure.querySelector("h3").textContent, 12, 0.7 * LINE);
  c.font = FONT;
  c.fillText(panel.figure.closest("section")?.querySelector("h2")?.textContent ?? "", 12, 1.7 * LINE);
  lines.forEach((entries, k) => {
    const middle = LINE * (2.5 + k) + 4;
    for (const [text, name, left] of entries) {
      c.fillStyle = colour(name);
      c.fillRect(left, middle - 2, 20, 4);
      c.fillStyle = colour("ink");
      c.fillText(text, left + 28, middle);
    }
  });
  c.drawImage(panel.canvas, 0, top, width, panel.height);
  return canvas;
};

const save = (panel, kind) => {
  const name = `${panel.figure.id}.${kind}`;
  if (panel.cannotSave?.(kind)) { panel.readout.textContent = panel.cannotSave(kind); return; }
  if (kind === "csv") offer(new Blob([csvOf(panel.numbers())], { type: "text/csv" }), name);
  else pictureOf(panel).toBlob((blob) => offer(blob, name), "image/png");
};
