// A plot over the time axis of its flow: axes, zoom by drag, wheel and keys, a cursor on a layer of its own.
class Panel {
  constructor(figure, flow, data, height = 270) {
    Object.assign(this, { figure, flow, data, height });
    this.canvas = figure.querySelector("canvas");
    this.overlay = figure.querySelector("canvas.overlay");
    this.readout = figure.querySelector(".readout");
    this.series = data.series ?? [];
    this.values = null;  // range of the vertical axis, null: what is in view
    this.inView = true;
    for (const canvas of figure.querySelectorAll("canvas")) canvas.style.height = `${height}px`;
    this.listenToLegend();
    this.listen();
    const table = figure.querySelector("details.behind");
    if (table) table.addEventListener("toggle", () => this.fillTable());
    for (const button of figure.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => save(this, button.dataset.save));
    }
  }

  listenToLegend() {
    this.figure.querySelectorAll(".legend button").forEach((button, i) => {
      button.addEventListener("click", () => {
        if (!this.series[i]) return;
        this.series[i].hidden = !this.series[i].hidden;
        button.setAttribute("aria-pressed", String(!this.series[i].hidden));
        this.draw();
      });
    });
  }

  get left() { return MARGIN.left; }
  get right() { return this.width - MARGIN.right; }
  get foot() { return this.height - MARGIN.bottom; }
  get bottom() { return this.foot; }
  x(t) { return this.left + (t - this.flow.range[0]) / (this.flow.range[1] - this.flow.range[0]) * (this.right - this.left); }
  y(v) { return this.bottom - (v - this.shown[0]) / (this.shown[1] - this.shown[0]) * (this.bottom - MARGIN.top); }
  timeAt(px) {
    const share = Math.min(1, Math.max(0, (px - this.left) / (this.right - this.left)));
    return this.flow.range[0] + share * (this.flow.range[1] - this.flow.range[0]);
  }
  valueAt(py) {
    const share = Math.min(1, Math.max(0, (this.bottom - py) / (this.bottom - MARGIN.top)));
    return this.shown[0] + share * (this.shown[1] - this.shown[0]);
  }
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button) return;
      this.from = this.place(event);
      this.moved = event.shiftKey ? { range: [...this.flow.range], values: this.shown } : null;
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.point(this.place(event)));
    canvas.addEventListener("pointerup", (event) => this.release(this.place(event)));
    canvas.addEventListener("pointerleave", () => { if (!this.from) { this.flow.cursor = null; this.flow.drawCursors(); } });
    canvas.addEventListener("dblclick", () => this.flow.reset());
    canvas.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    canvas.addEventListener("keydown", (event) => { if (this.press(event)) event.preventDefault(); });
  }

  point([px, py]) {
    this.pointer = [px, py];
    if (this.from && this.moved) return this.drag(px, py);
    this.flow.cursor = this.timeAt(px);
    this.flow.pointed = this;
    this.flow.drawCursors();
  }

  drag(px, py) {
    const { range, values } = this.moved;
    const dt = (this.from[0] - px) / (this.right - this.left) * (range[1] - range[0]);
    if (this.values) {
      const dv = (py - this.from[1]) / (this.bottom - MARGIN.top) * (values[1] - values[0]);
      this.values = [values[0] + dv, values[1] + dv];
    }
    this.flow.move(range, dt);
  }

  release([px, py]) {
    const from = this.from, moved = this.moved;
    this.from = this.moved = undefined;
    if (!from) { this.point([px, py]); return; }
    const wide = Math.abs(px - from[0]) > 6, high = Math.abs(py - from[1]) > 24;
    if (moved || (!wide && !high)) { this.click([px, py]); return; }
    if (high) this.values = [this.valueAt(from[1]), this.valueAt(py)].sort((a, b) => a - b);
    if (wide) this.flow.zoom(...[this.timeAt(from[0]), this.timeAt(px)].sort((a, b) => a - b));
    else this.flow.draw();
  }

  click() { this.flow.drawCursors(); }

  turn(event) {
    // The page scrolls over plots that are not in use.
    if (this.canvas.getRootNode().activeElement !== this.canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const [px, py] = this.place(event);
    const factor = Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 300)));
    if (event.shiftKey || px < this.left) this.stretch(factor, this.valueAt(py));
    else {
      const t = this.timeAt(px), [low, high] = this.flow.range;
      this.flow.zoom(t - (t - low) * factor, t + (high - t) * factor);
    }
  }

  // The range of values in view, also before the first drawing.
  spanned() { return this.values ?? this.valueRange(); }

  stretch(factor, around = (this.spanned()[0] + this.spanned()[1]) / 2) {
    this.values = this.spanned().map((value) => around + (value - around) * factor);
    this.flow.draw();
  }

  press(event) {
    const { flow } = this, [low, high] = flow.range, width = high - low;
    if (event.key === "ArrowUp" && event.shiftKey) this.stretch(0.5);
    else if (event.key === "ArrowDown" && event.shiftKey) this.stretch(2);
    else if (event.key === "+" || event.key === "=") flow.zoom(low + width / 4, high - width / 4);
    else if (event.key === "-") flow.zoom(low - width / 2, high + width / 2);
    else if (event.key === "ArrowLeft") flow.move(flow.range, -width / 4);
    else if (event.key === "ArrowRight") flow.move(flow.range, width / 4);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.lift(event.key === "ArrowUp" ? 0.25 : -0.25);
    else if (event.key === "Escape" || event.key === "0") flow.reset();
    else return false;
    return true;
  }

  lift(share) {
    const [low, high] = this.spanned(), by = share * (high - low);
    this.values = [low + by, high + by];
    this.flow.draw();
  }

  valueRange() {
    let low = Infinity, high = -Infinity;
    for (const series of this.series) {
      if (series.hidden || !series.stretches) continue;
      const [least, most] = series.pyramid.extremes(...series.visible(this.flow.range));
      low = Math.min(low, least);
      high = Math.max(high, most);
    }
    if (low > high) [low, high] = [0, 1];
    if (this.data.from_zero) low = Math.min(0, low);
    high = Math.max(low, Math.min(high, this.data.upper_limit));
    const pad = (high - low || Math.abs(high) || 1) * 0.05;
    return [this.data.from_zero ? low : low - pad, high + pad];
  }

  context(canvas) {
    const ratio = window.devicePixelRatio || 1, width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(this.height * ratio), c = canvas.getContext("2d");
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = FONT;
    return c;
  }

  draw() {
    this.width = this.canvas.clientWidth;  // asked once: each time the browser lays out the page
    if (!this.width) return;
    const c = this.context(this.canvas);
    this.shown = this.spanned();
    this.drawPhases(c);
    this.drawAxes(c);
    c.save();
    c.beginPath();
    c.rect(this.left, MARGIN.top, this.right - this.left, this.bottom - MARGIN.top);
    c.clip();
    this.drawContent(c);
    c.restore();
    this.drawEvents(c);
    this.drawCursor();
    this.fillTable();
  }

  drawContent(c) {
    const x = (t) => this.x(t), y = (v) => this.y(v);
    for (const series of this.series) if (!series.hidden) series.draw(c, this.flow.range, x, y, this.right - this.left);
  }

  drawPhases(c) {
    const [t0, t1] = this.flow.range, pixel = (t1 - t0) / (this.right - this.left);
    for (const [start, end, kind] of this.flow.phasesInView()) {
      // Within PROBE_BW a stripe per phase of the cycle says nothing until it is a few pixels wide.
      const shown = Math.min(end, t1) - Math.max(start, t0);
      if (shown <= 0 || (shown < 4 * pixel && kind.startsWith("PROBE_BW"))) continue;
      const shade = colour(`p-${kind.replace(" ", "-")}`);
      if (shade === "#888") continue;
      c.fillStyle = shade;
      c.fillRect(this.x(Math.max(start, t0)), MARGIN.top, Math.max(shown / pixel, 0.5), this.bottom - MARGIN.top);
    }
  }

  drawAxes(c) {
    const { left, right, bottom } = this;
    c.lineWidth = 1;
    c.fillStyle = colour("ink");
    c.strokeStyle = colour("grid");
    c.textAlign = "right";
    c.textBaseline = "middle";
    const [factor, axis] = this.scaled();
    for (const [value, label] of ticks(this.shown[0] / factor, this.shown[1] / factor, 5)) {
      const at = Math.round(this.y(value * factor)) + 0.5;
      c.beginPath(); c.moveTo(left, at); c.lineTo(right, at); c.stroke();
      c.fillText(label, left - 7, at);
    }
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const [value, label] of ticks(...this.flow.range, (right - left) / 100)) {
      const at = Math.round(this.x(value)) + 0.5;
      c.beginPath(); c.moveTo(at, MARGIN.top); c.lineTo(at, bottom); c.stroke();
      c.fillText(label, at, this.foot + 8);
    }
    c.strokeStyle = colour("frame");
    c.strokeRect(left + 0.5, MARGIN.top + 0.5, right - left - 1, bottom - MARGIN.top);
    c.fillText(this.flow.timeAxis, (left + right) / 2, this.foot + 22);
    c.save();
    c.translate(11, (MARGIN.top + bottom) / 2);
    c.rotate(-Math.PI / 2);
    c.textBaseline = "middle";
    c.fillText(axis, 0, 0);
    c.restore();
  }

  // What the numbers at the axis are multiples of, and its label.
  scaled() { return [1, this.data.axis]; }

  // Marks between the graph, its lanes too, and the labels of the axis.
  drawEvents(c) {
    c.fillStyle = colour("event");
    for (const [, start] of this.flow.eventsInView()) {
      const at = this.x(start);
      c.beginPath(); c.moveTo(at, this.foot); c.lineTo(at - 4, this.foot + 6); c.lineTo(at + 4, this.foot + 6); c.fill();
    }
  }

  drawCursor() {
    if (!this.overlay) return;
    const { cursor } = this.flow;
    if (cursor === null && this.clear) return;
    const c = this.context(this.overlay);
    this.clear = cursor === null;
    if (this.clear) { this.readout.textContent = ""; return; }
    if (this.from && this.flow.pointed === this) this.drawSpan(c);
    c.strokeStyle = colour("ink");
    c.lineWidth = 0.7;
    c.beginPath(); c.moveTo(this.x(cursor), MARGIN.top); c.lineTo(this.x(cursor), this.bottom); c.stroke();
    this.readout.textContent = this.words(cursor).join("  ·  ");
  }

  drawSpan(c) {
    const [px, py] = this.pointer, high = Math.abs(py - this.from[1]) > 24, wide = Math.abs(px - this.from[0]) > 6;
    c.fillStyle = colour("span");
    const [left, width] = wide ? [this.from[0], px - this.from[0]] : [this.left, this.right - this.left];
    const [top, height] = high ? [this.from[1], py - this.from[1]] : [MARGIN.top, this.bottom - MARGIN.top];
    if (wide || high) c.fillRect(left, top, width, height);
  }

  words(cursor) {
    const parts = [`${cursor.toFixed(6)} s`];
    for (const series of this.series) {
      const value = series.at(cursor);
      if (!series.hidden && !Number.isNaN(value)) parts.push(`${series.label} ${digits(value)}`);
    }
    return [...parts, ...this.flow.circumstances(cursor)];
  }

  // What is shown, each with the name of its colour.
  legend() { return this.series.filter((one) => !one.hidden).map((one) => [one.label, one.colour]); }

  // Every point in view, as it was drawn.
  numbers() {
    const [low, high] = this.flow.range, rows = [];
    for (const series of this.series) {
      if (series.hidden) continue;
      for (let i = lowerBound(series.times, low); i < series.times.length && series.times[i] <= high; i++) {
        rows.push([series.times[i].toFixed(6), series.label, Number(series.values[i].toPrecision(9))]);
      }
    }
    return [["time_s", "curve", this.data.axis], rows];
  }

  // The numbers behind the picture, for who cannot see it: the span in view in twelve parts.
  fillTable() {
    const details = this.figure.querySelector("details.behind");
    if (!details || !details.open) return;
    const [low, high] = this.flow.range, parts = 12, rows = [];
    for (let i = 0; i < parts; i++) {
      const from = low + i * (high - low) / parts, to = low + (i + 1) * (high - low) / parts;
      rows.push([`${from.toFixed(4)} to ${to.toFixed(4)}`, ...this.series.map((s) => digits(s.mean(from, to)))]);
    }
    const head = ["Time (s)", ...this.series.map((s) => s.label)];
    details.querySelector("div").replaceChildren(tableOf(`${this.data.axis}, means`, head, rows));
  }
}
