"""What does training cost beside reading?

Wall time of ``streamomd.train`` (the whole Python call, from the second on: nothing is compiled;
no checkpoint, quiet) ÷ wall time of scans of the same shards that only decode: the fastest that is
known, 2 threads over row groups with ``ParquetFile.read_row_group``, and
``pyarrow.dataset(...).to_batches()`` doing nothing. All of them run in turn in this process, the
page cache warm; the median of the pairs' ratios.

Data: zstd, 4 shards of 400,000 rows of about 75 non-zeros, row groups of 100,000 rows; lists of
int32 coordinates, log-uniform and ascending, of float32 values, and a label. Written into a
temporary folder (1 GB), or kept with --folder.

Targets, on 2 cores: train ÷ the fastest scan ≤ 1.6; train ÷ pyarrow.dataset < 1.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import pyarrow.dataset
import pyarrow.parquet as pq

import streamomd

SIZE = 1 << 18
SPARSE = {"indices": "i", "values": "v", "size": SIZE}
COLUMNS = ["i", "v", "y"]


def scan(paths: list[Path], threads: int = 2) -> None:
    """Decode every row group in a pool and drop it."""

    def decode(job: tuple[Path, int]) -> None:
        path, group = job
        with pq.ParquetFile(path) as parquet:
            parquet.read_row_group(group, columns=COLUMNS, use_threads=False)

    jobs = [
        (path, group) for path in paths for group in range(pq.read_metadata(path).num_row_groups)
    ]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, jobs))


def dataset(folder: Path) -> None:
    """Let pyarrow.dataset decode, and drop what it hands over."""
    for _ in pyarrow.dataset.dataset(folder).to_batches(columns=COLUMNS):
        pass


def train(folder: Path, dtype: str = "float64") -> Any:
    """The whole Python call."""
    job = {"data": {"shards": [str(folder)], "label": "y", "sparse": SPARSE}}
    return streamomd.train(job, dtype=dtype, checkpoint="none", quiet=True)


def write(folder: Path, args: Any) -> list[Path]:
    """The shards, unless they are there."""
    found = sorted(folder.glob("*.parquet"))
    made = common.write_shards(
        folder, shards=4, shard_rows=args.rows, group_rows=args.group_rows, size=SIZE
    )
    return found or list(made)


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="rows a shard")
    parser.add_argument("--group-rows", type=int, default=100_000, help="rows a row group")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each")
    parser.add_argument("--folder", type=Path, help="shards to use, or to write and keep")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        paths = write(folder, args)
        train(folder)  # compiles, and warms the page cache
        cpu: list[float] = []

        def timed_train() -> None:
            began = time.process_time()
            train(folder)
            cpu.append(time.process_time() - began)

        jobs = {
            "train": timed_train,
            "fastest scan": lambda: scan(paths),
            "pyarrow.dataset": lambda: dataset(folder),
        }
        seconds = common.in_turn(jobs, args.pairs)
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
    figures: dict[str, Any] = {"rows": rows, "cores": os.cpu_count(), "cpu_seconds": cpu}
    lines = []
    for name, target in (("train", ""), ("fastest scan", "≤ 1.60"), ("pyarrow.dataset", "< 1.00")):
        took = statistics.median(seconds[name])
        of_train = common.ratio(seconds["train"], seconds[name])
        figures[name] = {"seconds": took, "train_ratio": of_train, "all": seconds[name]}
        lines.append([name, took, f"{rows / took:,.0f}", of_train, target])
    common.table(["2 cores", "seconds", "rows/s", "train ÷ it", "target"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
