// A series and what of it can be seen: all points while they can be told apart, else the extremes of each pixel column.
const BLOCK = 64;

// Lowest and highest of any rows, from blocks whose extremes are known.
class Pyramid {
  constructor(values) {
    this.values = values;
    const blocks = Math.ceil(values.length / BLOCK);
    this.low = new Float64Array(blocks);
    this.high = new Float64Array(blocks);
    for (let block = 0, i = 0; block < blocks; block++) {
      let low = Infinity, high = -Infinity;
      for (const end = Math.min(i + BLOCK, values.length); i < end; i++) {
        const value = values[i];
        if (value < low) low = value;
        if (value > high) high = value;
      }
      this.low[block] = low;
      this.high[block] = high;
    }
  }
  extremes(first, last) {
    let low = Infinity, high = -Infinity, i = first;
    while (i < last) {
      if ((i & (BLOCK - 1)) === 0 && i + BLOCK <= last) {
        const block = i / BLOCK;
        if (this.low[block] < low) low = this.low[block];
        if (this.high[block] > high) high = this.high[block];
        i += BLOCK;
      } else {
        const value = this.values[i++];
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    return [low, high];
  }
}

class Series {
  constructor(facts, times, values) {
    Object.assign(this, facts);
    this.times = times;
    this.values = values;
    this.hidden = false;
  }
  get pyramid() { return this.known ?? (this.known = new Pyramid(this.values)); }

  // Rows that are in view, one more on either side so that lines reach the edge.
  visible([low, high]) {
    const n = this.times.length;
    return [Math.max(0, lowerBound(this.times, low) - 1), Math.min(n, lowerBound(this.times, high) + 1)];
  }

  draw(c, range, x, y, width) {
    const [first, last] = this.visible(range);
    if (this.kind === "points") this.drawPoints(c, first, last, x, y);
    else this.drawLine(c, first, last, range, x, y, width);
  }

  drawLine(c, first, last, range, x, y, width) {
    if (last - first > 3 * width) { this.drawDense(c, first, last, range, x, y, width); return; }
    c.strokeStyle = colour(this.colour);
    c.lineWidth = this.dashed ? 1.3 : 1.6;
    c.setLineDash(this.dashed ? [4, 3] : []);
    c.lineJoin = "round";
    c.beginPath();
    let previous = null;
    for (let i = first; i < last; i++) {
      const px = x(this.times[i]), py = y(this.values[i]);
      if (previous === null) c.moveTo(px, py);
      else {
        if (this.kind === "steps") c.lineTo(px, previous);
        c.lineTo(px, py);
      }
      previous = py;
    }
    if (this.kind === "steps" && last > first && this.holds) c.lineTo(x(range[1]), previous);
    c.stroke();
    c.setLineDash([]);
  }

  // From the lowest to the highest value of each pixel column, and from the last one of the column before.
  drawDense(c, first, last, [low, high], x, y, width) {
    const step = (high - low) / width, left = x(low);
    c.fillStyle = colour(this.colour);
    let i = first, before = this.values[first];
    for (let column = 0; column <= width && i < last; column++) {
      const end = column === width ? last : lowerBound(this.times, low + (column + 1) * step, i, last);
      if (end === i) continue;
      const found = this.pyramid.extremes(i, end);
      const top = y(Math.max(found[1], before)), bottom = y(Math.min(found[0], before));
      c.fillRect(left + column, top - 0.7, 1, bottom - top + 1.4);
      before = this.values[end - 1];
      i = end;
    }
  }

  drawPoints(c, first, last, x, y) {
    if (last - first > 5000) return this.drawCloud(c, first, last, x, y);
    const size = last - first > 2000 ? 1.8 : last - first > 400 ? 2.2 : 3.2;
    c.fillStyle = colour(this.colour);
    c.globalAlpha = last - first > 2000 ? 0.65 : 0.85;
    for (let i = first; i < last; i++) c.fillRect(x(this.times[i]) - size / 2, y(this.values[i]) - size / 2, size, size);
    c.globalAlpha = 1;
  }

  // Too many points for one call each: their pixels are set one by one.
  drawCloud(c, first, last, x, y) {
    const width = c.canvas.width, height = c.canvas.height, ratio = window.devicePixelRatio || 1;
    const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
    const ink = pixelOf(colour(this.colour), 170), size = ratio > 1 ? 2 : 1;
    const x0 = x(0) * ratio, dx = (x(1) - x(0)) * ratio, y0 = y(0) * ratio, dy = (y(1) - y(0)) * ratio;
    const left = MARGIN.left * ratio, right = width - MARGIN.right * ratio - size;
    const top = MARGIN.top * ratio, bottom = height - MARGIN.bottom * ratio - size;
    for (let i = first; i < last; i++) {
      const px = (x0 + dx * this.times[i]) | 0, py = (y0 + dy * this.values[i]) | 0;
      if (px < left || px > right || py < top || py > bottom) continue;
      const at = py * width + px;
      pixels[at] = ink;
      if (size > 1) pixels[at + 1] = pixels[at + width] = pixels[at + width + 1] = ink;
    }
    const layer = new OffscreenCanvas(width, height);
    layer.getContext("2d").putImageData(image, 0, 0);
    c.drawImage(layer, 0, 0, width / ratio, height / ratio);
  }

  // Value at a time: of the last row that is not later.
  at(t) {
    const row = lowerBound(this.times, t + 1e-12) - 1;
    return row < 0 ? NaN : this.values[row];
  }

  mean(low, high) {
    const first = lowerBound(this.times, low), last = lowerBound(this.times, high);
    if (first === last) return this.kind === "points" ? NaN : this.at(low);
    let sum = 0;
    for (let i = first; i < last; i++) sum += this.values[i];
    return sum / (last - first);
  }
}
