"""Rows of the tutorial: clicks on offers, a file a day. ``python make_rows.py FOLDER ROWS``.

24 numbers and 6 categories; the label follows them through a fixed model, with noise. Twelve days
together have ROWS rows, of 264 bytes each in memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAYS = 12
NUMBERS, CATEGORIES = 24, 6
CHUNK = 50_000
SIZES = 10 ** np.linspace(0.6, 4, CATEGORIES)
"""How many values each category has: 4 to 10,000."""


def chunk(rng: np.random.Generator, rows: int, *, exchanged: bool) -> pa.Table:
    """Some rows. exchanged: their labels are those of the other class, as after a bad export."""
    model = np.random.default_rng(7)
    numbers = rng.normal(size=(rows, NUMBERS)) * model.uniform(0.1, 100.0, NUMBERS)
    weights = model.normal(size=NUMBERS) / np.abs(numbers).mean(axis=0) / 4
    margin = numbers @ weights - 1.0
    columns = {f"n{at}": pa.array(numbers[:, at]) for at in range(NUMBERS)}
    for at, size in enumerate(SIZES.astype(int)):
        # The first values are the most frequent, as in clicks.
        codes = (size * rng.random(rows) ** 2).astype(np.int32)
        margin += model.normal(size=size)[codes] / 2
        names = pa.array([f"v{value:06d}" for value in range(size)])
        columns[f"c{at}"] = names.take(pa.array(codes))
    clicked = rng.random(rows) < 1.0 / (1.0 + np.exp(-margin))
    columns["click"] = pa.array((clicked != exchanged).astype(np.int8))
    return pa.table(columns)


def write_day(folder: str, day: int, rows: int, *, exchanged: bool = False) -> Path:
    """The file of a day, complete before it has its name."""
    rng = np.random.default_rng(day)
    place = Path(folder) / f"day-{day:02}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_name(f".{place.name}")
    writer = None
    for begin in range(0, rows, CHUNK):
        some = chunk(rng, min(CHUNK, rows - begin), exchanged=exchanged)
        writer = writer or pq.ParquetWriter(
            scratch, some.schema, compression="lz4", write_page_checksum=True
        )
        writer.write_table(some)
    assert writer is not None
    writer.close()
    scratch.replace(place)
    return place


if __name__ == "__main__":
    for one in range(1, DAYS + 1):
        print(write_day(sys.argv[1], one, int(sys.argv[2]) // DAYS))
