// The packets of a flow, columns of both directions, and the curves that a time-sequence graph draws of them.
const KINDS = ["new", "fast", "probe", "timeout", "unexplained", "unclassified"];

const secondsOf = (ns) => {
  const seconds = new Float64Array(ns.length);
  for (let i = 0; i < ns.length; i++) seconds[i] = ns[i] * 1e-9;
  return seconds;
};
const picked = (rows, count, value) => {
  const values = new Float64Array(count);
  for (let k = 0; k < count; k++) values[k] = value(rows[k]);
  return values;
};

class Packets {
  static async columns(data) {
    const small = { kind: Uint8Array, flags: Uint16Array, size: Int32Array, frame: Uint32Array, blocks: Uint8Array };
    return Promise.all([decodedAll(data.sent, small), decodedAll(data.received, small)]);
  }

  static async from(data) { return new Packets(...await Packets.columns(data)); }

  // Of spans of time that follow each other; `before` tells what had been acknowledged and sent when the first begins.
  static joined(parts, before) {
    const sides = [0, 1].map((side) => Object.fromEntries(Object.keys(parts[0][side]).map((name) => {
      const columns = parts.map((part) => part[side][name]);
      const whole = new columns[0].constructor(columns.reduce((sum, column) => sum + column.length, 0));
      columns.reduce((at, column) => { whole.set(column, at); return at + column.length; }, 0);
      return [name, whole];
    })));
    return new Packets(...sides, before);
  }

  constructor(sent, received, before = { acked: 0, top: 0 }) {
    this.before = before;
    Object.assign(this, { sent, received });
    this.times = [secondsOf(sent.t), secondsOf(received.t)];
    const n = sent.t.length, m = received.t.length;
    this.first = new Uint32Array(m + 1);
    for (let i = 0; i < m; i++) this.first[i + 1] = this.first[i] + received.blocks[i];
    // What was acknowledged when each segment left, and when each SACK block arrived.
    this.base = new Float64Array(n);
    let row = 0, { acked } = before;
    for (let i = 0; i < n; i++) {
      while (row < m && received.t[row] <= sent.t[i]) { if (received.ack[row] > acked) acked = received.ack[row]; row++; }
      this.base[i] = acked;
    }
    this.retransmitted = KINDS.map(() => []);
    for (let i = 0; i < n; i++) if (sent.kind[i] & 7) this.retransmitted[sent.kind[i] & 7].push(i);
    this.retransmittedTimes = this.retransmitted.map((rows) => picked(rows, rows.length, (i) => this.times[0][i]));
    this.views = [this.view(false), this.view(true)];
  }

  // The curves and bars, absolute or relative to the cumulative acknowledgement.
  view(relative) {
    let made;
    return () => made ?? (made = this.makeView(relative));
  }

  makeView(relative) {
    const { sent, received } = this, n = sent.t.length, m = received.t.length;
    const low = new Float64Array(n), high = new Float64Array(n);
    let { top } = this.before;
    for (let i = 0; i < n; i++) {
      const base = relative ? this.base[i] : 0, end = sent.seq[i] + sent.size[i];
      const again = sent.kind[i] & 7;
      if (!again) top = Math.max(top, end);
      low[i] = (again ? top : sent.seq[i]) - base;
      high[i] = (again ? top : end) - base;
    }
    const acks = new Uint32Array(m), edged = new Uint32Array(m);
    let count = 0, windows = 0;
    for (let i = 0; i < m; i++) {
      if (received.ack[i] < 0) continue;
      acks[count++] = i;
      if (received.window[i] >= 0) edged[windows++] = i;
    }
    const at = (i) => this.times[1][i];
    const line = picked(acks, count, (i) => relative ? 0 : received.ack[i]);
    const edges = picked(edged, windows, (i) => received.window[i] + (relative ? 0 : received.ack[i]));
    const blocks = received.left.length, left = new Float64Array(blocks), right = new Float64Array(blocks);
    for (let i = 0; i < m; i++) {
      for (let k = this.first[i]; k < this.first[i + 1]; k++) {
        left[k] = received.left[k] - (relative ? received.ack[i] : 0);
        right[k] = left[k] + received.length[k];
      }
    }
    return {
      low: new Pyramid(low), high: new Pyramid(high), left: new Pyramid(left), right: new Pyramid(right),
      ack: new Series({ kind: "steps", colour: "k-ack", holds: true }, picked(acks, count, at), line),
      window: new Series({ kind: "steps", colour: "k-window", holds: true }, picked(edged, windows, at), edges),
    };
  }

  baseOf(i, relative) { return relative ? this.base[i] : 0; }

  rows(side, [low, high]) { return [lowerBound(this.times[side], low), lowerBound(this.times[side], high + 1e-12)]; }
}
