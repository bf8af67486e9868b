"""What do digests of row groups cost?

Processor time of ``streamomd.train`` (the whole Python call, no checkpoint, nothing is compiled)
with digests ÷ without, in pairs that take turns; and, where the pairs' ratios spread by more than
what is measured, the digests' own processor time ÷ that of the training: reading and hashing all
stored bytes in one thread as the reader does, less reading them once.

Data, written into a temporary folder: rows of about 75 non-zeros in row groups that fit into memory
and in some that are read twice; 54 columns of numbers; the same as Arrow; texts.

Target: ≤ 1.03, or an own share ≤ 3 % where the spread is larger than that.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamomd
from streamomd.runs import walk
from streamomd.runs.session import Session
from streamomd.shards import reader as read
from streamomd.shards.chunks import ChunkFile, RecordingFile, read_into_of
from streamomd.shards.formats.arrow_stored import StoredBatches
from streamomd.shards.formats.footer import read_footer
from streamomd.shards.formats.parquet import _opened, _ranges
from streamomd.shards.shard_file import open_file
from streamomd.training.row_stream import rows_of

SIZE = 1 << 18
SPARSE = {"sparse": {"indices": "i", "values": "v", "size": SIZE}}


def sparse(folder: Path, rows: int, group_rows: int) -> dict[str, Any]:
    """Rows of about 75 non-zeros, zstd."""
    wide: Any = {"shards": 2, "shard_rows": rows // 2, "group_rows": group_rows, "size": SIZE}
    list(common.write_shards(folder, **wide))
    return SPARSE


def numbers(rows: int, seed: int = 1) -> pa.Table:
    """54 columns, a part of them with few values, and a label."""
    draw = np.random.default_rng(seed)
    few = {f"f{at}": draw.integers(0, 2, rows) for at in range(44)}
    many = {f"m{at}": draw.integers(0, 7000, rows).astype(np.float64) for at in range(10)}
    return pa.table({**few, **many, "y": draw.integers(0, 2, rows)})


def texts(rows: int) -> pa.Table:
    """10 columns of categories, and a label."""
    draw = np.random.default_rng(2)
    names = np.array([f"category {at}" for at in range(1000)])
    columns = {f"c{at}": names[draw.integers(0, 1000, rows)] for at in range(10)}
    return pa.table({**columns, "y": draw.integers(0, 2, rows)})


def as_parquet(folder: Path, table: pa.Table) -> dict[str, Any]:
    """A shard in row groups of 50,000 rows."""
    pq.write_table(table, str(folder / "a.parquet"), row_group_size=50_000)
    return {}


def as_arrow(folder: Path, table: pa.Table) -> dict[str, Any]:
    """A shard in record batches of 25,000 rows."""
    with pa.ipc.new_file(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=25_000)
    return {}


def train(job: dict[str, Any], digests: bool) -> float:
    """Processor seconds of a training."""

    def without(*given: Any, **named: Any) -> Any:
        return rows_of(*given, **{**named, "digests": None})

    began = time.process_time()
    if digests:
        streamomd.train(job, quiet=True)
    else:
        with patch.object(walk, "rows_of", without):
            streamomd.train(job, quiet=True)
    return time.process_time() - began


def own(job: dict[str, Any]) -> float:
    """Processor seconds, in one thread, of digests alone: what is read twice is read once more."""
    session = Session.open(job, {})
    shards, columns = session.shards, tuple(session.plan().columns)
    took = 0.0
    for shard in shards:
        if shard.format == "arrow":
            took += own_of_arrow(shards.fs, shard, columns)
            continue
        file = open_file(shards.fs, shard.path, shard.url)
        size, read_into = int(file.seek(0, 2)), read_into_of(file)
        chunks = ChunkFile(size, read_into, read.LOCAL_BLOCK, read.LOCAL_HELD)
        scratch = memoryview(bytearray(read.LOCAL_BLOCK))
        asked = RecordingFile(size)
        parquet = _opened(asked, pq.read_metadata(shard.path), [], 0)
        for group in range(len(shard.groups)):
            began = time.thread_time()
            ranges = sorted(_ranges(asked, parquet, group, columns))
            chunks.load(ranges)
            for offset, length in () if chunks.is_held else ranges:
                for low in range(0, length, len(scratch)):
                    chunks.take(offset + low, min(len(scratch), length - low))
            middle = time.thread_time()
            for offset, length in ranges:
                for low in range(0, length, len(scratch)):
                    read_into(offset + low, scratch[: length - low])
            took += (middle - began) - (time.thread_time() - middle)
        file.close()
    return took


def own_of_arrow(fs: Any, shard: Any, columns: tuple[str, ...]) -> float:
    """Processor seconds of hashing record batches that were copied."""
    file, took = open_file(fs, shard.path, shard.url), 0.0
    _, footer = read_footer(file, shard.size, shard.url)
    batches = StoredBatches(file, shard.schema, footer, columns)
    for group in range(len(shard.groups)):
        begun = batches.begin(group)
        stored = batches.stored(begun)
        began = time.thread_time()
        batches.digest(begun, stored)
        took += time.thread_time() - began
    file.close()
    return took


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of about 75 non-zeros")
    parser.add_argument("--pairs", type=int, default=11, help="pairs of each kind")
    args = parser.parse_args()
    kinds: dict[str, Callable[[Path], dict[str, Any]]] = {
        "75 non-zeros, row groups of 20,000": lambda at: sparse(at, args.rows, 20_000),
        "75 non-zeros, row groups of 100,000": lambda at: sparse(at, args.rows, 100_000),
        "54 numbers, Parquet": lambda at: as_parquet(at, numbers(3 * args.rows)),
        "54 numbers, Arrow": lambda at: as_arrow(at, numbers(args.rows)),
        "10 categories, Parquet": lambda at: as_parquet(at, texts(2 * args.rows)),
    }
    lines, figures = [], {}
    for kind, write in kinds.items():
        with tempfile.TemporaryDirectory() as temporary:
            more = write(Path(temporary))
            data = {"shards": [temporary], "label": "y", **more}
            job = {"data": data, "checkpoint": {"url": "none"}}
            figures[kind] = found = measured(job, args.pairs)
        lines.append([kind, *found.values()])
    common.table(["", "CPU s", "with ÷ without", "from", "to", "own %"], lines)
    common.finish(figures, as_json=args.json)


def measured(job: dict[str, Any], pairs: int) -> dict[str, float]:
    """Median seconds with digests, median ratio of the pairs, their quartiles, the own share."""
    for digests in (True, False):  # compiles, and warms the page cache
        train(job, digests)
    seconds, ratios, alone = [], [], []
    for at in range(pairs):
        order = (True, False) if at % 2 else (False, True)
        took = {digests: train(job, digests) for digests in order}
        seconds.append(took[True])
        ratios.append(took[True] / took[False])
        alone.append(own(job))
    low, _, high = statistics.quantiles(ratios, n=4)
    total = statistics.median(seconds)
    share = 100.0 * statistics.median(alone) / total
    return {
        "seconds": total,
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "own_percent": share,
    }


if __name__ == "__main__":
    main()
