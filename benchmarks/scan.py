"""What does training cost beside reading?

``streamomd.train`` (the whole Python call with its checks, from the second on: nothing is compiled;
no checkpoint, quiet) against, all in turn in this process, the page cache warm:

- half of what its parts take alone: the processor time of decoding (one thread over row groups with
  ``ParquetFile.read_row_group``) and of the engine (the same rows, in memory). Two cores that never
  wait, and a reader and a learner that do not disturb each other, would take that long;
- scans that only decode: the fastest that is known, two threads over row groups, and
  ``pyarrow.dataset(...).to_batches()`` doing nothing.

Data: zstd, 4 shards of 400,000 rows of about 75 non-zeros, row groups of 100,000 rows; lists of
int32 coordinates, log-uniform and ascending, of float32 values, and a label. Written into a
temporary folder (1 GB), or kept with --folder. Rule: nag, for which the targets were set; ``auto``
learns on one thread for five times as long as nag.

Targets, on 2 cores, medians of the pairs' ratios of wall time: train ÷ half of its parts ≤ 1.15;
÷ the fastest scan ≤ 1.5; ÷ pyarrow.dataset < 1.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq

import streamomd
from streamomd.runs.session import Session
from streamomd.training.row_stream import rows_of

SIZE = 1 << 18
SPARSE = {"indices": "i", "values": "v", "size": SIZE}
COLUMNS = ["i", "v", "y"]
TARGETS = {"half of its parts": "≤ 1.15", "fastest scan": "≤ 1.50", "pyarrow.dataset": "< 1.00"}


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


def job(folder: Path) -> dict[str, Any]:
    """What is learned, and from what."""
    data = {"shards": [str(folder)], "label": "y", "sparse": SPARSE}
    return {"data": data, "model": {"rule": "nag"}, "checkpoint": {"url": "none"}}


def train(folder: Path) -> Any:
    """The whole Python call."""
    return streamomd.train(job(folder), quiet=True)


def write(folder: Path, args: Any) -> list[Path]:
    """The shards, unless they are there."""
    found = sorted(folder.glob("*.parquet"))
    made = common.write_shards(
        folder, shards=4, shard_rows=args.rows, group_rows=args.group_rows, size=SIZE
    )
    return found or list(made)


def batches(folder: Path) -> tuple[Any, list[Any]]:
    """A model that has learned nothing, and all rows as it learns them."""
    session = Session.open(job(folder), {})
    model, shards = session.new_model(), session.shards
    pieces = rows_of(model.plan, shards, range(len(shards)))
    return model, [piece.value.batch for piece in pieces]


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
        model, kept = batches(folder)

        def learn() -> None:
            for batch in kept:
                model.engine.learn(model.state, np.zeros(3), batch)

        jobs = {
            "train": lambda: train(folder),
            "decode alone": lambda: scan(paths, 1),
            "engine alone": learn,
            "fastest scan": lambda: scan(paths),
            "pyarrow.dataset": lambda: dataset(folder),
        }
        seconds, cpu = both_clocks(jobs, args.pairs)
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
    parts = zip(cpu["decode alone"], cpu["engine alone"], strict=True)
    seconds["half of its parts"] = [sum(pair) / 2 for pair in parts]
    figures: dict[str, Any] = {"rows": rows, "cores": os.cpu_count(), "cpu": cpu}
    lines = []
    for name in (*jobs, "half of its parts"):
        took = statistics.median(seconds[name])
        used = statistics.median(cpu[name]) if name in cpu else ""
        of_train = common.ratio(seconds["train"], seconds[name])
        figures[name] = {"seconds": took, "train_ratio": of_train, "all": seconds[name]}
        lines.append([name, took, used, f"{rows / took:,.0f}", of_train, TARGETS.get(name, "")])
    head = ["2 cores", "seconds", "of processors", "rows/s", "train ÷ it", "target"]
    common.table(head, lines)
    common.finish(figures, as_json=args.json)


def both_clocks(jobs: dict[str, Any], times: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Seconds of each job in turn, on the clock and of the processors."""
    cpu: dict[str, list[float]] = {name: [] for name in jobs}

    def counted(name: str) -> None:
        began = time.process_time()
        jobs[name]()
        cpu[name].append(time.process_time() - began)

    return common.in_turn({name: partial(counted, name) for name in jobs}, times), cpu


if __name__ == "__main__":
    main()
