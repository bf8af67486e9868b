"""Rows of every kind of column, and the job that init writes for them."""

from __future__ import annotations

import datetime
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from running import run, write

from streamomd.runs.session import Session

ROWS = 60
DAY = datetime.date(2026, 1, 1)
KINDS: dict[str, tuple[list[Any] | pa.Array, str]] = {
    "float": ([k * 37 % 11 / 4 for k in range(ROWS)], ""),
    "amount": ([k * k * 7919 % 100_003 for k in range(ROWS)], ""),  # all differ, out of order
    "color": (["red", "green", "blue"] * 20, ""),
    "flag": ([True, False, False] * 20, ""),
    "money": ([Decimal(k % 7) for k in range(ROWS)], ""),
    "gaps": ([None, 1.5, 2.5] * 20, "nulls"),
    "nan": ([float("nan"), 1.5, 2.5] * 20, "nulls"),
    "few": ([None, "a", "b"] * 20, ""),
    "customer_id": ([k * 31 % 17 for k in range(ROWS)], "ignore"),
    "orderId": (["a", "b", "c"] * 20, "ignore"),
    "uuid": (["a", "b", "c"] * 20, "ignore"),
    "number": ([1000 + k for k in range(ROWS)], "ignore"),
    "shuffled": ([k * 7 % 60 for k in range(ROWS)], "ignore"),
    "key": ([2**50 + k * k * 7919 % 100_003 for k in range(ROWS)], "ignore"),
    "code": ([f"code-{k}" for k in range(ROWS)], "ignore"),
    "constant": ([7] * ROWS, "ignore"),
    "same": (["x"] * ROWS, "ignore"),
    "empty": (pa.nulls(ROWS), "ignore"),
    "no numbers": (pa.nulls(ROWS, pa.float64()), "ignore"),
    "lists": ([[1.0] * (k % 3) for k in range(ROWS)], "ignore"),
    "map": (
        pa.array([[("a", k)] for k in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        "ignore",
    ),
    "bytes": ([b"a", b"b", b"c"] * 20, "ignore"),
    "day": ([DAY + datetime.timedelta(k) for k in range(ROWS)], "dates"),
    "time": ([datetime.datetime(2026, 1, 1, k % 24) for k in range(ROWS)], "dates"),
    "loaded at": ([datetime.datetime(2026, 1, 1)] * ROWS, "ignore"),
    "note": ([f"the note of row {k}" for k in range(ROWS)], "text"),
}


def rows(**columns: Any) -> dict[str, Any]:
    """Columns between a number and a label."""
    return {"x": KINDS["float"][0], **columns, "y": [0, 1] * 30}


def job() -> dict[str, Any]:
    """The job that was written here."""
    return tomllib.loads(Path("job.toml").read_text("utf-8"))


def made(columns: dict[str, Any], *words: object) -> dict[str, Any]:
    """The job for these columns; it can be planned."""
    write(Path("rows.parquet"), columns)
    done = run("init", "rows.parquet", "--overwrite", *words)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) <= 8
    Session.open("job.toml", {}).plan()
    return job()


def roles(data: dict[str, Any], name: str) -> list[str]:
    """The keys of [data] that name a column."""
    return [
        key for key in ("ignore", "dates", "text", "vectors", "nulls") if name in data.get(key, ())
    ]


def text_file(name: str = "rows.csv") -> None:
    """A file of numbers, with a label that its name shows."""
    lines = [f"{k},{k % 7}.5,{'yes' if k % 2 else 'no'}" for k in range(ROWS)]
    Path(name).write_text("\n".join(["id,x,churned", *lines]) + "\n")
