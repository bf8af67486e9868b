"""How many alerts are false: alerts in 10^6 stationary rows, and rows until a change is found.

Rows of data sets of ../shared/data are drawn with replacement, so every row has one distribution;
rule auto learns them with the alerts of docs/monitoring.md. Then the labels of half of the rows are
drawn anew, and what is counted is the rows until the first alert of the loss.

    python benchmarks/false_alarms.py                       # 10^6 rows of each set, some minutes
    python benchmarks/false_alarms.py --rows 100000 --thresholds 50,100,200,300
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parents[2] / "shared/data"
LIMITS = {"mean": 0.25, "null_rate": 0.02, "new_categories": 0.05}
"""Of the windows of alert.rows = 10,000 rows."""


def bank() -> pd.DataFrame:
    return pd.read_csv(DATA / "bank-marketing/bank-full.csv.gz", sep=";")


def census() -> pd.DataFrame:
    path = DATA / "census-income-kdd/census-income.data.gz"
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    return frame.rename(columns={41: "y"}).rename(columns=str)


def covertype() -> pd.DataFrame:
    frame = pd.read_csv(DATA / "covertype/covtype.csv.gz").sample(100_000, random_state=0)
    frame["y"] = (frame.iloc[:, -1] == 2).astype(int)
    return frame.drop(columns=frame.columns[-2])


SETS = {"bank": bank, "census": census, "covertype": covertype}


def drawn(frame: pd.DataFrame, rows: int, seed: int, noise: float) -> pd.DataFrame:
    """Rows with replacement; of a share the labels of other rows."""
    draw = np.random.default_rng(seed)
    found = frame.iloc[draw.integers(0, len(frame), rows)].reset_index(drop=True)
    other = frame["y"].to_numpy()[draw.integers(0, len(frame), rows)]
    return found.assign(y=np.where(draw.random(rows) < noise, other, found["y"]))


def alerts(parts: list[pd.DataFrame], sets: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a run over these rows."""
    import streamomd

    with tempfile.TemporaryDirectory() as folder:
        for at, part in enumerate(parts):
            table = pa.Table.from_pandas(part, preserve_index=False)
            pq.write_table(table, f"{folder}/{at}.parquet", row_group_size=50_000)
        given = {"label": "y", "checkpoint": "none", "quiet": True, "nulls": "indicator"}
        return streamomd.train(folder, sets=sets, **given).result()["alerts"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--thresholds", default="300")
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    for name in options.sets.split(","):
        frame = SETS[name]()
        for threshold in map(float, options.thresholds.split(",")):
            sets = {f"alert.{key}": value for key, value in LIMITS.items()}
            sets |= {"alert.loss": True, "alert.threshold": threshold}
            still = alerts([drawn(frame, options.rows, 1, 0.0)], sets)
            kinds = {kind: sum(one["kind"] == kind for one in still) for kind in ("loss", *LIMITS)}
            before = min(options.rows, 100_000)
            change = [drawn(frame, before, 2, 0.0), drawn(frame, 50_000, 3, 0.5)]
            found = [one["row"] - before for one in alerts(change, sets) if one["kind"] == "loss"]
            late = next((row for row in found if row > 0), None)
            print(f"{name}, threshold {threshold:g}: {kinds} in {options.rows:,} rows; "
                  f"half of the labels at random: after {late} rows", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
