"""Rows that make a model diverge, and what a diverged run leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from running import Ran, run, write

GOLDEN = Path(__file__).parents[1] / "golden"
HUGE = 1e200


def rows(
    count: int, *, first: int = 0, at: int | None = None, value: float = HUGE, width: int = 5
) -> pa.Table:
    """Rows of a linear truth; the second feature of row ``at`` is ``value``."""
    draw = np.random.default_rng([count, first])
    x = draw.normal(size=(count, width))
    y = x @ np.arange(1.0, width + 1.0)
    if at is not None:
        x[at, 1] = value
    return pa.table({**{f"f{j}": x[:, j] for j in range(width)}, "y": y})


def shards(folder: Path, *, at: int | None = 700, count: int = 1000, **more: Any) -> Path:
    """Shards a and b; row ``at`` of b has the extreme value."""
    for place, name in enumerate("ab"):
        table = rows(count, first=place, at=at if name == "b" else None, **more)
        write(folder / f"{name}.parquet", table, row_group_size=100)
    return folder


def train(*words: object, rule: str = "adagrad", loss: str = "square") -> Ran:
    """A run that stops, or not."""
    return run("train", *words, "--label", "y", "--rule", rule, "--loss", loss)


def commits(url: Path) -> list[dict[str, Any]]:
    """The commits of a checkpoint, every number of each looked at."""
    done = run("checkpoint", "verify", url, "--json")
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out.splitlines()[-1])["commits"]
    return found


def golden(to: Path) -> Path:
    """A copy of the run that an earlier version let diverge; its shard is in place."""
    import shutil

    sys.path.insert(0, str(GOLDEN))
    try:
        from make_diverged import put_shards
    finally:
        sys.path.remove(str(GOLDEN))
    put_shards()
    return Path(shutil.copytree(GOLDEN / "_diverged" / "run", to))
