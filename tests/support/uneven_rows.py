"""Shards of rows of which few are of class 1, and runs over them in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from running import rows, with_column, write
from sweeping import plain

import streamomd

FLAGS: dict[str, Any] = {"label": "y", "weight": "w", "numeric": ["n", "k"], "hashed": ["h"]}


@pytest.fixture
def uneven_data(tmp_path: Path) -> Path:
    """Two shards of rows of which about one in five is of class 1."""
    for shard, name in enumerate("ab"):
        write(tmp_path / "data" / f"{name}.parquet", uneven(shard), row_group_size=30)
    return tmp_path


def uneven(shard: int) -> pa.Table:
    table = rows(120, first=shard)
    y = np.array(table["y"]) * (np.arange(120) % 5 < 2)
    return with_column(table, "y", y)


def learn(shards: Path, **more: Any) -> streamomd.Model:
    given = {"checkpoint": "none", "quiet": True, "bits": 6, "rule": "nag", **FLAGS, **more}
    with plain():
        return streamomd.train(str(shards), **given)
