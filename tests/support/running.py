"""Running streamomd's commands in this process, and small data sets to run them on."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from streamomd.cli import main
from streamomd.core.errors import StoppedError


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object in the last line of stdout."""
        assert self.code == 0, self.err
        return json.loads(self.out.splitlines()[-1])


@dataclass
class Impatient:
    """A watcher that stops a run after so many rows, in place of its progress."""

    next_row: float

    def update(self, metrics: Any) -> None:
        if metrics.total_rows >= self.next_row:
            raise StoppedError("enough", signal=15)

    def finish(self, metrics: Any) -> None: ...

    def close(self) -> None: ...


def run(*words: object) -> Ran:
    """A command with these words; an exception other than streamomd's own fails the test."""
    done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    return Ran(done.exit_code, done.stdout, done.stderr)


def train(*words: object) -> dict[str, Any]:
    """What ``train … --json`` says of a run that must succeed."""
    return run("train", *words, "--json").result


def write(path: Path, columns: Mapping[str, Any] | pa.Table, **options: Any) -> Path:
    """A Parquet shard."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    pq.write_table(table, str(path), **options)
    return path


def in_parts(folder: Path, whole: pa.Table, size: int, group: int) -> Path:
    """The rows in shards of that many rows, in row groups."""
    for k, low in enumerate(range(0, len(whole), size)):
        write(folder / f"{k:02}.parquet", whole.slice(low, size), row_group_size=group)
    return folder


@functools.lru_cache(256)
def rows(count: int, *, seed: int = 1, first: int = 0) -> pa.Table:
    """Rows of every kind: y, w, n (float), k (int), h (text), c (dictionary), i and v (a pair)."""
    draw = np.random.default_rng([seed, first])
    n = draw.normal(size=count) * 1000
    lengths = draw.integers(0, 5, count)
    pair = [np.sort(draw.choice(100, size, replace=False)) for size in lengths]
    values = [draw.normal(size=size) for size in lengths]
    return pa.table(
        {
            "y": pa.array((n + draw.normal(size=count) * 500 > 0).astype(np.int64)),
            "w": pa.array(draw.choice([0.0, 0.5, 1.0, 2.0], count)),
            "n": pa.array(n),
            "k": pa.array(draw.integers(-9, 9, count)),
            "h": pa.array([f"city {code}" for code in draw.integers(0, 9, count)], pa.string()),
            "c": pa.array([f"job {code}" for code in draw.integers(0, 3, count)], pa.string())
            .dictionary_encode()
            .cast(pa.dictionary(pa.int32(), pa.string())),
            "i": pa.array([list(map(int, row)) for row in pair], pa.list_(pa.int64())),
            "v": pa.array([list(map(float, row)) for row in values], pa.list_(pa.float64())),
        }
    )


def everything(columns: str = "n,k", hashed: str = "h") -> list[str]:
    """The flags for data of ``rows``, all of its columns in use; NAG, whose loops compile fast."""
    flags = ["--label", "y", "--weight", "w", "--numeric", columns, "--hashed", hashed]
    flags += ["--rule", "nag"]
    pair = '{indices="i", values="v", size=100}'
    return [*flags, "--bits", "10", "--set", f"data.sparse={pair}"]


ROWS = 40


def shards(folder: Path) -> list[pa.Table]:
    """Three good shards a, b, c of 40 rows, in row groups of 10."""
    tables = [rows(ROWS, first=place) for place in range(3)]
    for name, table in zip("abc", tables, strict=True):
        write(folder / f"{name}.parquet", table, row_group_size=10)
    return tables


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return table.set_column(table.schema.get_field_index(name), name, array)


def both(data: Path) -> pa.Table:
    """All rows of a directory's shards."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(data.glob("*.parquet"))])


def alone(done: Ran) -> dict[str, Any]:
    """The JSON object that is all of stdout."""
    assert len(done.out.splitlines()) == 1
    return done.result
