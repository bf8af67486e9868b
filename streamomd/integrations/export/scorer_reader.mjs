// Predictions of a file that `streamomd export --as scorer` wrote. No dependency; node 20, browsers, Deno.
//
//   import { load } from "./scorer_reader.mjs";
//   const predict = await load(await readFile("bank.scorer"));   // the bytes of the file
//   predict({ age: 30, job: "cook" });   // { prediction: "no", score: -1.3, probability: 0.2 }
//
// A result has the columns of `streamomd predict`. A row has numbers (or BigInt; decimals, durations and times of day
// as numbers, the latter in seconds), strings, booleans, Uint8Array of bytes, dates as ISO text or Date (in UTC) and
// arrays; null and NaN are missing values. Throws an Error for a bad value and a missing column.
const isMissing = (value) => value === null || Number.isNaN(value);
const sigmoid = (m) => 1 / (1 + Math.exp(-m));
const listed = (value, missing = []) => (isMissing(value) ? missing : Array.from(value));
const fail = (name, value, expected) => { throw new Error(`column '${name}': found ${value}, expected ${expected}`); };
const binary = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
const utf8 = (text) => binary(new TextEncoder().encode(text));  // texts are hashed as bytes, a character each
const escaped = (text) => (text === null ? "\\N" : text.replace(/[\\^]/g, "\\$&"));
const key = (column, text) => utf8(column) + (text === null ? "\xff" : "=" + text);

async function unzipped(file) {
  const view = new DataView(file.buffer ?? file, file.byteOffset ?? 0, file.byteLength), end = view.byteLength - 22, members = {};
  const u16 = (at) => view.getUint16(at, true), u32 = (at) => view.getUint32(at, true);
  const slice = (at, size) => new Uint8Array(view.buffer, view.byteOffset + at, size);
  // The end of a zip archive without a comment says where its directory is.
  for (let n = u16(end + 10), at = u32(end + 16); n > 0; n--, at += 46 + u16(at + 28) + u16(at + 30) + u16(at + 32)) {
    const from = u32(at + 42), packed = slice(from + 30 + u16(from + 26) + u16(from + 28), u32(at + 20));
    const inflated = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    members[binary(slice(at + 46, u16(at + 28)))] = await new Response(inflated).arrayBuffer();
  }
  return members;
}

export async function load(file) {
  const members = await unzipped(file), head = JSON.parse(new TextDecoder().decode(members["scorer.json"])), arrays = {};
  if (head.format !== "streamomd scorer" || head.version !== 1 || head.margins.rule)
    throw new Error("expected a file of streamomd export --as scorer");
  for (const [name, [kind]] of Object.entries(head.arrays))  // little-endian, as all machines are
    arrays[name] = new (kind === "int64" ? BigInt64Array : Float64Array)(members[`${name}.bin`]);
  const { coordinates } = arrays, places = coordinates && new Map(Array.from(coordinates, (at, k) => [Number(at), k]));
  const { trees } = head.columns, grown = trees && (await (await import("./scorer_trees.mjs")).treesOf(trees, unzipped));
  return (row) => prediction(head.link, margins(head.columns, arrays, places, grown, row));
}

function margins(c, { start, weights, reference, target, fill }, places, grown, row) {
  const found = Array.from(start), first = Number(c.bias), p = reference ? reference.length / 2 : 0, sums = new Map();
  const add = (at, x, k = places ? places.get(at) : at) =>
    found.forEach((_, l) => { found[l] += (weights[k * found.length + l] ?? 0) * x; });
  const addTo = (map, at, x) => map.set(at, (map.get(at) ?? 0) + x), sum = (at, x) => addTo(sums, at, x);
  const { values, indicators, hatless } = numbers(c, fill, row), hashOf = (text) => murmur3(text, c.seed) % 2 ** c.bits;
  const hashes = categories(c, row, values, hatless).map(hashOf);  // of a category a column, first
  const hashed = first + values.push(...(grown?.(values, hatless, hashes) ?? [])); hashes.forEach((one) => sum(hashed + one, 1));
  values.forEach((x, k) => add(first + k, k >= p ? x : reference[p + k] > 0 ? (x - reference[k]) / reference[p + k] : 0));
  for (const [name, ngrams, how] of c.texts) {
    const words = wordsOf(valueOf(row, name)), counts = new Map();
    for (let n = 1; n <= ngrams; n++)
      for (let i = n; i <= words.length; i++) addTo(counts, hashOf(key(name, utf8(words.slice(i - n, i).join(" ")))), 1);
    counts.forEach((n, at) => sum(hashed + at, how === "presence" ? 1 : how === "count" ? n : Math.log1p(n)));
  }
  const sparse = hashed + (c.categories.length + c.lists.length + c.texts.length + c.dates.length + c.crosses.length ? 2 ** c.bits : 0);
  const [indices, name, size, kind] = c.sparse ?? [null, null, 0];
  const [ids, x] = [indices, name].map((of) => (of === null ? [] : listed(valueOf(row, of))));
  if (ids.length !== x.length) fail(indices, `${ids.length} indices`, x.length);
  ids.forEach((k, i) => sum(k >= 0 && k < size ? sparse + Number(k) : fail(indices, k), number(c, x[i], kind, name)));
  sums.forEach((one, at) => add(at, c.narrow ? Math.fround(one) : one));
  indicators.forEach((one, k) => add(sparse + size + k, one));
  return target ? found.map((m) => target[0] + target[1] * m) : found;
}

function numbers(c, fill, row) {
  const values = [], indicators = [], hatless = new Set();
  for (const [name, width, kind, nulls, ragged] of [...c.numbers.map(([of, ...rest]) => [of, null, ...rest]), ...c.vectors]) {
    const value = valueOf(row, name), zero = kind === "boolean" ? false : 0, n = width ?? 1;
    const elements = width === null ? [value] : listed(value, Array(n).fill(null));
    const missing = elements.some(isMissing), isShort = ragged && elements.length < n;
    if ((elements.length !== n && !isShort) || (missing && nulls === "error")) fail(name, value, `${n} of ${kind}`);
    if (nulls === "indicator") indicators.push(Number(missing));
    for (let k = 0; k < n; k++) {
      const one = k < elements.length ? elements[k] : zero, absent = isMissing(one);
      if (nulls === "indicator" ? missing : absent && nulls === "mean") hatless.add(values.length);
      values.push(!absent ? number(c, one, kind, name) : nulls === "mean" ? fill[values.length] : 0);
    }
  }
  for (const [place, , , knots] of c.curves ?? []) {
    const x = values[place], k = hatless.has(place) ? NaN : knots.slice(1, -1).filter((knot) => x >= knot).length;
    const share = Math.min(1, Math.max(0, (x - knots[k]) / (knots[k + 1] - knots[k])));
    values.push(...knots.map((_, j) => (j === k ? 1 - share : j === k + 1 ? share : 0)));
  }
  return { values, indicators, hatless };
}

const rounded = (x, kind) => (kind === "float32" ? Math.fround(x) : kind === "float16" ? Math.f16round(x) : x);
function number(c, value, kind, name) {
  const legal = kind === "boolean" ? ["boolean"] : ["number", "bigint"], x = rounded(Number(value), kind);
  const most = Math.min(c.most ?? Number.MAX_VALUE, c.largest ?? Number.MAX_VALUE), size = Math.abs(x);
  return legal.includes(typeof value) && (x === 0 || (size >= c.least && size <= most)) ? x : fail(name, value, kind);
}

function categories(c, row, x, hatless) {
  const texts = Object.fromEntries(c.categories.map(([name, kind]) => [name, category(valueOf(row, name), kind, name)]));
  const keys = c.categories.filter(([, , isAlone]) => isAlone).map(([name]) => key(name, texts[name]));
  for (const [name, kind, parts] of c.dates) {
    const date = dateOf(valueOf(row, name), kind, name), weekday = date && (date.getUTCDay() || 7);
    const known = date && { year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, weekday, hour: date.getUTCHours() };
    for (const part of parts) keys.push(key(`${name}.${part}`, (texts[`${name}.${part}`] = date && String(known[part]))));
  }
  for (const [of, at, edges, bins] of c.bins ?? []) texts[of] = hatless.has(at) ? null : bins[edges.filter((e) => x[at] >= e).length];
  for (const cross of c.crosses) keys.push(key(cross.map(escaped).join("^"), cross.map((of) => escaped(texts[of])).join("^")));
  return keys.concat(c.lists.flatMap(([of, kind]) => listed(valueOf(row, of), [null]).map((x) => key(of, category(x, kind, of)))));
}

function category(value, kind, name) {
  const type = typeof value, isText = kind === "text" || kind === "bytes";
  if (isMissing(value) || (isText && value instanceof Uint8Array)) return isMissing(value) ? null : binary(value);
  if (isText !== (type === "string") || (kind === "boolean") !== (type === "boolean")) fail(name, value, kind);
  if (isText || kind === "boolean") return utf8(String(value));
  if (kind === "integer") return String(BigInt(value));  // throws for a fraction
  const x = rounded(Number(value), kind) + 0, [digits, power] = x.toExponential().split("e");  // as Python writes floats
  if (power >= -4 && power < 16) return Number.isInteger(x) ? `${x}.0` : String(x);
  return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

function dateOf(value, kind, name) {
  if (isMissing(value) || value instanceof Date) return value || null;
  const zoned = /(Z|[+-]\d\d:?\d\d)$/.test(value) && value.includes(":"), iso = String(value).replace(" ", "T");
  const date = new Date(zoned || kind === "date" || !iso.includes("T") ? iso : `${iso}Z`);
  return Number.isNaN(date.getTime()) || zoned !== kind.endsWith("zone") ? fail(name, value, kind) : date;
}

function wordsOf(value) {
  const text = typeof (value ?? "") === "string" ? value ?? "" : new TextDecoder().decode(value);
  const lower = (one) => String.fromCodePoint(one.toLowerCase().codePointAt(0));
  return (text.match(/[\p{L}\p{M}\p{N}_]+/gu) ?? []).map((word) => Array.from(word, lower).join(""));
}

function valueOf(row, name, isInside) {  // "a.b" may be field b of an object a
  let found = row[name];
  for (let at = name.lastIndexOf("."); at > 0 && found === undefined; at = name.lastIndexOf(".", at - 1))
    found = row[name.slice(0, at)] && valueOf(row[name.slice(0, at)], name.slice(at + 1), true);
  return found === undefined && !isInside ? fail(name, "none", "a value") : found;
}

function murmur3(text, h) {
  const turn = (k, n) => (k << n) | (k >>> (32 - n));
  for (let at = 0, k = 0; at < text.length; at += 4, k = 0) {
    for (let j = 0; j < 4 && at + j < text.length; j++) k |= text.charCodeAt(at + j) << (8 * j);
    h ^= Math.imul(turn(Math.imul(k, 0xcc9e2d51), 15), 0x1b873593);
    if (at + 4 <= text.length) h = (Math.imul(turn(h, 13), 5) + 0xe6546b64) | 0;
  }
  h ^= text.length;
  for (const [n, factor] of [[16, 0x85ebca6b], [13, 0xc2b2ae35], [16, 1]]) h = Math.imul(h ^ (h >>> n), factor);
  return h >>> 0;
}

function prediction({ labels, loss, mean, of, calibrated, probable, coupled, e }, margins) {
  const { exp, max } = Math, n = margins.length, score = n > 1 ? margins : margins[0], highest = max(...margins);
  // Undefined, which fails when it is called: of another version.
  const link = { margin: (m) => m, sigmoid, loss: { gamma: exp, log_square: exp, poisson: exp, tweedie: exp }[loss] }[of ?? mean];
  if (!labels.length) return { prediction: link(score), score };
  const result = { prediction: labels[n > 1 ? margins.indexOf(highest) : Number(score > 0)], score };
  if (calibrated) {
    const m = n > 1 ? margins[1] - margins[0] : score, second = probabilityOf(calibrated, m);
    result.probability = n > 1 ? [1 - second, second] : second;
  } else if (probable) {
    const each = margins.map((m) => (coupled ? Math.exp(m - highest) : (1 - e) * link(m) + e / 2));
    const total = each.reduce((a, b) => a + b, 0), shares = each.map((x) => (total ? x / total : 1 / n));
    result.probability = n === 1 ? each[0] : coupled ? shares.map((x) => (1 - e) * x + e / n) : shares;
  }
  return result;
}

function probabilityOf({ kind, x, p }, m) {
  if (kind === "sigmoid") return sigmoid(x[0] * m + x[1]);
  const low = x.filter((one) => one <= m).length - 1, high = Math.min(low + 1, x.length - 1);
  return low < 0 ? p[0] : low === high ? p[low] : p[low] + ((m - x[low]) / (x[high] - x[low])) * (p[high] - p[low]);
}
