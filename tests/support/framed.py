"""The same rows as a Dask collection and as shards, a shard a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from distributed import Client
from running import rows, write

import streamomd
from streamomd.shards.order import permutation

PARTS, ROWS = 4, 500
LATE = permutation(PARTS, 0, 1)[2]  # the third in the second epoch's order
NOWHERE = {"url": "none"}
PAIR = {"indices": "i", "values": "v", "size": 100}


def frame(part: int, broken: str = "") -> pd.DataFrame:
    """Rows of every kind; an OSError while the file ``broken`` is there, in a late one."""
    if part == LATE and broken and Path(broken).exists():
        raise OSError(f"{broken} is in the way")
    table = rows(ROWS, first=part * ROWS)
    lists = [table.column(name).to_pandas(types_mapper=pd.ArrowDtype) for name in "iv"]
    made = table.drop_columns(["i", "v"]).to_pandas()
    lists = [one.set_axis(range(1000 * part, 1000 * part + ROWS)) for one in lists]
    made = made.set_axis(lists[0].index)
    return made.assign(i=lists[0], v=lists[1], h=made["h"].astype("string[pyarrow]"))


def collection(broken: str = "") -> dd.DataFrame:
    """Partitions that are made when they are asked for."""
    return dd.from_map(frame, range(PARTS), broken=broken, meta=frame(0).iloc[:0])


def as_shards(folder: Path, frames: list[pd.DataFrame]) -> Path:
    """What pandas would write of each partition."""
    for place, one in enumerate(frames):
        table = pa.Table.from_pandas(one, preserve_index=False)
        write(folder / f"{place}.parquet", table.replace_schema_metadata(), row_group_size=70)
    return folder


def job(shards: Any, *, epochs: int = 2, **tables: Any) -> dict[str, Any]:
    """Every kind of column, in an order that is not that of the partitions."""
    columns = {"numeric": ["n", "k"], "hashed": ["h", "c"], "sparse": PAIR}
    told = {"label": "y", "weight": "w", "bits": 8, "order": "shuffled", **columns}
    return {"data": {"shards": shards, **told}, "train": {"epochs": epochs}, **tables}


def learn(shards: Any, client: Client | None = None, **tables: Any) -> streamomd.Model:
    """A run that is kept nowhere."""
    return streamomd.train(job(shards, checkpoint=NOWHERE, **tables), client=client, quiet=True)


def arrays(folder: Path) -> tuple[np.ndarray, ...]:
    """X, y and weights; and the same as shards of 300 and 200 rows in ``folder``."""
    draw = np.random.default_rng(7)
    features = draw.normal(size=(500, 3))
    label = (features.sum(axis=1) > 0).astype(np.int64)
    weight = draw.choice([0.5, 1.0], 500)
    for place, (low, high) in enumerate(((0, 300), (300, 500))):
        flat = pa.array(features[low:high].reshape(-1))
        lists = pa.FixedSizeListArray.from_arrays(flat, 3)
        columns = {"X": lists, "y": label[low:high], "w": weight[low:high]}
        write(folder / f"{place}.parquet", columns)
    return features, label, weight
