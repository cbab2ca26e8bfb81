"use strict";
// Draws the panels of a cctrace report: canvas, shared zoom, shared read-out. No dependencies, no network.
(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const MARGIN = { left: 62, right: 14, top: 10, bottom: 34 };
  const HEIGHT = 270;
  const INK = "#1f2933", GRID = "#e4e8ed", FRAME = "#9aa5b1";
  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

  const floats = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  };

  // First index whose time is at least t.
  const lowerBound = (times, t) => {
    let low = 0, high = times.length;
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
      found.push([i * step, (i * step).toFixed(digits)]);
    }
    return found;
  };

  const digits = (value) => {
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    return value.toFixed(Math.min(6, Math.max(0, 3 - size)));
  };

  class Flow {
    constructor(data) {
      this.phases = data.phases;
      this.timeAxis = data.time_axis;
      this.full = [0, data.duration_s];
      this.range = [...this.full];
      this.cursor = null;
      this.panels = data.panels.map((p) => new Panel(p, this));
    }
    draw() { for (const panel of this.panels) panel.draw(); }
    zoom(low, high) {
      const smallest = (this.full[1] - this.full[0]) * 1e-5;
      if (high - low < smallest) return;
      this.range = [Math.max(low, this.full[0]), Math.min(high, this.full[1])];
      this.draw();
    }
    reset() { this.range = [...this.full]; this.draw(); }
    get zoomed() { return this.range[0] > this.full[0] || this.range[1] < this.full[1]; }
  }

  class Panel {
    constructor(data, flow) {
      this.flow = flow;
      this.data = data;
      this.element = document.getElementById(data.id);
      this.canvas = this.element.querySelector("canvas");
      this.readout = this.element.querySelector(".readout");
      this.resetButton = this.element.querySelector(".reset");
      this.series = data.series.map((s) => ({ ...s, times: floats(s.x), values: floats(s.y), hidden: false }));
      this.element.querySelectorAll(".legend button").forEach((button, i) => {
        button.addEventListener("click", () => {
          this.series[i].hidden = !this.series[i].hidden;
          button.setAttribute("aria-pressed", String(!this.series[i].hidden));
          this.draw();
        });
      });
      this.resetButton.addEventListener("click", () => flow.reset());
      this.listen();
    }

    listen() {
      const canvas = this.canvas;
      const timeAt = (event) => {
        const box = canvas.getBoundingClientRect();
        const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
        return this.flow.range[0] + Math.min(1, Math.max(0, share)) * (this.flow.range[1] - this.flow.range[0]);
      };
      canvas.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "mouse") { this.from = timeAt(event); canvas.setPointerCapture(event.pointerId); }
      });
      canvas.addEventListener("pointermove", (event) => { this.flow.cursor = timeAt(event); this.flow.draw(); });
      canvas.addEventListener("pointerup", (event) => {
        if (this.from === undefined) { this.flow.cursor = timeAt(event); this.flow.draw(); return; }
        const [low, high] = [this.from, timeAt(event)].sort((a, b) => a - b);
        this.from = undefined;
        // A press that hardly moved is a click, not a span.
        if (high - low > 0.01 * (this.flow.range[1] - this.flow.range[0])) this.flow.zoom(low, high);
        else this.flow.draw();
      });
      canvas.addEventListener("pointerleave", () => { this.flow.cursor = null; this.flow.draw(); });
      canvas.addEventListener("dblclick", () => this.flow.reset());
      canvas.addEventListener("keydown", (event) => {
        const [low, high] = this.flow.range, width = high - low;
        if (event.key === "+") this.flow.zoom(low + width / 4, high - width / 4);
        else if (event.key === "-") this.flow.zoom(low - width / 2, high + width / 2);
        else if (event.key === "ArrowLeft") this.shift(-width / 4);
        else if (event.key === "ArrowRight") this.shift(width / 4);
        else if (event.key === "Escape" || event.key === "0") this.flow.reset();
        else return;
        event.preventDefault();
      });
    }

    shift(by) {
      const [low, high] = this.flow.range, [first, last] = this.flow.full;
      const move = Math.min(last - high, Math.max(first - low, by));
      this.flow.zoom(low + move, high + move);
    }

    // Rows of a series that are in view, one more on either side so that lines reach the edge.
    visible(series) {
      const [low, high] = this.flow.range;
      return [Math.max(0, lowerBound(series.times, low) - 1), Math.min(series.times.length, lowerBound(series.times, high) + 1)];
    }

    valueRange() {
      let low = Infinity, high = -Infinity;
      for (const series of this.series) {
        if (series.hidden) continue;
        const [first, last] = this.visible(series);
        for (let i = first; i < last; i++) {
          low = Math.min(low, series.values[i]);
          high = Math.max(high, series.values[i]);
        }
      }
      if (low > high) [low, high] = [0, 1];
      if (this.data.from_zero) low = Math.min(0, low);
      high = Math.min(high, this.data.upper_limit);
      const pad = (high - low || Math.abs(high) || 1) * 0.05;
      return [this.data.from_zero ? low : low - pad, high + pad];
    }

    draw() {
      const width = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
      if (!width) return;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(HEIGHT * ratio);
      const c = this.canvas.getContext("2d");
      c.scale(ratio, ratio);
      c.font = FONT;
      const [t0, t1] = this.flow.range, [v0, v1] = this.valueRange();
      const right = width - MARGIN.right, bottom = HEIGHT - MARGIN.bottom;
      const x = (t) => MARGIN.left + (t - t0) / (t1 - t0) * (right - MARGIN.left);
      const y = (v) => bottom - (v - v0) / (v1 - v0) * (bottom - MARGIN.top);
      this.drawPhases(c, x, right, bottom);
      this.drawAxes(c, x, y, [t0, t1], [v0, v1], right, bottom);
      c.save();
      c.beginPath();
      c.rect(MARGIN.left, MARGIN.top, right - MARGIN.left, bottom - MARGIN.top);
      c.clip();
      for (const series of this.series) if (!series.hidden) this.drawSeries(c, series, x, y);
      c.restore();
      this.drawCursor(c, x, bottom);
      this.resetButton.hidden = !this.flow.zoomed;
    }

    drawPhases(c, x, right, bottom) {
      for (const [start, end, kind] of this.flow.phases.spans) {
        const colour = this.flow.phases.colours[kind];
        if (!colour) continue;
        const left = Math.max(MARGIN.left, x(start)), width = Math.min(right, x(end)) - left;
        // Within PROBE_BW a stripe per phase of the cycle says nothing until it is a few pixels wide.
        if (width < 4 && kind.startsWith("PROBE_BW")) continue;
        c.fillStyle = colour;
        if (width > 0) c.fillRect(left, MARGIN.top, Math.max(width, 0.5), bottom - MARGIN.top);
      }
    }

    drawAxes(c, x, y, times, values, right, bottom) {
      c.lineWidth = 1;
      c.fillStyle = INK;
      c.textAlign = "right";
      c.textBaseline = "middle";
      for (const [value, label] of ticks(values[0], values[1], 5)) {
        const at = Math.round(y(value)) + 0.5;
        c.strokeStyle = GRID;
        c.beginPath(); c.moveTo(MARGIN.left, at); c.lineTo(right, at); c.stroke();
        c.fillText(label, MARGIN.left - 7, at);
      }
      c.textAlign = "center";
      c.textBaseline = "top";
      for (const [value, label] of ticks(times[0], times[1], (right - MARGIN.left) / 90)) {
        const at = Math.round(x(value)) + 0.5;
        c.strokeStyle = GRID;
        c.beginPath(); c.moveTo(at, MARGIN.top); c.lineTo(at, bottom); c.stroke();
        c.fillText(label, at, bottom + 5);
      }
      c.strokeStyle = FRAME;
      c.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, right - MARGIN.left - 1, bottom - MARGIN.top);
      c.fillText(this.flow.timeAxis, (MARGIN.left + right) / 2, bottom + 20);
      c.save();
      c.translate(13, (MARGIN.top + bottom) / 2);
      c.rotate(-Math.PI / 2);
      c.textBaseline = "middle";
      c.fillText(this.data.axis, 0, 0);
      c.restore();
    }

    drawSeries(c, series, x, y) {
      const [first, last] = this.visible(series);
      if (series.kind === "points") {
        const size = last - first > 4000 ? 1.6 : last - first > 400 ? 2.2 : 3.2;
        c.fillStyle = series.colour;
        c.globalAlpha = last - first > 2000 ? 0.55 : 0.85;
        for (let i = first; i < last; i++) {
          c.fillRect(x(series.times[i]) - size / 2, y(series.values[i]) - size / 2, size, size);
        }
        c.globalAlpha = 1;
        return;
      }
      c.strokeStyle = series.colour;
      c.lineWidth = series.dashed ? 1.3 : 1.6;
      c.setLineDash(series.dashed ? [4, 3] : []);
      c.lineJoin = "round";
      c.beginPath();
      let previous = null;
      for (let i = first; i < last; i++) {
        const px = x(series.times[i]), py = y(series.values[i]);
        if (previous === null) c.moveTo(px, py);
        else {
          if (series.kind === "steps") c.lineTo(px, previous);
          c.lineTo(px, py);
        }
        previous = py;
      }
      c.stroke();
      c.setLineDash([]);
    }

    drawCursor(c, x, bottom) {
      const cursor = this.flow.cursor;
      if (cursor === null) { this.readout.textContent = ""; return; }
      if (this.from !== undefined) {
        c.fillStyle = "rgba(11, 110, 79, 0.12)";
        c.fillRect(x(this.from), MARGIN.top, x(cursor) - x(this.from), bottom - MARGIN.top);
      }
      c.strokeStyle = INK;
      c.lineWidth = 0.7;
      c.beginPath(); c.moveTo(x(cursor), MARGIN.top); c.lineTo(x(cursor), bottom); c.stroke();
      const parts = [`${cursor.toFixed(4)} s`];
      for (const series of this.series) {
        const row = lowerBound(series.times, cursor + 1e-9) - 1;
        if (!series.hidden && row >= 0) parts.push(`${series.label} ${digits(series.values[row])}`);
      }
      const phase = this.flow.phases.spans.find(([start, end]) => start <= cursor && cursor < end);
      if (phase) parts.push(phase[2]);
      this.readout.textContent = parts.join("  ·  ");
    }
  }

  const flows = report.flows.map((data) => new Flow(data));
  const drawAll = () => { for (const flow of flows) flow.draw(); };
  window.addEventListener("resize", drawAll);
  drawAll();
})();
