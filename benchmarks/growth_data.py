"""The rows of growth.py: one shard, and links to it."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import common
import numpy as np

POWER = 18  # 2^: coordinates


def linked(folder: Path, shard: Path, times: int) -> Path:
    """A folder of so many hard links to a shard: files of their own to whoever reads them."""
    folder.mkdir(parents=True)
    for number in range(times):
        os.link(shard, folder / f"part-{number:04d}.parquet")
    return folder


def written(folder: Path, rows: int, nonzeros: int) -> Path:
    """One shard, in four row groups, written by a process that then ends."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(write, folder, rows, nonzeros).result()


def write(folder: Path, rows: int, nonzeros: int) -> Path:
    """Rows of exactly so many non-zeros, log-uniform but for their first few coordinates."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    draw, path = np.random.default_rng(0), folder / "shard.parquet"
    batches = [
        spread(draw, min(20_000, rows - low), 1 << POWER, nonzeros, log=True)
        for low in range(0, rows, 20_000)
    ]
    indices = np.concatenate(batches)
    offsets = np.arange(0, indices.size + 1, nonzeros, dtype=np.int32)
    values = draw.standard_normal(indices.size, np.float32)
    columns = {
        "i": pa.ListArray.from_arrays(offsets, indices),
        "v": pa.ListArray.from_arrays(offsets, values),
        "y": pa.array(common.labels(draw, rows).astype(np.int8)),
    }
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=-(-rows // 4))
    return path


def spread(draw: np.random.Generator, rows: int, size: int, nonzeros: int, *, log: bool) -> Any:
    """Coordinates (int32) row after row, ascending and distinct: one of each of so many ranges.

    The ranges are alike; if log, they grow, so that low coordinates are met in most rows.
    """
    edges = np.linspace(0, size, nonzeros + 1)
    if log:
        edges = np.geomspace(1, size - nonzeros, nonzeros + 1) + np.arange(nonzeros + 1) - 1
    low, high = edges[:-1].astype(np.int64), edges[1:].astype(np.int64)
    return draw.integers(low, high, (rows, nonzeros), dtype=np.int64).astype(np.int32).ravel()
