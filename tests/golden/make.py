"""How a checkpoint of each mode was made, in the middle of its run; never made anew, only added to.

``python tests/golden/make.py NAME`` makes ``tests/golden/NAME``, for a format that is not there.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import pyarrow.parquet as pq

HERE = Path(__file__).parent
SHARDS = "memory://golden-shards"
"""In memory, so that the checkpoints name no place of the machine they were made on."""
MODES: dict[str, dict[str, Any]] = {
    "exact": {},
    "averaged": {"parts": 2, "rounds_per_epoch": 2},
    "sharded": {"parts": 2, "batch_rows": 16},
}
DEFAULT = "default"
"""Of the default rule, in exact mode, whose bits depend on the machine's exp and log."""
ROWS = 120


def job(mode: str, url: str) -> dict[str, Any]:
    """Of a mode only +, −, ×, ÷ and √ are needed: the same bits on every machine."""
    pair = {"indices": "i", "values": "v", "size": 100}
    columns = {"numeric": ["n", "k"], "hashed": ["h", "c"], "sparse": pair}
    names = [f"{SHARDS}/{name}.parquet" for name in "ab"]
    return {
        "data": {"shards": names, "label": "y", "weight": "w", "bits": 4, **columns},
        "model": {"loss": "square"} | ({} if mode == DEFAULT else {"rule": "nag"}),
        "train": {"epochs": 2} | ({} if mode == DEFAULT else {"mode": mode, **MODES[mode]}),
        "checkpoint": {"url": url, "every_rows": 60, "every_seconds": 0, "keep": 99},
    }


def put_shards() -> None:
    """The shards in memory, under the names that the checkpoints have for them."""
    memory = fsspec.filesystem("memory")
    for name in "ab":
        memory.pipe_file(f"/golden-shards/{name}.parquet", (HERE / f"{name}.parquet").read_bytes())


def main(name: str) -> None:
    """Train each mode, and leave what it was after about one epoch."""
    sys.path.insert(0, str(HERE.parent / "support"))
    from distributed import Client, LocalCluster
    from running import rows

    import streamomd
    from streamomd.checkpoint import parts

    for place, shard in enumerate("ab"):
        path = HERE / f"{shard}.parquet"
        if not path.exists():
            pq.write_table(rows(ROWS, first=place), str(path), row_group_size=50)
    put_shards()
    memory = fsspec.filesystem("memory")
    for mode in (*MODES, DEFAULT):
        url = f"memory://golden-{mode}"
        with (
            LocalCluster(processes=False, n_workers=2, dashboard_address=":0") as cluster,
            Client(cluster, set_as_default=False) as client,
            patch.object(platform, "node", lambda: "golden"),
            patch.object(parts, "LEAST", 1),  # so small parts are compressed as larger ones are
        ):
            told = streamomd.train(
                job(mode, url), client=client if mode == "averaged" else None, quiet=True
            )
        print(mode, told.state_sha256, told.result()["loss"])
        memory.get(f"/golden-{mode}/", str(HERE / name / mode), recursive=True)
        cut(HERE / name / mode)


def cut(url: Path) -> None:
    """Keep the last two commits inside the first epoch."""
    kept, shared = [], []
    for path in sorted((url / "commits").glob("*.json"), reverse=True):
        fields = json.loads(path.read_text().splitlines()[0])
        if fields["document"]["rows"] >= ROWS * 2 or len(kept) == 2:
            path.unlink()
        else:
            kept.append(fields["directory"])
            shared += [fields["document"]["names"], *fields["document"]["segments"]]
    for folder in (url / "data").iterdir():
        if folder.name not in kept:
            shutil.rmtree(folder)
    for path in [*url.glob("names/*"), *url.glob("segments/*"), *url.glob("copies/*/*")]:
        if path.stem not in shared:
            path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
