"""Rows that change at the last shard, and jobs whose alerts see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from running import write

import streamomd

ROWS = 160


def table(shard: int, *, changed: bool = False) -> pa.Table:
    """y, n (some missing), h. changed: another mean, more missing values, other cities, and labels
    that mean the opposite."""
    draw = np.random.default_rng(shard)
    n = draw.normal(size=ROWS)
    y = (n + 0.3 * draw.normal(size=ROWS) > 0.0).astype(np.int64)
    missing = draw.random(ROWS) < (0.5 if changed else 0.1)
    cities = [f"{'new' if changed else 'city'} {one}" for one in draw.integers(0, 40, ROWS)]
    return pa.table(
        {
            "y": 1 - y if changed else y,
            "n": pa.array(n + 9.0 * changed, mask=missing),
            "h": cities,
        }
    )


def write_changed(folder: Path) -> None:
    """Five shards alike, then one that differs."""
    for shard, name in enumerate("abcdef"):
        write(folder / f"{name}.parquet", table(shard, changed=name == "f"), row_group_size=30)


def saved(model: streamomd.Model) -> dict[str, bytes]:
    """What the commit has for alerts."""
    return {name: array.tobytes() for name, array in model.metrics.drift.saved().items()}


WATCHED: dict[str, Any] = {
    "alert.loss": True, "alert.threshold": 20.0, "alert.rows": 80, "alert.mean": 1.5,
    "alert.null_rate": 0.2, "alert.new_categories": 0.1,
}  # fmt: skip
COLUMNS = ("alert.mean", "alert.null_rate", "alert.new_categories")
FLAGS: dict[str, Any] = {
    "label": "y", "numeric": ["n"], "hashed": ["h"], "nulls": "indicator", "bits": 10,
    "rule": "nag", "quiet": True,
}  # fmt: skip
