"""How ``_diverged`` was made, before a commit that is not finite was refused; never made again.

A feature of 1e200 in row 70 (square loss, AdaGrad): commits 3 and 4 hold NaN, 1 and 2 do not.
"""

from __future__ import annotations

import io
import platform
from pathlib import Path
from unittest.mock import patch

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent / "_diverged"
SHARDS, URL = "memory://golden-diverged", "memory://golden-diverged-run"
"""In memory, so that the checkpoint names no place of the machine it was made on."""
ROWS, BAD = 120, 70


def put_shards() -> None:
    """The shard in memory, under the name that the checkpoint has for it."""
    fsspec.filesystem("memory").pipe_file(
        "/golden-diverged/a.parquet", (HERE / "a.parquet").read_bytes()
    )


def main() -> None:
    """Train on it."""
    import streamomd

    draw = np.random.default_rng(7)
    x = draw.normal(size=(ROWS, 2))
    y = x @ [1.0, -2.0]
    x[BAD, 0] = 1e200
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "y": y}), sink)
    HERE.mkdir()
    (HERE / "a.parquet").write_bytes(sink.getvalue())
    put_shards()
    with patch.object(platform, "node", lambda: "golden"):
        streamomd.train(
            f"{SHARDS}/a.parquet",
            label="y",
            rule="adagrad",
            loss="square",
            checkpoint=URL,
            sets={
                "checkpoint.every_rows": 30,
                "checkpoint.every_seconds": 0,
                "checkpoint.keep": 99,
            },
            quiet=True,
        )
    fsspec.filesystem("memory").get("/golden-diverged-run/", str(HERE / "run"), recursive=True)


if __name__ == "__main__":
    main()
