// Packets in files beside the page: those of what is in view are read once they are few enough to be drawn one by one.
const AT_A_TIME = 400000;  // packets
const KEPT = 12;  // files held in memory
const called = new Map();
window.cctraceChunk = (name, columns) => called.get(name)?.(columns);

// A script may be loaded from a disk, where a page may not read files.
const fetched = (src) => new Promise((done, failed) => {
  const script = document.createElement("script");
  called.set(src, (columns) => { called.delete(src); script.remove(); done(columns); });
  script.onerror = () => { script.remove(); failed(new Error(src)); };
  script.src = src;
  document.head.append(script);
});

class Chunks {
  constructor(spans) {
    this.spans = spans;
    this.ends = Float64Array.from(spans, (span) => span.to * 1e-9);
    this.held = new Map();
    this.key = null;
  }

  // Files that hold the span of time: the first, and the one behind the last.
  of([low, high]) {
    const first = Math.min(lowerBound(this.ends, low + 1e-12), this.spans.length - 1);
    let last = first + 1;
    while (last < this.spans.length && this.spans[last].from * 1e-9 <= high) last++;
    return [first, last];
  }

  // All packets of the span if they are at hand; else null, and `then` is called when they are, or cannot be had.
  at(range, then) {
    const [first, last] = this.of(range), wanted = this.spans.slice(first, last), key = `${first} ${last}`;
    if (key === this.key) return this.packets;
    if (wanted.reduce((sum, span) => sum + span.sent + span.received, 0) > AT_A_TIME) return null;
    if (wanted.some((span) => span.missing)) return null;
    if (wanted.every((span) => this.held.has(span.src))) {
      this.packets = Packets.joined(wanted.map((span) => this.held.get(span.src)), wanted[0]);
      this.key = key;
      const others = [...this.held.keys()].filter((src) => !wanted.some((span) => span.src === src));
      for (const src of others.slice(0, Math.max(0, this.held.size - KEPT))) this.held.delete(src);
      return this.packets;
    }
    this.read(wanted).then(then);
    return null;
  }

  read(wanted) {
    return Promise.all(wanted.map(async (span) => {
      if (this.held.has(span.src)) return;
      span.reading ??= fetched(span.src).then(Packets.columns).then((columns) => {
        this.held.set(span.src, columns);
      }, () => { span.missing = true; }).finally(() => { span.reading = null; });
      await span.reading;
    }));
  }

  // What a reader should know of the packets in view.
  words([low, high]) {
    const [first, last] = this.of([low, high]), wanted = this.spans.slice(first, last);
    const missing = wanted.find((span) => span.missing);
    if (missing) return `${missing.src} is not beside this page: keep the files of the report together.`;
    return this.key === `${first} ${last}` ? "In view: every packet." : "In view: extremes.";
  }
}
