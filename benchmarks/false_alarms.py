"""How many alerts are false: alerts in 10^6 stationary rows, and rows until a change is found.

Rows of data sets of ../shared/data are drawn with replacement, so every row has one distribution;
rule auto learns them with the alerts of docs/alerts.md, and alerts of columns are counted for
several limits. Then the labels of half of the rows are those of other rows, and what is counted is
the rows until the first alert of the loss.

    python benchmarks/false_alarms.py                       # 10^6 rows of each set, some minutes
    python benchmarks/false_alarms.py --rows 100000 --thresholds 50,100,200,300
    python benchmarks/false_alarms.py --sets bank --modes averaged,sharded --rule nag
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

DATA = Path(__file__).parents[2] / "shared/data"
LIMITS = {
    "mean": (0.05, 0.1, 0.25),
    "null_rate": (0.005, 0.01, 0.02),
    "new_categories": (0.005, 0.02, 0.05),
}
"""Of windows of alert.rows = 10,000 rows; the job has the least ones."""
MISSING = 0.1
"""The share of each numeric column's values."""
MODES = {
    "exact": {},
    "averaged": {"train.mode": "averaged", "train.parts": 16, "train.rounds_per_epoch": 2},
    "sharded": {"train.mode": "sharded", "train.parts": 4},
}


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
    """Rows with replacement, some numbers missing; of a share the labels of other rows."""
    draw = np.random.default_rng(seed)
    found = frame.iloc[draw.integers(0, len(frame), rows)].reset_index(drop=True)
    other = frame["y"].to_numpy()[draw.integers(0, len(frame), rows)]
    found = found.assign(y=np.where(draw.random(rows) < noise, other, found["y"]))
    for name in found.select_dtypes("number").columns.drop("y", errors="ignore"):
        found[name] = found[name].mask(draw.random(rows) < MISSING)
    return found


def alerts(parts: list[pd.DataFrame], sets: dict[str, Any], rule: str, client: Any) -> list[Any]:
    """Of a run over these rows, from its log: the result has the last hundred."""
    import streamomd

    with tempfile.TemporaryDirectory() as folder:
        for at, part in enumerate(parts):
            table = pa.Table.from_pandas(part, preserve_index=False)
            pq.write_table(table, f"{folder}/{at}.parquet", row_group_size=50_000)
        given = {"label": "y", "quiet": True, "nulls": "indicator", "rule": rule, "client": client}
        given |= {"checkpoint": f"{folder}-run" if client else "none", "log": f"{folder}/log.jsonl"}
        streamomd.train(f"{folder}/*.parquet", sets=sets, **given)
        shutil.rmtree(f"{folder}-run", ignore_errors=True)
        events = map(json.loads, Path(f"{folder}/log.jsonl").read_text().splitlines())
        return [event for event in events if event["event"] == "alert"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--thresholds", default="300")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--modes", default="exact")
    parser.add_argument("--rule", default="auto")
    options = parser.parse_args()
    for mode in options.modes.split(","):
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(Client(n_workers=2)) if mode == "averaged" else None
            for name in options.sets.split(","):
                for threshold in map(float, options.thresholds.split(",")):
                    measure(SETS[name](), name, mode, threshold, options, client)


def measure(
    frame: pd.DataFrame, name: str, mode: str, threshold: float, options: Any, client: Any
) -> None:
    """Print a line of one data set."""
    sets = {f"alert.{key}": min(values) for key, values in LIMITS.items()} | MODES[mode]
    sets |= {"alert.loss": True, "alert.threshold": threshold}
    given = options.rule, client
    still = alerts([drawn(frame, options.rows, 1, 0.0)], sets, *given)
    counts: dict[str, Any] = {"loss": sum(one["kind"] == "loss" for one in still)}
    for kind, limits in LIMITS.items():
        values = [one["value"] for one in still if one["kind"] == kind]
        counts[kind] = {limit: sum(value > limit for value in values) for limit in limits}
    before = min(options.rows, 100_000)
    change = [drawn(frame, before, 2, 0.0), drawn(frame, 50_000, 3, 0.5)]
    found = [one["row"] - before for one in alerts(change, sets, *given) if one["kind"] == "loss"]
    late = next((row for row in found if row > 0), None)
    print(f"{mode}, {name}, threshold {threshold:g}: {counts} in {options.rows:,} rows; "
          f"half of the labels at random: after {late} rows", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
