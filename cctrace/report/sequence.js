// The time-sequence graph: every segment, acknowledgement, window edge and SACK block, down to the single packet.
const KIND_WORDS = ["new data", "retransmission (loss detection)", "retransmission (tail-loss probe)",
  "retransmission (after a timeout, RTO)", "retransmission (unexplained)", "retransmitted or out of order"];
const LETTERS = ["", "R", "P", "T", "?", "o"];
const FLAGS = [[1, "FIN"], [2, "SYN"], [4, "RST"], [8, "PSH"], [32, "URG"], [64, "ECE"], [128, "CWR"]];
const ONE_BY_ONE = 12000;  // packets in view up to which each is drawn by itself
const LABELLED = 150;
const TABLED = 400;

const flagWords = (flags) => FLAGS.filter(([bit]) => flags & bit).map(([, name]) => name).join(" ");

class SequencePanel extends Panel {
  constructor(figure, flow, packets, chunks = null) {
    super(figure, flow, { axis: "Sequence number (bytes)", from_zero: false, upper_limit: Infinity }, 440);
    Object.assign(this, { packets, whole: packets, chunks });
    this.relative = false;
    this.hidden = new Set();
    this.tip = figure.querySelector(".tip");
    this.focus = null;  // [side, row] of the packet that is pointed at
    figure.querySelector(".relative").addEventListener("click", (event) => {
      this.relative = !this.relative;
      this.values = null;
      event.currentTarget.setAttribute("aria-pressed", String(this.relative));
      this.draw();
    });
  }

  listenToLegend() {
    for (const button of this.figure.querySelectorAll(".legend button[data-layer]")) {
      button.addEventListener("click", () => {
        const shown = this.hidden.delete(button.dataset.layer) || !this.hidden.add(button.dataset.layer);
        button.setAttribute("aria-pressed", String(shown));
        this.draw();
      });
    }
  }

  get view() { return this.packets.views[Number(this.relative)](); }
  get lanes() { return this.present ?? (this.present = [1, 2, 3, 4, 5].filter((k) => this.whole.retransmitted[k].length)); }
  get bottom() { return this.foot - 9 * this.lanes.length; }

  scaled() {
    const most = Math.max(...this.shown.map(Math.abs));
    const [factor, unit] = most >= 1e6 ? [1e6, "MB"] : most >= 1e4 ? [1e3, "kB"] : [1, "B"];
    return [factor, `${this.relative ? "Above the acknowledgement" : "Sequence number"} (${unit})`];
  }

  valueRange() {
    const { view, packets } = this, range = this.flow.range;
    const spans = [view.low.extremes(...packets.rows(0, range)), view.high.extremes(...packets.rows(0, range)),
      view.ack.pyramid.extremes(...view.ack.visible(range))];
    for (const kind of this.lanes) {
      const [first, last] = this.retransmittedInView(kind);
      for (let k = first; k < last && last - first <= ONE_BY_ONE; k++) {
        const i = packets.retransmitted[kind][k], low = packets.sent.seq[i] - packets.baseOf(i, this.relative);
        spans.push([low, low + packets.sent.size[i]]);
      }
    }
    let low = Math.min(...spans.map((s) => s[0])), high = Math.max(...spans.map((s) => s[1]));
    if (low > high) [low, high] = [0, 1];
    // The window's edge, where it is near what was sent.
    const edge = view.window.pyramid.extremes(...view.window.visible(range));
    if (!this.hidden.has("window") && edge[1] > high && edge[1] - high < (high - low) * 0.6) high = edge[1];
    const pad = (high - low || 1000) * 0.05;
    return [low - pad, high + pad];
  }

  retransmittedInView(kind) {
    const times = this.packets.retransmittedTimes[kind];
    return [lowerBound(times, this.flow.range[0]), lowerBound(times, this.flow.range[1] + 1e-12)];
  }

  drawContent(c) {
    const { packets, view } = this, range = this.flow.range, width = this.right - this.left;
    const x = (t) => this.x(t), y = (v) => this.y(v);
    const [s0, s1] = packets.rows(0, range), [r0, r1] = packets.rows(1, range);
    const single = s1 - s0 + r1 - r0 <= ONE_BY_ONE;
    if (!this.hidden.has("window")) view.window.draw(c, range, x, y, width);
    if (!this.hidden.has("sack")) this.drawSacks(c, r0, r1);
    if (!this.hidden.has("new")) single ? this.drawSegments(c, s0, s1) : this.drawBand(c, s0, s1);
    if (!this.hidden.has("ack")) {
      view.ack.draw(c, range, x, y, width);
      if (single) this.drawReceived(c, r0, r1);
    }
    const count = this.lanes.reduce((sum, kind) => sum + this.retransmittedInView(kind)[1] - this.retransmittedInView(kind)[0], 0);
    if (count <= 2000 || single) this.drawAgain(c, count);
    if (single) this.drawMarks(c, s0, s1, r0, r1);
    Object.assign(this.canvas.dataset, { sent: s1 - s0, received: r1 - r0, single, again: count });
  }

  drawBand(c, first, last) {
    const { low, high } = this.view, times = this.packets.times[0], [t0, t1] = this.flow.range;
    const width = this.right - this.left, step = (t1 - t0) / width;
    c.fillStyle = colour("k-new");
    let i = first;
    for (let column = 0; column < width && i < last; column++) {
      const end = column === width - 1 ? last : lowerBound(times, t0 + (column + 1) * step, i, last);
      if (end === i) continue;
      const top = this.y(high.extremes(i, end)[1]), bottom = this.y(low.extremes(i, end)[0]);
      c.fillRect(this.left + column, top, 1, Math.max(1, bottom - top));
      i = end;
    }
  }

  drawSegments(c, first, last) {
    const { sent } = this.packets, ends = last - first < 800;
    c.strokeStyle = colour("k-new");
    c.lineWidth = last - first > 3000 ? 1 : 1.6;
    c.beginPath();
    for (let i = first; i < last; i++) if (!(sent.kind[i] & 7)) this.bar(c, i, ends);
    c.stroke();
  }

  // A bar from first to last byte; ticks at its ends where there is room for them.
  bar(c, i, ends) {
    const { sent, times } = this.packets, base = this.packets.baseOf(i, this.relative);
    const px = this.x(times[0][i]), from = this.y(sent.seq[i] - base), to = this.y(sent.seq[i] + sent.size[i] - base);
    const least = from - to < 2 ? 1 : 0;
    c.moveTo(px, from + least); c.lineTo(px, to - least);
    if (ends && from - to > 8) {
      c.moveTo(px - 3, from - 3); c.lineTo(px, from); c.lineTo(px + 3, from - 3);
      c.moveTo(px - 3, to + 3); c.lineTo(px, to); c.lineTo(px + 3, to + 3);
    }
  }

  drawAgain(c, count) {
    c.font = "bold 11px system-ui, sans-serif";
    c.textAlign = "left";
    c.textBaseline = "bottom";
    for (const kind of this.lanes) {
      if (this.hidden.has(KINDS[kind])) continue;
      const [first, last] = this.retransmittedInView(kind);
      c.strokeStyle = c.fillStyle = colour(`k-${KINDS[kind]}`);
      c.lineWidth = count > 400 ? 1.5 : 2.4;
      c.beginPath();
      for (let k = first; k < last; k++) this.bar(c, this.packets.retransmitted[kind][k], count < 400);
      c.stroke();
      if (count > LABELLED) continue;
      for (let k = first; k < last; k++) {
        const i = this.packets.retransmitted[kind][k], { sent } = this.packets;
        const top = sent.seq[i] + sent.size[i] - this.packets.baseOf(i, this.relative);
        const letter = LETTERS[kind] + (sent.kind[i] & 8 ? "d" : "");
        c.fillText(letter, this.x(this.packets.times[0][i]) + 3, this.y(top) + 4);
      }
    }
    c.font = FONT;
  }

  drawReceived(c, first, last) {
    const { received, times } = this.packets;
    c.strokeStyle = colour("k-ack");
    c.lineWidth = 1.4;
    c.beginPath();
    for (let i = first; i < last; i++) {
      if (received.ack[i] < 0) continue;
      const px = this.x(times[1][i]), py = this.y(this.relative ? 0 : received.ack[i]);
      c.moveTo(px, py - 2.5); c.lineTo(px, py + 2.5);
    }
    c.stroke();
  }

  drawSacks(c, first, last) {
    const { left, right } = this.view, { first: at, times } = this.packets;
    const from = at[first], to = at[last];
    c.fillStyle = colour("k-sack");
    if (to - from <= ONE_BY_ONE) {
      for (let i = first; i < last; i++) {
        for (let k = at[i]; k < at[i + 1]; k++) {
          const top = this.y(right.values[k]), bottom = this.y(left.values[k]);
          c.fillRect(this.x(times[1][i]) - 1, top, 2, Math.max(1.5, bottom - top));
        }
      }
      return;
    }
    const width = this.right - this.left, [t0, t1] = this.flow.range, step = (t1 - t0) / width;
    c.globalAlpha = 0.45;
    let i = first;
    for (let column = 0; column < width && i < last; column++) {
      const end = column === width - 1 ? last : lowerBound(times[1], t0 + (column + 1) * step, i, last);
      if (at[end] > at[i]) {
        const top = this.y(right.extremes(at[i], at[end])[1]), bottom = this.y(left.extremes(at[i], at[end])[0]);
        c.fillRect(this.left + column, top, 1, Math.max(1, bottom - top));
      }
      i = end;
    }
    c.globalAlpha = 1;
  }

  // Letters of what changes a connection, and of a receiver that takes no more.
  drawMarks(c, s0, s1, r0, r1) {
    const { sent, received, times } = this.packets;
    c.fillStyle = colour("ink");
    c.textAlign = "left";
    c.textBaseline = "bottom";
    let right = -Infinity, last = 0;
    // A word that would cover the one before it says nothing more.
    const write = (word, side, i, v) => {
      const left = this.x(times[side][i]) + 3, y = this.y(v);
      if (left < right && Math.abs(y - last) < 12) return;
      c.fillText(word, left, y);
      [right, last] = [left + c.measureText(word).width, y];
    };
    const mark = (side, i, v, flags) => {
      const word = flags & 2 ? "SYN" : flags & 4 ? "RST" : flags & 1 ? "FIN" : "";
      if (word) write(word, side, i, v);
    };
    for (let i = s0; i < s1; i++) if (sent.flags[i] & 7) mark(0, i, sent.seq[i] - this.packets.baseOf(i, this.relative), sent.flags[i]);
    right = -Infinity;
    for (let i = r0; i < r1; i++) {
      const v = this.relative ? 0 : received.ack[i];
      if (received.flags[i] & 7) mark(1, i, v, received.flags[i]);
      if (received.window[i] === 0 && !(received.flags[i] & 6)) write("zero window", 1, i, v);
    }
  }

  // Lanes below the graph: how many segments of each kind of retransmission left in each pixel's time.
  draw() {
    if (this.chunks) this.take();
    super.draw();
    const c = this.canvas.getContext("2d"), [t0, t1] = this.flow.range, width = this.right - this.left;
    this.lanes.forEach((kind, lane) => {
      const top = this.bottom + 1 + 9 * lane, times = this.packets.retransmittedTimes[kind], [first, last] = this.retransmittedInView(kind);
      c.fillStyle = colour(`k-${KINDS[kind]}`);
      for (let i = first; i < last;) {
        const column = Math.floor((times[i] - t0) / (t1 - t0) * width);
        const end = Math.max(i + 1, lowerBound(times, t0 + (column + 1) * (t1 - t0) / width, i, last));
        c.globalAlpha = Math.min(1, 0.35 + 0.15 * (end - i));
        c.fillRect(this.left + column, top, Math.max(1, last - first < 500 ? 2 : 1), 7);
        i = end;
      }
      c.globalAlpha = 1;
    });
  }

  // The packets of what is in view from the files beside the page, if it is short, else the selection on the page.
  take() {
    const { range } = this.flow, packets = this.chunks.at(range, () => this.draw()) ?? this.whole;
    if (packets !== this.packets) this.focus = null;
    this.packets = packets;
    this.figure.querySelector(".packet-files").textContent = this.chunks.words(range);
  }

  drawAxes(c) {
    super.drawAxes(c);
    c.textAlign = "right";
    c.textBaseline = "top";
    c.font = "9px system-ui, sans-serif";
    this.lanes.forEach((kind, lane) => {
      c.fillStyle = colour("soft");
      c.fillText({ fast: "retransm.", probe: "probe", timeout: "RTO", unexplained: "unexpl.", unclassified: "unclass." }[KINDS[kind]],
        this.left - 5, this.bottom + 9 * lane);
    });
    c.font = FONT;
  }

  // The packet nearest to a place, [side, row], null if none is near.
  nearest(px, py) {
    const { packets } = this, { sent, received, times } = packets;
    const reach = [this.timeAt(px - 14), this.timeAt(px + 14)];
    let best = 14, found = null;
    for (const side of [0, 1]) {
      const [first, last] = packets.rows(side, reach);
      if (last - first > 20000) return null;
      for (let i = first; i < last; i++) {
        const base = side ? 0 : packets.baseOf(i, this.relative);
        const low = side ? (this.relative ? 0 : received.ack[i]) : sent.seq[i] - base;
        const high = side ? low : low + sent.size[i];
        const above = this.y(high) - py, below = py - this.y(low);
        const distance = Math.hypot(this.x(times[side][i]) - px, Math.max(0, above, below));
        if (distance < best) { best = distance; found = [side, i]; }
      }
    }
    return found;
  }

  point(place) {
    this.focus = this.from ? null : this.nearest(...place);
    super.point(place);
  }

  describe([side, i]) {
    const { sent, received } = this.packets, of = side ? received : sent;
    const start = this.flow.startNs, lines = [`${of.frame[i] ? `frame ${of.frame[i]} · ` : ""}${wallClock(start, of.t[i])}`,
      `${(of.t[i] * 1e-9).toFixed(9)} s after the first packet`];
    const flags = flagWords(of.flags[i]);
    if (!side) {
      const kind = sent.kind[i] & 7;
      lines.push(`bytes ${grouped(sent.seq[i])} to ${grouped(sent.seq[i] + sent.size[i])}, ${sent.size[i]} B`);
      if (sent.size[i]) lines.push(KIND_WORDS[kind] + (sent.kind[i] & 8 ? ", needless: a D-SACK reported it" : ""));
    } else {
      lines.push(received.ack[i] < 0 ? "no acknowledgement" : `acknowledges up to ${grouped(received.ack[i])}`);
      lines.push(received.window[i] < 0 ? "window not known: its scale was not captured" : `window ${grouped(received.window[i])} B`);
      for (let k = this.packets.first[i]; k < this.packets.first[i + 1]; k++) {
        lines.push(`SACK ${grouped(received.left[k])} to ${grouped(received.left[k] + received.length[k])}`);
      }
      if (received.size[i]) lines.push(`carries ${received.size[i]} B itself`);
    }
    return flags ? [...lines, flags] : lines;
  }

  drawCursor() {
    super.drawCursor();
    const shown = this.focus && this.flow.pointed === this && this.flow.cursor !== null;
    this.tip.hidden = !shown;
    if (!shown) return;
    const [side, i] = this.focus, { sent, received, times } = this.packets;
    const px = this.x(times[side][i]);
    const value = side ? (this.relative ? 0 : received.ack[i]) : sent.seq[i] + sent.size[i] - this.packets.baseOf(i, this.relative);
    const py = this.y(value), c = this.overlay.getContext("2d");
    c.strokeStyle = colour("ink");
    c.lineWidth = 1.5;
    c.beginPath(); c.arc(px, py, 5, 0, 7); c.stroke();
    this.tip.replaceChildren(...this.describe(this.focus).map((line) => element("div", line)));
    const flip = px > this.right - 330;
    this.tip.style.left = flip ? "" : `${px + 14}px`;
    this.tip.style.right = flip ? `${this.canvas.clientWidth - px + 14}px` : "";
    this.tip.style.top = `${Math.max(4, Math.min(py - 20, this.height - 150))}px`;
  }

  words(cursor) {
    if (this.focus && this.flow.pointed === this) return this.describe(this.focus);
    const { ack, window: edge } = this.view, { packets } = this;
    const acked = packets.views[0]().ack.at(cursor), limit = packets.views[0]().window.at(cursor);
    const [s, r] = [packets.rows(0, this.flow.range), packets.rows(1, this.flow.range)];
    const shown = this.chunks && packets === this.whole ? " (a selection: zoom in for all)" : "";
    return [`${cursor.toFixed(6)} s`, `acknowledged ${grouped(acked || 0)}`,
      ...(Number.isNaN(limit) ? [] : [`window edge ${grouped(limit)}`]),
      `in view ${grouped(s[1] - s[0])} packets sent, ${grouped(r[1] - r[0])} received${shown}`, ...this.flow.circumstances(cursor)];
  }

  // From packet to packet, in the order of time.
  press(event) {
    if (event.key !== "." && event.key !== ",") return super.press(event);
    const { times } = this.packets, forward = event.key === ".";
    const at = this.focus ? times[this.focus[0]][this.focus[1]] : this.flow.cursor ?? this.flow.range[0];
    const rows = this.focus ? null : times.map((t) => lowerBound(t, at));
    const next = [0, 1].map((side) => {
      if (rows) return forward ? rows[side] : rows[side] - 1;
      if (side === this.focus[0]) return this.focus[1] + (forward ? 1 : -1);
      return forward ? lowerBound(times[side], at) + (times[side][lowerBound(times[side], at)] === at && side < this.focus[0] ? 1 : 0)
        : lowerBound(times[side], at) - 1;
    });
    const found = [0, 1].filter((side) => next[side] >= 0 && next[side] < times[side].length)
      .sort((a, b) => (times[a][next[a]] - times[b][next[b]]) * (forward ? 1 : -1))[0];
    if (found === undefined) return true;
    this.focus = [found, next[found]];
    const t = this.flow.cursor = times[found][next[found]];
    this.flow.pointed = this;
    const [low, high] = this.flow.range;
    if (t < low || t > high) this.flow.move(this.flow.range, t - (low + high) / 2);
    else this.flow.drawCursors();
    return true;
  }

  legend() {
    const shown = [...this.figure.querySelectorAll(".legend button[data-layer]")].filter((one) => !this.hidden.has(one.dataset.layer));
    return shown.map((one) => [one.textContent, `k-${one.dataset.layer}`]);
  }

  cannotSave(kind) {
    return kind === "csv" && this.chunks && this.packets === this.whole
      ? "Zoom in until every packet in view has been read: the extremes that stand for them are no table." : "";
  }

  // Every packet in view.
  numbers() {
    const { sent, received, times, first } = this.packets, rows = [];
    const [s0, s1] = this.packets.rows(0, this.flow.range), [r0, r1] = this.packets.rows(1, this.flow.range);
    for (let i = s0; i < s1; i++) {
      rows.push([(sent.t[i] * 1e-9).toFixed(9), sent.frame[i] || "", "sent", KIND_WORDS[sent.kind[i] & 7], sent.seq[i],
        sent.size[i], "", "", "", flagWords(sent.flags[i])]);
    }
    for (let i = r0; i < r1; i++) {
      const blocks = Array.from({ length: received.blocks[i] }, (_, k) => first[i] + k)
        .map((k) => `${received.left[k]}-${received.left[k] + received.length[k]}`).join(" ");
      rows.push([(received.t[i] * 1e-9).toFixed(9), received.frame[i] || "", "received", "", "", received.size[i],
        received.ack[i] < 0 ? "" : received.ack[i], received.window[i] < 0 ? "" : received.window[i], blocks,
        flagWords(received.flags[i])]);
    }
    rows.sort((a, b) => a[0] - b[0]);
    const head = ["time_s", "frame", "direction", "kind", "seq", "payload_bytes", "ack", "window_bytes", "sack", "flags"];
    return [head, rows];
  }

  fillTable() {
    const details = this.figure.querySelector("details.behind");
    if (!details.open) return;
    const { packets } = this, { sent, received, times } = packets;
    const rows = [0, 1].flatMap((side) => {
      const [first, last] = packets.rows(side, this.flow.range);
      return Array.from({ length: Math.min(last - first, TABLED) }, (_, k) => [side, first + k]);
    }).sort(([a, i], [b, k]) => times[a][i] - times[b][k]).slice(0, TABLED);
    const lines = rows.map(([side, i]) => {
      const of = side ? received : sent, texts = this.describe([side, i]).slice(2);
      return [of.frame[i] || "", (of.t[i] * 1e-9).toFixed(9), side ? "received" : "sent", texts.join("; ")];
    });
    const caption = rows.length < TABLED ? `${rows.length} packets in view` : `The first ${TABLED} packets in view: zoom in for others`;
    details.querySelector("div").replaceChildren(tableOf(caption, ["Frame", "Time (s)", "Direction", "What"], lines));
  }
}
