"""Which layout of a shard is read fastest?

The same rows written in many ways, each read as training reads them (``read_batches``, ``encode``,
one thread): processor time a row, the median of runs in turn, beside that of decoding alone, the
file's bytes a row and the processor time of writing. Kinds of rows: those of benchmarks/kinds.py.

"before" is what ``convert`` wrote before docs/decisions/025, "convert" what it writes now; each
other layout is "convert" but for what its name says.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import common
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from kinds import KINDS

from streamomd.config.data_table import Data
from streamomd.config.model_table import Model
from streamomd.features import make_plan
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.reader import read_batches
from streamomd.sources import find
from streamomd.sources.text.output_formats import FORMS, stored

UNIT_BYTES, AHEAD_BYTES = 4 << 20, 32 << 20  # those of streamomd/training/row_stream.py
DICTIONARY, PLAIN, SPLIT = "RLE_DICTIONARY", "PLAIN", "BYTE_STREAM_SPLIT"
DELTA = "DELTA_BINARY_PACKED"


@dataclass(frozen=True)
class Layout:
    """What differs from the layout of `convert`.

    encoding, codec: by the kind of a column (indices, values, integers, floats, texts), or "all".
    more: arguments of ``ParquetWriter``. arrow: the codec of an Arrow file instead.
    """

    encoding: Mapping[str, str] = field(default_factory=dict)
    codec: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    required: bool = True
    group_bytes: int = FORMS["parquet"].group_bytes
    arrow: str = ""

    def write(self, table: pa.Table, path: Path) -> None:
        """The rows, in a file of its own."""
        group = max(1, min(len(table), self.group_bytes * len(table) // table.nbytes))
        if self.arrow:
            # As training maps it: a record batch is one piece.
            pa.feather.write_feather(table, path, compression=self.arrow, chunksize=group // 8)
            return
        table = without_nulls(table) if self.required else table
        arguments = self._arguments(table.to_batches()[0])
        pq.write_table(table, path, row_group_size=group, **{**arguments, **self.more})

    def _arguments(self, batch: pa.RecordBatch) -> dict[str, Any]:
        found = stored(batch)
        codecs, encodings = found["compression"], found["column_encoding"]
        for path, kind in kinds_of(batch.schema).items():
            codecs[path] = self.codec.get(kind, self.codec.get("all", codecs[path]))
            asked = self.encoding.get(kind, self.encoding.get("all", ""))
            encodings |= {path: asked} if asked else {}
        for path in [path for path, code in encodings.items() if code == DICTIONARY]:
            del encodings[path]
        return {**found, "use_dictionary": [path for path in codecs if path not in encodings]}


def kinds_of(schema: pa.Schema) -> dict[str, str]:
    """Of each column that Parquet stores, by its path, what kind it is."""
    found = {}
    for one in schema:
        nested = pa.types.is_list(one.type)
        kind = one.type.value_type if nested else one.type
        path = f"{one.name}.list.element" if nested else one.name
        if pa.types.is_integer(kind):
            found[path] = "indices" if nested else "integers"
        elif pa.types.is_floating(kind):
            found[path] = "values" if nested else "floats"
        else:
            found[path] = "texts"
    return found


def without_nulls(table: pa.Table) -> pa.Table:
    """The same columns; lists hold no nulls, and pairs' columns none at all."""
    pairs = any(pa.types.is_list(one.type) for one in table.schema)
    columns, fields = [], []
    for one in table.schema:
        column, kind = table[one.name].chunk(0), one.type
        if pa.types.is_list(kind):
            kind = pa.list_(pa.field("element", kind.value_type, nullable=False))
            column = pa.ListArray.from_arrays(column.offsets, column.values, type=kind)
        fields.append(pa.field(one.name, kind, nullable=not pairs))
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields))


LAYOUTS = {
    "before": Layout({"all": DICTIONARY}, {"all": "zstd"}, required=False),
    "convert": Layout(),
    "may be null": Layout(required=False),
    "all dictionaries": Layout({"all": DICTIONARY}),
    "indices plain": Layout({"indices": PLAIN}),
    "indices split": Layout({"indices": SPLIT}),
    "values split": Layout({"values": SPLIT, "floats": SPLIT}),
    "values split, zstd": Layout({"values": SPLIT, "floats": SPLIT}, {"all": "zstd"}),
    "all split, zstd": Layout(
        {"indices": SPLIT, "values": SPLIT, "floats": SPLIT}, {"all": "zstd"}
    ),
    "integers plain": Layout({"integers": PLAIN}),
    "integers delta": Layout({"integers": DELTA}),
    "texts plain": Layout({"texts": PLAIN}),
    "zstd": Layout(codec={"all": "zstd"}),
    "zstd 3": Layout(codec={"all": "zstd"}, more={"compression_level": 3}),
    "snappy": Layout(codec={"all": "snappy"}),
    "lz4": Layout(codec={"all": "lz4"}),
    "uncompressed": Layout(codec={"all": "none"}),
    "no checksums": Layout(more={"write_page_checksum": False}),
    "no statistics": Layout(more={"write_statistics": False}),
    "pages 2.0": Layout(more={"data_page_version": "2.0"}),
    "pages of 64 KiB": Layout(more={"data_page_size": 64 << 10}),
    "pages of 256 KiB": Layout(more={"data_page_size": 256 << 10}),
    "pages of 8 MiB": Layout(more={"data_page_size": 8 << 20, "max_rows_per_page": 1 << 30}),
    "dictionary of 64 KiB": Layout(more={"dictionary_pagesize_limit": 64 << 10}),
    "dictionary of 8 MiB": Layout(more={"dictionary_pagesize_limit": 8 << 20}),
    "groups of 8 MiB": Layout(group_bytes=8 << 20),
    "groups of 16 MiB": Layout(group_bytes=16 << 20),
    "groups of 256 MiB": Layout(group_bytes=256 << 20),
    "arrow": Layout(arrow="uncompressed"),
    "arrow lz4": Layout(arrow="lz4"),
}
"""Every layout by its name."""


def reads(path: Path, kind: str) -> dict[str, Callable[[], None]]:
    """Reading with and without what makes batches of it."""
    shards = find.find(str(path))
    data = Data.model_validate({"label": "y", **KINDS[kind][1]})
    model = Model.model_validate({"loss": "logistic"})
    plan = make_plan(data, model, shards.shards[0].schema, lambda: [-1, 1])

    def read(function: Callable[..., Any]) -> None:
        batches = read_batches(
            shards,
            places=[0],
            columns=plan.columns,
            dictionary=plan.dictionary,
            threads=1,
            budget_bytes=AHEAD_BYTES,
            unit_bytes=UNIT_BYTES,
        )
        for _ in batches.map(function):
            pass

    return {
        "read": lambda: read(partial(encode_rows, plan)),
        "decode": lambda: read(lambda rows: None),
    }


def measure(kind: str, chosen: dict[str, Layout], rows: int, times: int) -> dict[str, Any]:
    """µs a row to read, to decode, to write, and bytes a row of each layout."""
    make, _, fewer = KINDS[kind]
    rows //= fewer
    table = make(rows)
    jobs: dict[str, Callable[[], None]] = {}
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for place, (name, layout) in enumerate(chosen.items()):
            path = Path(folder) / f"{place}.{'arrow' if layout.arrow else 'parquet'}"
            began = time.process_time()
            layout.write(table, path)
            figures[name] = {"write": 1e6 * (time.process_time() - began) / rows}
            figures[name]["bytes"] = path.stat().st_size / rows
            jobs |= {f"{name}/{what}": job for what, job in reads(path, kind).items()}
        for job in jobs.values():
            job()
        seconds = common.in_turn(jobs, times, time.process_time)
    for name, found in figures.items():
        for what in ("read", "decode"):
            found[what] = 1e6 * statistics.median(seconds[f"{name}/{what}"]) / rows
        found["of_before"] = common.ratio(seconds[f"{name}/read"], seconds["before/read"])
    return figures


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, help="beside before; else all")
    parser.add_argument("--rows", type=int, default=50_000, help="rows; of texts a tenth")
    parser.add_argument("--times", type=int, default=5, help="runs of each; the median counts")
    args = parser.parse_args()
    chosen = {name: LAYOUTS[name] for name in dict.fromkeys(("before", *(args.layouts or LAYOUTS)))}
    figures = {}
    for kind in args.kinds:
        figures[kind] = measure(kind, chosen, args.rows, args.times)
        head = [kind, "read, µs a row", "÷ before", "decode", "bytes a row", "write, µs a row"]
        keys = ("read", "of_before", "decode", "bytes", "write")
        common.table(head, [[n, *(f[key] for key in keys)] for n, f in figures[kind].items()])
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
