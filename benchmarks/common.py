"""What the benchmarks share: rows made up, a table, one JSON line, medians of pairs."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NONZEROS = 75
CHUNK_ROWS = 20_000
SMALL, LARGE = 1 << 18, 1 << 24


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser that says what the script's docstring says, with --json."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser


def finish(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """The JSON line, if it was asked for."""
    if as_json:
        print(json.dumps(figures), flush=True)


def table(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Columns side by side: the first to the left, numbers to the right."""
    texts = [[_text(cell) for cell in line] for line in (head, *lines)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *rest in texts:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]), flush=True)
    print(flush=True)


def _text(cell: Any) -> str:
    return f"{cell:,.2f}" if isinstance(cell, float) else str(cell)


def in_turn(
    jobs: Mapping[str, Callable[[], Any]],
    times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each job, all of them run one after another, ``times`` times over."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(times):
        for name, job in jobs.items():
            began = clock()
            job()
            seconds[name].append(clock() - began)
    return seconds


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the pairs' ratios."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def draws(size: int, nonzeros: int) -> int:
    """How many log-uniform draws from 1 … size − 1 give that many distinct ones on average."""
    edges = np.log(np.arange(1, size + 1)) / np.log(size)
    share = np.diff(edges)
    count = nonzeros
    while -np.expm1(count * np.log1p(-share)).sum() < nonzeros:
        count += 1
    return count


def rows(rng: np.random.Generator, count: int, size: int, nonzeros: int = NONZEROS) -> Any:
    """indptr (int64), indices (int32): coordinates log-uniform in 1 … size − 1, distinct and
    ascending in a row, ``nonzeros`` a row on average; values (float32): normal.
    """
    width = draws(size, nonzeros)
    indices, counts = [], []
    for low in range(0, count, CHUNK_ROWS):
        shape = (min(CHUNK_ROWS, count - low), width)
        drawn = np.exp(rng.random(shape, np.float32) * np.float32(np.log(size)))
        drawn = np.sort(drawn.astype(np.int32).clip(1, size - 1), axis=1)
        new = np.ones(shape, np.bool_)
        new[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
        indices.append(drawn[new])
        counts.append(new.sum(axis=1))
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(counts), dtype=np.int64)))
    return indptr, np.concatenate(indices), rng.standard_normal(int(indptr[-1]), np.float32)


def labels(rng: np.random.Generator, count: int) -> Any:
    """−1 or 1, either as often."""
    return rng.integers(0, 2, count) * 2 - 1


class Walk:
    """A rule's loop with a state of its own, and a batch it learns again and again.

    With the rule's first loss, else logistic; the engine adds a bias. margins: of the last walk.
    """

    def __init__(
        self, rule: str, size: int, dtype: str, batch: Any, *, classes: int = 2, **params: Any
    ) -> None:
        # Loaded here: benchmarks/memory.py must stay small, and needs none of it.
        from streamomd.config.spec import Spec
        from streamomd.engine import Engine
        from streamomd.engine.layout import Layout
        from streamomd.engine.state import State
        from streamomd.losses import find_loss
        from streamomd.losses.contract import with_lipschitz

        loss = "hinge" if params.get("C") and rule in ("eg", "winnow") else ""
        spec = Spec.parse({"model": {"rule": rule, "loss": loss, "params": params}})
        found, goal = spec.rule, find_loss(spec.model.loss)
        learners = classes if classes > 2 else 1
        # With the bias; no column is numeric, so a block has sparse coordinates only.
        most = max(1, found.storage.most(spec.model.params)) if found.storage.kind == "block" else 0
        layout = Layout(found, size + 1, learners, dtype, 0, most)
        legal = with_lipschitz(found, goal, spec.model.params, {})
        self.engine = Engine(layout, goal, classes if goal.classifies else 1, True, legal)
        self.state, self.batch = State.start(layout), batch
        self.sums, self.margins = np.zeros(3), np.empty(0)
        self.engine.begin(self.state)
        if found.looks(legal):
            self.engine.look(self.state, batch)

    def __call__(self) -> None:
        self.margins = self.engine.learn(self.state, self.sums, self.batch)


def batch(rng: np.random.Generator, count: int, size: int, classes: int = 2) -> Any:
    """``rows`` with weights of 1 and labels at random, as the engine takes them."""
    from streamomd.core.batch import SparseBatch

    y = labels(rng, count) if classes == 2 else rng.integers(0, classes, count)
    return SparseBatch(*rows(rng, count, size), y.astype(np.float64), np.ones(count))


def timed(
    walks: Mapping[str, Callable[[], Any]], times: int, nonzeros: int
) -> dict[str, list[float]]:
    """ns of processor time a non-zero of each walk, in turn; one round before warms the caches."""
    for walk in walks.values():
        walk()
    seconds = in_turn(walks, times, time.process_time)
    return {name: [1e9 * s / nonzeros for s in found] for name, found in seconds.items()}


def lists(seed: int, count: int, size: int, nonzeros: int = NONZEROS) -> pa.Table:
    """Such rows as columns i (list<int32>), v (list<float32>) and y (int8)."""
    rng = np.random.default_rng(seed)
    indptr, indices, values = rows(rng, count, size, nonzeros)
    offsets = pa.array(indptr.astype(np.int32))
    columns = {
        "i": pa.ListArray.from_arrays(offsets, pa.array(indices)),
        "v": pa.ListArray.from_arrays(offsets, pa.array(values)),
        "y": pa.array(labels(rng, count).astype(np.int8)),
    }
    return pa.table(columns)


def write_shards(
    folder: Path, *, shards: int, shard_rows: int, group_rows: int, size: int, chunk: int = 100_000
) -> Iterator[Path]:
    """Parquet shards (zstd) of such rows, written a chunk at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        path = folder / f"part-{shard:03d}.parquet"
        chunks = [min(chunk, shard_rows - low) for low in range(0, shard_rows, chunk)]
        parts = [lists(1000 * shard + at, count, size) for at, count in enumerate(chunks)]
        pq.write_table(pa.concat_tables(parts), path, compression="zstd", row_group_size=group_rows)
        yield path


def decoded(plan: Any, shards: Any) -> Iterator[Any]:
    """Batches of all rows, decoded by one thread, as a part of averaged mode has them."""
    from streamomd.features import Names
    from streamomd.shards.order import split_rows
    from streamomd.training.row_stream import rows_of_group

    names = Names()
    for span in split_rows(shards, range(len(shards)), 1)[0].spans:
        rows = span.group, span.begin, span.end
        for piece in rows_of_group(plan, *rows, options={}, names=names, unit_bytes=16 << 20):
            yield piece.value.batch
