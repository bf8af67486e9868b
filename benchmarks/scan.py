"""What does training cost beside reading?

``streamomd.train`` (the whole Python call with its checks, from the second on: nothing is compiled;
no checkpoint, quiet) against, all in turn in this process, the page cache warm:

- half of what its parts take alone: the processor time of decoding and encoding (one thread) and
  of the engine (the same rows, in memory). Two cores that never wait, and a reader and a learner
  that do not disturb each other, would take that long;
- scans that only decode: the fastest that is known, two threads over row groups, and
  ``pyarrow.dataset(...).to_batches()`` doing nothing.

Data: zstd, 4 shards of 400,000 rows of about 75 non-zeros, row groups of 100,000 rows; lists of
int32 coordinates, log-uniform and ascending, of float32 values, and a label; --columns numbers: 30
of float64, strings: 6 of float64 and 8 of strings. Written into a temporary folder (1 GB), or kept
with --folder. Rule: nag, for which the targets were set; --rule auto learns for longer.

Targets, on 2 cores, medians of the pairs' ratios of wall time: train ÷ half of its parts ≤ 1.15;
÷ the fastest scan ≤ 1.5; ÷ pyarrow.dataset < 1.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

import streamomd
from streamomd.runs.session import Session

SIZE = 1 << 18
SPARSE = {"indices": "i", "values": "v", "size": SIZE}
KINDS = {"lists": (0, 0), "numbers": (30, 0), "strings": (6, 8)}
"""Numeric columns and columns of strings."""
TARGETS = {"half of its parts": "≤ 1.15", "fastest scan": "≤ 1.50", "pyarrow.dataset": "< 1.00"}


def scan(paths: list[Path], threads: int = 2) -> None:
    """Decode every row group in a pool and drop it."""

    def decode(job: tuple[Path, int]) -> None:
        path, group = job
        with pq.ParquetFile(path) as parquet:
            parquet.read_row_group(group, use_threads=False)

    jobs = [
        (path, group) for path in paths for group in range(pq.read_metadata(path).num_row_groups)
    ]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, jobs))


def dataset(folder: Path) -> None:
    """Let pyarrow.dataset decode, and drop what it hands over."""
    for _ in pyarrow.dataset.dataset(folder).to_batches():
        pass


def job(folder: Path, args: Any) -> dict[str, Any]:
    """What is learned, and from what."""
    data: dict[str, Any] = {"shards": [str(folder)], "label": "y"}
    if args.columns == "lists":
        data["sparse"] = SPARSE
    return {"data": data, "model": {"rule": args.rule}, "checkpoint": {"url": "none"}}


def write(folder: Path, args: Any) -> list[Path]:
    """The shards, unless they are there."""
    found = sorted(folder.glob("*.parquet"))
    shape = {"shards": 4, "shard_rows": args.rows, "group_rows": args.group_rows}
    if args.columns == "lists":
        return found or list(common.write_shards(folder, **shape, size=SIZE))
    return found or list(write_columns(folder, *KINDS[args.columns], **shape))


def write_columns(
    folder: Path, numbers: int, strings: int, *, shards: int, shard_rows: int, group_rows: int
) -> Iterator[Path]:
    """Shards of normal numbers, on which the label depends, and of strings, most of them rare."""
    folder.mkdir(parents=True, exist_ok=True)
    slope = np.random.default_rng(shards).standard_normal(numbers)
    for shard in range(shards):
        draw = np.random.default_rng(shard)
        values = draw.standard_normal((shard_rows, numbers))
        label = values @ slope + draw.standard_normal(shard_rows) > 0.0
        columns: dict[str, Any] = {"y": label.astype(np.int8)}
        columns |= {f"x{n}": values[:, n] for n in range(numbers)}
        for n in range(strings):
            codes = draw.zipf(1.3, shard_rows) % 1_000_000
            columns[f"c{n}"] = [f"value-{code}" for code in codes]
        path = folder / f"part-{shard}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=group_rows, compression="zstd")
        yield path


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="rows a shard")
    parser.add_argument("--group-rows", type=int, default=100_000, help="rows a row group")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each")
    parser.add_argument("--columns", default="lists", choices=KINDS, help="of the rows")
    parser.add_argument("--rule", default="nag", help="what learns the rows")
    parser.add_argument("--folder", type=Path, help="shards to use, or to write and keep")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        paths = write(folder, args)
        session = Session.open(job(folder, args), {})
        plan, shards = session.new_model().plan, session.shards

        def train() -> None:
            streamomd.train(job(folder, args), quiet=True)

        train()  # compiles, and warms the page cache
        kept = list(common.decoded(plan, shards))

        def learn() -> None:
            model = session.new_model()  # what auto costs depends on the rows it has learned
            for batch in kept:
                model.engine.learn(model.state, np.zeros(3), batch)

        jobs = {
            "train": train,
            "decode alone": lambda: deque(common.decoded(plan, shards), maxlen=0),
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
