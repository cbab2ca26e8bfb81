// Columns of numbers, as encode.py packs them: inflate, planes of bytes, zigzag, running sum. The page holds them as
// base64, a notebook's kernel sends bytes.
const bytesOf = (packed) => {
  if (typeof packed !== "string") return new Uint8Array(packed.buffer ?? packed, packed.byteOffset ?? 0, packed.byteLength);
  const text = atob(packed), bytes = new Uint8Array(text.length);
  for (let i = 0, n = text.length; i < n; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};
const inflated = async (packed) => {
  const bytes = bytesOf(packed);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// Loops over arrays of one kind only: the engine compiles those to what they cost at least.
const sums = (bytes, n, planes) => {
  const values = new Float64Array(n);
  let value = 0;
  if (planes <= 4) {  // 32-bit integers, the fast way
    for (let i = 0; i < n; i++) {
      let zigzag = bytes[i];
      for (let plane = 1, at = n + i; plane < planes; plane++, at += n) zigzag |= bytes[at] << (8 * plane);
      value += (zigzag >>> 1) ^ -(zigzag & 1);
      values[i] = value;
    }
    return values;
  }
  for (let i = 0; i < n; i++) {
    let zigzag = bytes[(planes - 1) * n + i];
    for (let plane = planes - 2; plane >= 0; plane--) zigzag = zigzag * 256 + bytes[plane * n + i];
    value += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    values[i] = value;
  }
  return values;
};

const decoded = async ({ data, n, planes, scale }, Numbers = Float64Array) => {
  const values = sums(await inflated(data), n, planes);
  if (scale !== 1) for (let i = 0; i < n; i++) values[i] *= scale;
  return Numbers === Float64Array ? values : new Numbers(values);
};

// All columns of an object at once; `types` names those that are not Float64Array.
const decodedAll = async (columns, types = {}) => {
  const names = Object.keys(columns);
  const values = await Promise.all(names.map((name) => decoded(columns[name], types[name])));
  return Object.fromEntries(names.map((name, i) => [name, values[i]]));
};
