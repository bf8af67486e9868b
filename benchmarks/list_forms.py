"""In which form are sparse lists read fastest?

The rows of benchmarks/peers, set i (about 75 of 2^18 coordinates, float32 values), in many forms,
each decoded by pyarrow alone in one thread, in pieces of 4 MiB and with page checksums, up to
arrays of offsets, indices and values: processor time a row, the median of runs in turn, and the
file's bytes a row. "fixed-size" has 75 elements in each row, which the data of no job has.

"list" and "binary" are what `convert` writes, with and without --lists-as binary. In "differences"
the indices are varints (LEB128) of the difference from the one before.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.features.lists import encoded, stored_as_binary
from streamomd.sources.text.output_formats import stored

UNIT_BYTES, ROW_BYTES, EVEN = 4 << 20, 620, 75
Read = Callable[[pa.RecordBatch], Any]


def rows_of(count: int) -> pa.Table:
    sys.path.insert(0, str(Path(__file__).parent / "peers"))
    from rows import lists

    return pa.concat_tables(lists.tables(count)).combine_chunks()


def cells_of(column: pa.Array, width: int) -> tuple[Any, Any]:
    """Where each binary cell begins, in elements, and all bytes."""
    _, offsets, data = column.buffers()
    begins = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
    return begins.astype(np.int64) // width, np.frombuffer(data, np.uint8)


def read_lists(batch: pa.RecordBatch) -> Any:
    columns = batch.columns[:2]
    return [(one.offsets.to_numpy().astype(np.int64), one.values.to_numpy()) for one in columns]


def read_binary(batch: pa.RecordBatch) -> Any:
    return [cells_of(one, 4) for one in batch.columns[:2]]


def read_differences(batch: pa.RecordBatch) -> Any:
    begins, data = cells_of(batch.column(0), 1)
    indices, offsets = np.empty(int(begins[-1] - begins[0]), np.int32), np.zeros_like(begins)
    count = sums_of(begins, data, indices, offsets)
    return (offsets, indices[:count]), cells_of(batch.column(1), 4)


def read_fixed(batch: pa.RecordBatch) -> Any:
    return [one.values.to_numpy() for one in batch.columns[:2]]


def read_fixed_binary(batch: pa.RecordBatch) -> Any:
    return [np.frombuffer(one.buffers()[1], np.uint8) for one in batch.columns[:2]]


@numba.njit(cache=True)
def sums_of(begins, data, indices, offsets):  # type: ignore[no-untyped-def]
    """Indices of varints of differences; how many there are."""
    count = 0
    for row in range(len(begins) - 1):
        last, at = 0, begins[row]
        while at < begins[row + 1]:
            found, shift = np.int64(data[at] & 127), 7
            while data[at] >= 128 and at + 1 < begins[row + 1]:
                at += 1
                found |= np.int64(data[at] & 127) << shift
                shift += 7
            at += 1
            last += found
            indices[count] = last
            count += 1
        offsets[row + 1] = count
    return count


def varints(column: pa.Array) -> pa.Array:
    """Lists of indices as differences, LEB128."""
    cells = []
    for row in column.to_pylist():
        cell = bytearray()
        for step in np.diff(row, prepend=0).tolist():
            while step >= 128:
                cell.append(step & 127 | 128)
                step >>= 7
            cell.append(step)
        cells.append(bytes(cell))
    return pa.array(cells, pa.binary())


def fixed(table: pa.Table) -> pa.Table:
    """As many rows of ``EVEN`` elements."""
    columns = []
    for name in "iv":
        flat = np.resize(table[name].chunk(0).values.to_numpy(), len(table) * EVEN)
        kind = pa.list_(pa.field("element", table[name].type.value_type, nullable=False), EVEN)
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat), type=kind))
    return pa.table([*columns, table["y"]], schema=schema_of([*columns, table["y"]]))


def fixed_binary(table: pa.Table) -> pa.Table:
    found = [
        pa.Array.from_buffers(pa.binary(4 * EVEN), len(table), [None, one.values.buffers()[1]])
        for one in (fixed(table)[name].chunk(0) for name in "iv")
    ]
    return pa.table([*found, table["y"]], schema=schema_of([*found, table["y"]]))


def schema_of(columns: Any) -> pa.Schema:
    """Columns that have no nulls."""
    pairs = zip("ivy", columns, strict=True)
    return pa.schema([pa.field(name, one.type, nullable=False) for name, one in pairs])


def binary(table: pa.Table) -> pa.Table:
    schema = stored_as_binary(table.schema)
    return pa.Table.from_batches([encoded(one, schema) for one in table.to_batches()], schema)


def packed(codecs: tuple[str, str], encoding: str = "PLAIN") -> dict[str, Any]:
    return {
        "compression": {"i": codecs[0], "v": codecs[1], "y": "lz4"},
        "column_encoding": dict.fromkeys("iv", encoding),
        "use_dictionary": ["y"],
        "write_statistics": ["y"],
        "write_page_checksum": True,
    }


def forms(table: pa.Table) -> dict[str, tuple[pa.Table, dict[str, Any], Read]]:
    """Rows, arguments of the writer, and what makes arrays of a batch, by form."""
    cells = binary(table)
    steps = cells.set_column(0, cells.schema.field("i"), varints(table["i"].chunk(0)))
    lz4 = dict.fromkeys(("i.list.element", "v.list.element", "y"), "lz4")
    kinds = {"i.list.element": "DELTA_BINARY_PACKED", "v.list.element": "PLAIN"}
    even = {"compression": lz4, "column_encoding": kinds, "use_dictionary": ["y"]}
    none, lengths = ("none", "none"), "DELTA_LENGTH_BYTE_ARRAY"
    return {
        "list": (table, stored(table.to_batches()[0]), read_lists),
        "binary": (cells, stored(cells.to_batches()[0]), read_binary),
        "binary, no checksums": (
            cells, {**packed(none), "write_page_checksum": False}, read_binary),
        "binary, lengths apart": (cells, packed(none, lengths), read_binary),
        "binary, LZ4": (cells, packed(("lz4", "lz4")), read_binary),
        "binary, indices LZ4": (cells, packed(("lz4", "none")), read_binary),
        "binary, indices zstd": (cells, packed(("zstd", "none")), read_binary),
        "binary, differences": (steps, packed(none), read_differences),
        "binary, differences, LZ4": (steps, packed(("lz4", "none")), read_differences),
        "fixed-size list": (
            fixed(table), {**even, "write_page_checksum": True}, read_fixed),
        "fixed-size binary": (fixed_binary(table), packed(none), read_fixed_binary),
    }  # fmt: skip


def read_parquet(path: Path, read: Read) -> None:
    with pq.ParquetFile(
        path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
    ) as file:
        for batch in file.iter_batches(batch_size=UNIT_BYTES // ROW_BYTES, use_threads=False):
            read(batch)


def read_arrow(path: Path) -> None:
    with path.open("rb") as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            read_lists(reader.get_batch(number))


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=7, help="runs of each; the median counts")
    args = parser.parse_args()
    table, figures = rows_of(args.rows), {}
    with tempfile.TemporaryDirectory() as folder:
        jobs: dict[str, Callable[[], None]] = {}
        sizes: dict[str, float] = {}
        for place, (name, (rows, how, read)) in enumerate(forms(table).items()):
            path = Path(folder) / f"{place}.parquet"
            pq.write_table(rows, path, row_group_size=25_000, **how)
            jobs[name], sizes[name] = partial(read_parquet, path, read), path.stat().st_size
        path = Path(folder) / "rows.arrow"
        with pa.ipc.new_file(str(path), table.schema) as out:
            out.write_table(table, max_chunksize=25_000)
        jobs["Arrow file, list"] = partial(read_arrow, path)
        sizes["Arrow file, list"] = path.stat().st_size
        for job in jobs.values():
            job()
        seconds = common.in_turn(jobs, args.times, time.process_time)
    lines = []
    for name, taken in seconds.items():
        figures[name] = {
            "ns": 1e9 * statistics.median(taken) / args.rows,
            "bytes": sizes[name] / args.rows,
            "of_list": common.ratio(taken, seconds["list"]),
        }
        found = figures[name]
        lines.append(
            [name, f"{found['ns']:,.0f}", f"{found['of_list']:.2f}", f"{found['bytes']:,.0f}"]
        )
    common.table(["form", "ns a row", "÷ list", "bytes a row"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
