// One flow: the span of time in view, which all its panels share, its limits and events.
class Flow {
  // `root` is the document, or the part of it that a notebook shows.
  static async from(data, root = document) {
    const times = await Promise.all(data.times.map((column) => decoded(column)));
    const packets = data.packets ? await Packets.from(data.packets) : null;
    const panels = await Promise.all(data.panels.map(async (panel) => {
      const series = await Promise.all(panel.series.map(async (s) => new Series(
        { label: s.label, colour: `c-${s.colour}`, kind: s.kind, dashed: s.dashed, stretches: s.stretches },
        times[s.t], await decoded(s.y))));
      return { ...panel, series };
    }));
    return new Flow(data, panels, packets, root);
  }

  constructor(data, panels, packets, root) {
    Object.assign(this, { id: data.id, phases: data.phases, limits: data.limits, events: data.events });
    this.starts = this.phases.map(([start]) => start);
    this.timeAxis = data.time_axis;
    this.startNs = BigInt(data.start_ns);
    this.full = data.range;
    this.range = [...this.full];
    this.cursor = this.pointed = null;
    this.packets = packets;
    this.panels = [];
    const strip = root.getElementById(`${this.id}-strip`), sequence = root.getElementById(`${this.id}-sequence`);
    if (strip) this.panels.push(new Strip(strip, this));
    if (sequence && packets) this.panels.push(new SequencePanel(sequence, this, packets));
    for (const panel of panels) this.panels.push(new Panel(root.getElementById(panel.id), this, panel));
    this.toolbar = root.getElementById(`${this.id}-toolbar`);
    for (const button of this.toolbar.querySelectorAll("button")) button.addEventListener("click", () => this.do(button.dataset.do));
    for (const button of strip?.querySelectorAll(".events button") ?? []) {
      button.addEventListener("click", () => this.goTo(Number(button.dataset.from), Number(button.dataset.to)));
    }
    this.watch();
  }

  // Only what is on the screen is drawn at once; the rest when it comes into view.
  watch() {
    for (const panel of this.panels) panel.inView = panel.figure.getBoundingClientRect().top < 1.2 * innerHeight;
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const panel = this.panels.find((one) => one.figure === entry.target);
        panel.inView = entry.isIntersecting;
        if (panel.inView && panel.stale) { panel.stale = false; panel.draw(); }
      }
    }, { rootMargin: "200px" });
    for (const panel of this.panels) seen.observe(panel.figure);
  }

  do(what) {
    const [low, high] = this.range, width = high - low;
    if (what === "left") this.move(this.range, -width / 2);
    else if (what === "right") this.move(this.range, width / 2);
    else if (what === "in") this.zoom(low + width / 4, high - width / 4);
    else if (what === "out") this.zoom(low - width / 2, high + width / 2);
    else this.reset();
  }

  draw(all = false) {
    for (const panel of this.panels) {
      if (panel.inView || all) panel.draw(); else panel.stale = true;
    }
    this.changed?.(this.range);
    const [low, high] = this.range;
    this.toolbar.querySelector(".span").textContent = this.zoomed
      ? `${low.toFixed(6)} to ${high.toFixed(6)} s, ${digits((high - low) * 1000)} ms` : "";
  }

  drawCursors() {
    for (const panel of this.panels) if (panel.inView && panel.shown) panel.drawCursor();
  }

  zoom(low, high) {
    if (high - low < 2e-6) return;
    this.range = [Math.max(low, this.full[0]), Math.min(high, this.full[1])];
    if (this.range[1] <= this.range[0]) this.range = [...this.full];
    this.draw();
  }

  move([low, high], by) {
    const [first, last] = this.full, shift = Math.min(last - high, Math.max(first - low, by));
    this.range = [low + shift, high + shift];
    this.draw();
  }

  goTo(start, end) {
    const pad = Math.max((end - start) * 0.5, (this.full[1] - this.full[0]) * 0.005, 0.02);
    this.zoom(start - pad, end + pad);
    this.cursor = start;
    this.drawCursors();
    this.toolbar.scrollIntoView({ block: "start" });
  }

  reset() {
    this.range = [...this.full];
    for (const panel of this.panels) panel.values = null;
    this.draw();
  }

  get zoomed() { return this.range[0] > this.full[0] || this.range[1] < this.full[1]; }
  // In order and without gaps: those from the one that holds at the left edge on.
  phasesInView() {
    const [low, high] = this.range, first = Math.max(0, lowerBound(this.starts, low) - 1);
    return this.phases.slice(first, lowerBound(this.starts, high, first));
  }
  eventsInView() { return this.events.filter(([, start, end]) => end >= this.range[0] && start <= this.range[1]); }

  // Phase, limit and events at a time.
  circumstances(t) {
    const found = [];
    const phase = this.phases[lowerBound(this.starts, t + 1e-12) - 1];
    if (phase && t < phase[1]) found.push(phase[2]);
    const limit = this.limits.find(([, , start, end]) => start <= t && t < end);
    if (limit) found.push(`limit: ${limit[0]}`);
    return found;
  }
}

// The strip of limits, with a mark for each event.
class Strip extends Panel {
  constructor(figure, flow) {
    super(figure, flow, { axis: "", from_zero: true, upper_limit: 1 }, 92);
  }
  valueRange() { return [0, 1]; }
  drawPhases() {}

  drawContent(c) {
    for (const [, kind, start, end] of this.flow.limits) {
      const left = Math.max(this.left, this.x(start)), width = Math.min(this.right, this.x(end)) - left;
      if (width <= 0) continue;
      c.fillStyle = colour(`l-${kind}`);
      c.fillRect(left, MARGIN.top + 16, Math.max(0.5, width), this.bottom - MARGIN.top - 16);
    }
    c.fillStyle = colour("event");
    for (const [, start, end] of this.flow.eventsInView()) {
      const at = this.x(start), width = Math.max(2, this.x(end) - at);
      c.fillRect(at, MARGIN.top + 11, width, 3);
      c.beginPath(); c.moveTo(at, MARGIN.top + 14); c.lineTo(at - 4, MARGIN.top + 3); c.lineTo(at + 4, MARGIN.top + 3); c.fill();
    }
  }

  drawAxes(c) {
    const [low, high] = this.flow.range;
    c.fillStyle = colour("ink");
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const [value, label] of ticks(low, high, (this.right - this.left) / 100)) c.fillText(label, this.x(value), this.bottom + 8);
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillText("events", this.left - 7, MARGIN.top + 7);
    c.fillText("limit", this.left - 7, (MARGIN.top + 16 + this.bottom) / 2);
  }
  drawEvents() {}

  eventAt(t) {
    const reach = 8 * (this.flow.range[1] - this.flow.range[0]) / (this.right - this.left);
    return this.flow.eventsInView().find(([, start, end]) => t >= start - reach && t <= end + reach);
  }

  drawCursor() {
    const { cursor } = this.flow;
    if (cursor === null) { this.readout.textContent = ""; return; }
    const event = this.eventAt(cursor);
    this.readout.textContent = [`${cursor.toFixed(6)} s`, ...this.flow.circumstances(cursor),
      ...(event ? [`${event[0]}: ${event[3]}`] : [])].join("  ·  ");
  }

  click([px]) {
    const event = this.eventAt(this.timeAt(px));
    if (event) this.flow.goTo(event[1], event[2]); else this.flow.drawCursors();
  }
}
