"""How long a run takes on a stream of rows, next to the same rows from a Parquet file.

    python benchmarks/streams.py [--rows 1000000] [--times 5]

Ten numbers and a category, rule auto, one epoch without a checkpoint. In turn: the Parquet file,
then each stream: an Arrow table's reader, a Dataset's scanner over the file, a polars query and a
DuckDB query, if these are installed. Each ratio is that of a stream to the file of its turn; the
states are compared, which must be equal.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from common import arguments, finish, in_turn, table

import streamomd

QUERY = "select * from read_parquet('{}')"


def rows(count: int) -> pa.Table:
    draw = np.random.default_rng(5)
    columns: dict[str, Any] = {f"x{n}": draw.normal(size=count) for n in range(10)}
    columns["city"] = np.array([f"city {n}" for n in range(500)])[draw.integers(0, 500, count)]
    columns["y"] = (columns["x0"] + draw.normal(size=count) > 0).astype(int)
    return pa.table(columns)


def streams(path: Path) -> dict[str, Callable[[], Any]]:
    given = pq.read_table(path)
    found: dict[str, Callable[[], Any]] = {
        "Arrow reader": lambda: given.to_reader(max_chunksize=122_880),
        "Dataset scanner": lambda: ds.dataset(path).scanner(),
    }
    if importlib.util.find_spec("polars"):
        import polars

        found["polars query"] = lambda: polars.scan_parquet(path)
    if importlib.util.find_spec("duckdb"):
        import duckdb

        found["DuckDB query"] = lambda: duckdb.connect().sql(QUERY.format(path))
    return found


def trained(given: Callable[[], Any], states: set[str]) -> None:
    job = {"label": "y", "checkpoint": "none", "quiet": True}
    states.add(streamomd.train(shards=given(), **job).result()["state_sha256"])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, states = Path(folder) / "rows.parquet", set[str]()
        pq.write_table(rows(args.rows), path)
        given = {"Parquet file": lambda: str(path), **streams(path)}
        jobs = {name: partial(trained, one, states) for name, one in given.items()}
        for job in jobs.values():  # compiles
            job()
        seconds = in_turn(jobs, args.times)
    assert len(states) == 1, states
    file, lines, figures = seconds["Parquet file"], [], {}
    for name, each in seconds.items():
        ratios = [a / b for a, b in zip(each, file, strict=True)]
        figures[name] = statistics.median(ratios)
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        lines.append([name, statistics.median(each), figures[name], span])
    table(["rows from", "seconds", "ratio", "of turns"], lines)
    finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
