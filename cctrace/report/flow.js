// One flow: the span of time in view, which all its panels share, its limits and events.
class Flow {
  // `root` is the document, or the part of it that a notebook shows. The packets come first: `rest` is kept when the
  // curves of all panels are there, too.
  static async from(data, root = document) {
    const packets = data.packets ? await Packets.from(data.packets) : null;
    const lanes = await Promise.all((data.lanes ?? []).map(async (lane) => (
      { ...lane, t: await decoded(lane.t), code: await decoded(lane.code, Uint8Array) })));
    const flow = new Flow(data, packets, root, lanes);
    flow.rest = flow.unpack(data, root);
    return flow;
  }

  async unpack(data, root) {
    const times = [];
    for (const panel of data.panels) {
      const series = [];
      for (const s of panel.series) {
        times[s.t] ??= await decoded(data.times[s.t]);
        series.push(new Series({ label: s.label, colour: `c-${s.colour}`, kind: s.kind, dashed: s.dashed,
          stretches: s.stretches }, times[s.t], await decoded(s.y)));
      }
      const made = new Panel(root.getElementById(panel.id), this, { ...panel, series });
      this.panels.push(made);
      this.watch(made);
      if (made.inView) made.draw(); else made.stale = true;
    }
  }

  constructor(data, packets, root, lanes) {
    const chunks = data.packet_files?.length ? new Chunks(data.packet_files) : null;
    Object.assign(this, { id: data.id, lanes, phases: data.phases, limits: data.limits, events: data.events });
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
    if (sequence && packets) this.panels.push(new SequencePanel(sequence, this, packets, chunks));
    this.toolbar = root.getElementById(`${this.id}-toolbar`);
    this.link = root === document ? this.toolbar.querySelector("a.view") : null;  // a notebook has an address of its own
    for (const button of this.toolbar.querySelectorAll("button")) button.addEventListener("click", () => this.do(button.dataset.do));
    for (const button of strip?.querySelectorAll(".events button") ?? []) {
      button.addEventListener("click", () => this.goTo(Number(button.dataset.from), Number(button.dataset.to)));
    }
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const panel = this.panels.find((one) => one.figure === entry.target);
        panel.inView = entry.isIntersecting;
        if (panel.inView && panel.stale) { panel.stale = false; panel.draw(); }
      }
    }, { rootMargin: "200px" });
    for (const panel of this.panels) this.watch(panel);
  }

  // Only what is on the screen is drawn at once; the rest when it comes into view.
  watch(panel) {
    panel.inView = panel.figure.getBoundingClientRect().top < 1.2 * innerHeight;
    this.seen.observe(panel.figure);
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
    if (!this.link) return;
    this.link.hidden = !this.zoomed;
    Object.assign(this.link, { href: `#${this.id}&from=${low.toFixed(6)}&to=${high.toFixed(6)}` });
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
    if (phase && t < phase[1] && !this.lanes.length) found.push(phase[2]);
    const limit = this.limits.find(([, , start, end]) => start <= t && t < end);
    if (limit) found.push(`limit: ${limit[0]}`);
    for (const lane of this.lanes) {
      const row = lowerBound(lane.t, t + 1e-12) - 1;
      if (row >= 0 && t <= lane.end) found.push(`${lane.label}: ${lane.names[lane.code[row]]}`);
    }
    return found;
  }
}
