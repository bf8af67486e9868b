// Margins of boosted trees, for scorer_reader.mjs, which loads this file for a model that has trees.
// The nodes are arrays of an archive that numpy wrote; a category's coordinate has a code by column.
const KINDS = {
  feature: Int32Array, right: Int32Array, nan_left: Int8Array, value: Float64Array, codes: Float64Array,
  unseen: Float64Array, roots: BigInt64Array, places: BigInt64Array, ends: BigInt64Array,
};

// A function of a row's numbers, of which those in missing are NaN, and of the coordinates of its categories, from 0.
export async function treesOf({ margins, columns, growths }, unzipped) {
  const members = await unzipped(Uint8Array.from(atob(growths), (one) => one.charCodeAt(0))), a = {};
  for (const [name, Kind] of Object.entries(KINDS)) {
    const file = members[`0.${name}.npy`], begin = 10 + new DataView(file).getUint16(8, true);  // after numpy's header
    a[name] = Array.from(new Kind(file.slice(begin)), Number);
  }
  const { feature, value, right, nan_left, roots, ends, unseen } = a;
  const pairs = a.places.map((at, j) => [at, a.codes[j]]);
  const codes = ends.map((end, k) => new Map(pairs.slice(ends[k - 1] ?? 0, end)));
  return (numbers, missing, places) => {
    const given = numbers.slice(0, columns - codes.length).map((x, k) => (missing.has(k) ? NaN : x));
    const x = [...given, ...codes.map((known, k) => known.get(places[k]) ?? unseen[k])], found = Array(margins).fill(0);
    for (let tree = 0; tree < roots.length - 1; tree++) {
      let at = roots[tree];
      while (feature[at] >= 0) {
        const v = x[feature[at]];
        at = (Number.isNaN(v) ? nan_left[at] : v <= value[at]) ? at + 1 : right[at];
      }
      found[tree % margins] += value[at];
    }
    return found;
  };
}
