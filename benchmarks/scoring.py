"""How long does a trained model take for rows in memory? Medians and p99 of one process.

A model of 8 numeric and 8 text columns, 2^18 coordinates, rule auto. one: a dict by the scorer.
many: 1,000 dicts by the scorer. pandas, arrow: 1,000 rows by ``Model.predict``. load: a new process
that loads a saved scorer and scores a row, and of which ``import numpy, mmh3`` alone. Next to it
scikit-learn's pipeline of StandardScaler, OneHotEncoder and LogisticRegression: a frame of one row,
and of 1,000.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamomd

ROWS, COLUMNS, MANY = 20_000, 8, 1_000
NUMBERS = [f"x{at}" for at in range(COLUMNS)]
TEXTS = [f"c{at}" for at in range(COLUMNS)]
LOAD = """
from streamomd.training.scoring.scorer import Scorer
scorer = Scorer.load({path!r})
scorer.proba({row!r})
"""


def rows() -> pa.Table:
    """Numbers of several scales, texts of 5 to 215 values, and two classes."""
    draw = np.random.default_rng(11)
    numbers = {name: draw.standard_normal(ROWS) * 10.0**at for at, name in enumerate(NUMBERS, -3)}
    texts = {
        name: [f"value {k}" for k in draw.integers(0, 5 + 30 * at, ROWS)]
        for at, name in enumerate(TEXTS)
    }
    y = (numbers["x3"] / np.std(numbers["x3"]) + draw.standard_normal(ROWS) > 0).astype(int)
    return pa.table({**numbers, **texts, "y": y})


def timed(call: Callable[[], Any], times: int) -> tuple[float, float]:
    """Median and p99 of the seconds of a call, after a tenth of the calls."""
    for _ in range(max(3, times // 10)):
        call()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    found.sort()
    return statistics.median(found), found[min(len(found) - 1, int(0.99 * len(found)))]


def cycled(call: Callable[[Any], Any], given: list[Any]) -> Callable[[], Any]:
    """A call of the next of several rows."""
    at = iter(())

    def of_next() -> Any:
        nonlocal at
        row = next(at, None)
        if row is None:
            at = iter(given)
            row = next(at)
        return call(row)

    return of_next


def process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def pipeline(table: pa.Table) -> Any:
    """scikit-learn's usual one, fitted."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = table.to_pandas()
    columns = ColumnTransformer(
        [("n", StandardScaler(), NUMBERS), ("c", OneHotEncoder(handle_unknown="ignore"), TEXTS)]
    )
    return make_pipeline(columns, LogisticRegression(max_iter=200)).fit(frame, frame["y"])


def main() -> None:
    asked = common.arguments(__doc__).parse_args()
    table = rows()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(table, path)
        model = streamomd.train(str(path), label="y", checkpoint="none", quiet=True)
        scorer, saved = model.scorer(), Path(folder) / "scorer"
        scorer.save(saved)
        some = table.slice(0, MANY)
        dicts, frame, theirs = some.to_pylist(), some.to_pandas(), pipeline(table)
        one = frame.iloc[:1]
        load = LOAD.format(path=str(saved), row=dicts[0])
        calls: dict[str, tuple[Callable[[], Any], int]] = {
            "one: scorer(dict)": (cycled(scorer, dicts), 20_000),
            "one: scorer.proba(dict)": (cycled(scorer.proba, dicts), 20_000),
            "one: scikit-learn": (lambda: theirs.predict(one), 100),
            "1,000: scorer.many(dicts)": (lambda: scorer.many(dicts), 300),
            "1,000: Model.predict(Arrow)": (lambda: model.predict(some), 300),
            "1,000: Model.predict(pandas)": (lambda: model.predict(frame), 300),
            "1,000: scikit-learn": (lambda: theirs.predict(frame), 100),
            "process: load a scorer, score": (lambda: process(load), 15),
            "process: import numpy, mmh3": (lambda: process("import numpy, mmh3"), 15),
        }
        found = {name: timed(call, times) for name, (call, times) in calls.items()}
    common.table(
        ["", "median µs", "p99 µs"],
        [
            [name, f"{1e6 * median:,.1f}", f"{1e6 * p99:,.1f}"]
            for name, (median, p99) in found.items()
        ],
    )
    common.finish(
        {name: {"median_us": 1e6 * m, "p99_us": 1e6 * p} for name, (m, p) in found.items()},
        as_json=asked.json,
    )


if __name__ == "__main__":
    main()
