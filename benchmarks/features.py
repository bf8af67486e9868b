"""What does a row cost on its way from Arrow's columns to coordinates?

ns of processor time a row of ``encode`` and of its parts, the median of --times runs in turn in
this process, on rows like Criteo's: 13 whole numbers of which a fifth is null (``nulls = "zero"``),
26 columns of strings of 8 characters with 3 … 1,000,000 distinct values, few of them frequent, some
null; 2^20 hashed coordinates, names kept. Batches of --batch rows, as units of 4 MiB have.

- a column by its number of distinct values: as plain strings, and as a dictionary of each batch's;
- numbers: 13 columns checked; rows: numbers and coordinates written as sorted rows;
- encode: all of it, strings plain or as dictionaries, without names and with, these being full;
- a cross of two columns; a text of 10 words, alone and with pairs;
- a text of 250 words of 1 … 12 letters, in ASCII, with a letter beyond it in a tenth of the words,
  and with names.

--package DIR puts another copy of streamomd first on the path: figures before and after a change.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DISTINCT = (
    1460, 583, 1_000_000, 1_000_000, 305, 24, 12_517, 633, 3, 93_145, 5683, 1_000_000, 3194, 27,
    14_992, 1_000_000, 10, 5652, 2173, 4, 1_000_000, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip
NUMBERS = [f"I{k + 1}" for k in range(13)]
STRINGS = [f"C{k + 1}" for k in range(26)]
_FEWER = 8  # long texts are as many rows of an eighth as many different ones
SHOWN = ("C9", "C2", "C13", "C7", "C10", "C24", "C3")


def strings(rng: np.random.Generator, rows: int, distinct: int, salt: int) -> pa.Array:
    """Texts of 8 hexadecimal digits: value k as often as 1 / k."""
    drawn = np.exp(rng.random(rows) * np.log(distinct)).astype(np.int64)
    mixed = ((drawn * 2_654_435_761 + salt * 40_503) & 0xFFFFFFFF).astype(">u4")
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * 8)
    data = pa.py_buffer(mixed.tobytes().hex().encode())
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, data])


def prose(rng: np.random.Generator, rows: int, beyond: str) -> pa.Array:
    """Texts of 250 words of 1 … 12 letters, word k as often as 1 / k; ``beyond`` ends a tenth."""
    lengths = rng.integers(1, 13, 50_000)
    known = ["".join(rng.choice([*"abcDst"], size)) for size in lengths]
    known = [word[:-1] + beyond if k % 10 == 0 else word for k, word in enumerate(known)]
    drawn = np.exp(rng.random((rows, 250)) * np.log(len(known))).astype(np.int64)
    return pa.array([" ".join([known[k] for k in row]) for row in drawn.tolist()])


def batch(rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    """Rows like Criteo's, with columns y, I1 … I13, C1 … C26 and a text t."""
    columns = {"y": pa.array(rng.integers(0, 2, rows).astype(np.int8))}
    for name in NUMBERS:
        drawn = rng.lognormal(1.0, 1.5, rows).astype(np.int32)
        columns[name] = pa.array(drawn, mask=rng.random(rows) < 0.2)
    for salt, (name, distinct) in enumerate(zip(STRINGS, DISTINCT, strict=True)):
        found = strings(rng, rows, distinct, salt)
        missing = pa.array(rng.random(rows) < 0.05 * (salt % 3 == 2))
        columns[name] = pc.if_else(missing, pa.scalar(None, pa.string()), found)
    words = [strings(rng, rows, 30_000, 99) for _ in range(10)]
    columns["t"] = pc.binary_join_element_wise(*words, " ")
    return pa.RecordBatch.from_pydict(columns)


def coded(given: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its hashed strings as dictionaries."""
    arrays = [
        column.dictionary_encode() if name in STRINGS else column
        for name, column in zip(given.schema.names, given.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, given.schema.names)


def parts(batches: list[pa.RecordBatch]) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    from streamomd.config.data_table import Data
    from streamomd.config.model_table import Model
    from streamomd.features import Names, encode, make_plan

    model = Model.model_validate({"loss": "logistic"})
    dictionaries = [coded(one) for one in batches]

    def job(given: list[pa.RecordBatch], names: Any = None, **data: Any) -> Callable[[], None]:
        named = {"label": "y", "nulls": "zero", "bits": 20, **data}
        plan = make_plan(Data.model_validate(named), model, given[0].schema, lambda: [0, 1])

        def run() -> None:
            for one in given:
                encode(plan, one, shard="s", row=0, names=names)

        run()  # names fill up, and what is compiled is
        return run

    jobs = {}
    for name in SHOWN:
        label = f"{DISTINCT[STRINGS.index(name)]:,} distinct"
        jobs[label] = job(batches, hashed=[name])
        jobs[f"{label}, as a dictionary"] = job(dictionaries, hashed=[name])
    jobs["13 numbers, beside one category"] = job(batches, numeric=NUMBERS, hashed=["C9"])
    jobs["a cross"] = job(batches, crosses=[["C2", "C13"]], hashed=["C9"])
    jobs["a text of 10 words"] = job(batches, text=["t"], hashed=["C9"])
    pairs = [{"column": "t", "ngrams": 2}]
    jobs["a text, words and pairs"] = job(batches, text=pairs, hashed=["C9"])
    few = batches[0].num_rows // _FEWER
    for how, letter in (("ASCII", "e"), ("UTF-8", "é")):
        columns = {"y": pa.array([0] * few), "t": prose(np.random.default_rng(1), few, letter)}
        long = [pa.RecordBatch.from_pydict(columns)] * (_FEWER * len(batches))
        jobs[f"a text of 250 words, {how}"] = job(long, text=["t"])
    jobs["a text of 250 words, UTF-8, names"] = job(long, Names(), text=["t"])
    all_of_it: Mapping[str, Any] = {"numeric": NUMBERS, "hashed": STRINGS}
    for how, given in (("plain", batches), ("as dictionaries", dictionaries)):
        jobs[f"encode, strings {how}"] = job(given, **all_of_it)
        jobs[f"encode, strings {how}, names"] = job(given, Names(), **all_of_it)
    return jobs


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=80_000, help="rows in all")
    parser.add_argument("--batch", type=int, default=8_000, help="rows a batch")
    parser.add_argument("--times", type=int, default=5, help="runs of each")
    parser.add_argument("--package", default="", help="the folder of another streamomd")
    args = parser.parse_args()
    if args.package:
        sys.path.insert(0, args.package)
    rng = np.random.default_rng(0)
    batches = [batch(rng, args.batch) for _ in range(args.rows // args.batch)]
    found = common.timed(parts(batches), args.times, args.rows // args.batch * args.batch)
    figures = {name: statistics.median(ns) for name, ns in found.items()}
    common.table(
        ["ns of processor time a row", "median", "least"],
        [[name, figures[name], min(found[name])] for name in found],
    )
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
