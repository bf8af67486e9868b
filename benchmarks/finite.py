"""What does it cost to look for numbers that are not finite?

``train`` with the looks and without them, in turn, in one process; processor time of all threads.
Three jobs: dense rows with few columns (the cheapest rows there are), sparse rows of about 75
non-zeros in 2^18 coordinates, and the same in sharded mode (micro-batches of 256 rows, many looks
at figures). NAG, a commit every ``--every`` rows, whose parts are looked at too.

On a busy machine the spread of the pairs is larger than what is measured. So the time of the looks
themselves is measured as well, in the threads that make them, as a share of the whole. Target:
≤ 1 % (of the pairs' median; where their spread is larger than that, of the share).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.core import finite
from streamomd.training import model_document

COLUMNS, POWER = 10, 18


class Clock:
    """Processor seconds spent in some functions, in whatever thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*given, **named)
            finally:
                self.seconds += time.thread_time() - began

        return call


@contextmanager
def without() -> Iterator[None]:
    """No looks while inside."""
    with (
        patch.object(finite.FiniteCheck, "after", lambda *given: None),
        patch.object(model_document, "finite_parts", lambda parts: parts),
    ):
        yield


@contextmanager
def measured(clock: Clock, *, looks: bool = True) -> Iterator[None]:
    """The looks are timed while inside; without them, for what timing itself costs, nothing is."""
    after = finite.FiniteCheck.after if looks else lambda *given: None
    part_problem = finite.part_problem if looks else lambda *given: ""
    with (
        patch.object(finite.FiniteCheck, "after", clock.timed(after)),
        patch.object(finite, "part_problem", clock.timed(part_problem)),
    ):
        yield


def dense(folder: Path, rows: int) -> dict[str, Any]:
    """A job on rows of ten numbers."""
    folder.mkdir()
    draw = np.random.default_rng(1)
    x = draw.normal(size=(rows, COLUMNS))
    columns = {f"x{j}": x[:, j] for j in range(COLUMNS)}
    y = x.sum(axis=1) + draw.normal(size=rows) > 0.0
    pq.write_table(pa.table({**columns, "y": y}), folder / "a.parquet", row_group_size=100_000)
    return {"data": {"shards": [str(folder)], "label": "y"}}


def sparse(folder: Path, rows: int) -> dict[str, Any]:
    """A job on rows of some 75 non-zeros."""
    size = 1 << POWER
    list(common.write_shards(folder, shards=1, shard_rows=rows, group_rows=50_000, size=size))
    pair = {"indices": "i", "values": "v", "size": size}
    return {"data": {"shards": [str(folder)], "label": "y", "sparse": pair}}


def share_of(train: Callable[[], None], *, looks: bool) -> float:
    """Of the processor time of a training, what goes into the looks."""
    clock, began = Clock(), time.process_time()
    with measured(clock, looks=looks):
        train()
    return clock.seconds / (time.process_time() - began)


def main() -> None:
    import streamomd

    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="sparse; dense: five times more")
    parser.add_argument("--every", type=int, default=100_000, help="rows between two commits")
    parser.add_argument("--times", type=int, default=11, help="pairs; the median counts")
    args: argparse.Namespace = parser.parse_args()
    figures: dict[str, Any] = {}
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        jobs = {
            "dense": dense(place / "dense", 5 * args.rows),
            "sparse": sparse(place / "sparse", args.rows),
        }
        jobs["sharded"] = {**jobs["sparse"], "train": {"mode": "sharded", "parts": 4}}
        for name, tables in jobs.items():
            kept = {"url": str(place / f"run-{name}"), "every_rows": args.every}

            def train(tables: dict[str, Any] = tables, kept: dict[str, Any] = kept) -> None:
                streamomd.train({**tables, "checkpoint": kept}, restart=True, quiet=True)

            def bare(train: Callable[[], None] = train) -> None:
                with without():
                    train()

            train()
            seconds = common.in_turn(
                {"with": train, "without": bare}, args.times, time.process_time
            )
            ratios = [a / b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
            low, high = statistics.quantiles(ratios, n=4)[::2]
            shares = [share_of(train, looks=True) - share_of(train, looks=False) for _ in range(5)]
            share = statistics.median(shares)
            found = {"ratio": statistics.median(ratios), "quartiles": [low, high], "share": share}
            figures[name] = found
            spread = f"{low:.3f} to {high:.3f}"
            lines.append([name, f"{found['ratio']:.3f}", spread, f"{100 * share:.2f} %"])
    common.table(["job", "with ÷ without", "quartiles", "looks ÷ all"], lines)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
