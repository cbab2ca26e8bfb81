// The strip of limits and states, with a mark for each event.
const LANE = 20, MARKS = 14;  // pixels: of a lane, of the marks above them
const NAMED = 60;  // pixels from which on a state's name fits

class Strip extends Panel {
  constructor(figure, flow) {
    super(figure, flow, { axis: "", from_zero: true, upper_limit: 1 },
      MARGIN.top + MARKS + MARGIN.bottom + LANE * (flow.lanes.length + (flow.limits.length ? 1 : 0)));
  }
  get first() { return this.flow.limits.length ? 1 : 0; }  // lane of the first timeline
  top(lane) { return MARGIN.top + MARKS + LANE * lane; }
  valueRange() { return [0, 1]; }
  drawPhases() {}

  drawContent(c) {
    for (const [, kind, start, end] of this.flow.limits) this.fill(c, 0, start, end, `l-${kind}`);
    this.flow.lanes.forEach((lane, k) => this.drawLane(c, this.first + k, lane));
    c.fillStyle = colour("event");
    for (const [, start, end] of this.flow.eventsInView()) {
      const at = this.x(start), width = Math.max(2, this.x(end) - at);
      c.fillRect(at, MARGIN.top + 11, width, 3);
      c.beginPath(); c.moveTo(at, MARGIN.top + 14); c.lineTo(at - 4, MARGIN.top + 3); c.lineTo(at + 4, MARGIN.top + 3); c.fill();
    }
  }

  fill(c, lane, start, end, name) {
    const left = Math.max(this.left, this.x(start)), width = Math.min(this.right, this.x(end)) - left;
    if (width <= 0) return 0;
    c.fillStyle = colour(name);
    c.fillRect(left, this.top(lane) + 1, Math.max(0.5, width), LANE - 2);
    return width;
  }

  drawLane(c, k, { t, code, names, end }) {
    const [low, high] = this.flow.range, pixel = (high - low) / (this.right - this.left);
    c.textAlign = "left";
    c.textBaseline = "middle";
    let i = Math.max(0, lowerBound(t, low) - 1);
    const last = lowerBound(t, high);
    while (i < last) {
      const until = i + 1 < t.length ? t[i + 1] : end, name = names[code[i]];
      const width = this.fill(c, k, t[i], until, `s-${name.replaceAll(" ", "-")}`);
      if (width > NAMED + 4 * name.length) {
        c.fillStyle = colour("ink");
        c.fillText(name, Math.max(this.left, this.x(t[i])) + 5, this.top(k) + LANE / 2, width - 10);
      }
      // Of states narrower than a pixel the first is drawn, and then the one that lasts beyond it.
      i = until - t[i] < pixel ? Math.max(i + 1, lowerBound(t, t[i] + pixel, i + 1, last) - 1) : i + 1;
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
    if (this.flow.events.length) c.fillText("events", this.left - 7, MARGIN.top + 7);
    const labels = [...(this.first ? ["limit"] : []), ...this.flow.lanes.map((lane) => lane.label)];
    labels.forEach((label, k) => c.fillText(label, this.left - 7, this.top(k) + LANE / 2));
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

  legend() {
    const limits = this.flow.limits.map(([name, kind]) => [name, `l-${kind}`]);
    const states = this.flow.lanes.flatMap(({ names }) => names.map((name) => [name, `s-${name.replaceAll(" ", "-")}`]));
    return [...new Map([...limits, ...states]), ...(this.flow.events.length ? [["events", "event"]] : [])];
  }

  // Limits, states and events in view: what, which, from, to.
  spans() {
    const [low, high] = this.flow.range, rows = [];
    const add = (what, name, start, end) => {
      if (end >= low && start <= high) rows.push([what, name, start.toFixed(6), end.toFixed(6)]);
    };
    for (const [name, , start, end] of this.flow.limits) add("limit", name, start, end);
    for (const { label, names, code, t, end } of this.flow.lanes) {
      for (let i = Math.max(0, lowerBound(t, low) - 1); i < lowerBound(t, high); i++) {
        add(label, names[code[i]], t[i], i + 1 < t.length ? t[i + 1] : end);
      }
    }
    return rows;
  }

  numbers() {
    const events = this.flow.eventsInView().map(([name, start, end, text]) => ["event", name, start.toFixed(6), end.toFixed(6), text]);
    return [["of", "is", "from_s", "to_s", "text"], [...this.spans().map((row) => [...row, ""]), ...events]];
  }

  fillTable() {
    const details = this.figure.querySelector("details.behind");
    if (!details.open) return;
    const rows = this.spans();
    const caption = rows.length <= TABLED ? `${rows.length} spans in view` : `The first ${TABLED} spans in view: zoom in for others`;
    details.querySelector("div").replaceChildren(tableOf(caption, ["Of", "Is", "From (s)", "To (s)"], rows.slice(0, TABLED)));
  }
}
