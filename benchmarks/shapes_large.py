"""Curves and trees on tables of 500,000 rows and more, next to LightGBM with all rows in memory.

Trees of ``shapes = "all"`` are grown on the first 32,768 rows: on small tables they nearly are the
booster, so these tables say more. One pass of ``auto`` with ``shapes`` "none", "columns", "pairs"
and "all"; LightGBM with 31 leaves at learning rate 0.1, its number of trees chosen on a tenth of
the rows. The last tenth of the rows, at most 100,000, is predicted. Of each learner its loss (log
loss, or root of the mean square), processor seconds ÷ those of ``auto``, and the share of the way
from ``auto`` to LightGBM.

    python benchmarks/shapes_large.py [--rows 1000000] [--sets curves,pairs]
    python benchmarks/shapes_large.py --cost 5    # whole commands on table both, in turn, 5 times

Covertype needs ../shared/data; without it it is skipped.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from quality import DATA
from quality_sets import cover_types

import streamomd

Frame = pd.DataFrame
LEVELS = ("none", "columns", "pairs", "all")
MOST_TEST = 100_000


def made(kind: str, rows: int) -> Frame:
    """Ten numbers, a category of 50 and one of 2,000 values; y is 0 or 1, in "amounts" a number."""
    draw = np.random.default_rng(sum(map(ord, kind)))
    X = draw.normal(size=(rows, 10)).astype(np.float32)
    h, k = draw.integers(0, 50, rows), draw.zipf(1.3, rows) % 2000
    of_h, of_k = draw.normal(size=50), 0.5 * draw.normal(size=2000)
    line = 0.7 * X[:, 4] - 0.5 * X[:, 5] + of_h[h] + of_k[k]
    curves = np.sin(2 * X[:, 0]) + np.abs(X[:, 3]) + (X[:, 6] > 1.0)
    pairs = X[:, 1] * X[:, 2] + (X[:, 7] > 0) * (h % 3 == 0) * 1.5
    deep = 2.0 * ((X[:, 0] > 0) ^ (X[:, 1] > 0) ^ (X[:, 2] > 0.5))
    score = {
        "line": line, "curves": line + curves, "pairs": line + pairs, "deep": line + deep,
        "both": line + curves + pairs, "amounts": line + curves + pairs,
        "moving": line + curves * np.linspace(1.5, 0.5, rows),
    }[kind]  # fmt: skip
    y = score + draw.normal(size=rows) if kind == "amounts" else None
    if y is None:
        y = (score - np.median(score) + draw.logistic(size=rows) > 0.0).astype(int)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    return frame.assign(h=[f"h{v}" for v in h], k=[f"k{v}" for v in k], y=y)


def covertype(_: int) -> Frame:
    """Class 2 against the others, permuted."""
    numeric, sparse, kind = cover_types(DATA)
    whole = np.column_stack([numeric, sparse.toarray()])
    frame = pd.DataFrame(whole, columns=[f"x{j}" for j in range(whole.shape[1])])
    frame = frame.assign(y=(kind == 2).astype(int))
    return frame.iloc[np.random.default_rng(0).permutation(len(frame))].reset_index(drop=True)


SETS: dict[str, Callable[[int], Frame]] = {
    **{kind: (lambda rows, kind=kind: made(kind, rows)) for kind in (
        "line", "curves", "pairs", "both", "deep", "amounts", "moving")},
    "covertype": covertype,
}  # fmt: skip


def loss_of(y: Any, predicted: Any, *, classes: bool) -> float:
    """The log loss of probabilities, or the root of the mean squared error."""
    if not classes:
        return float(np.sqrt(np.mean((y - predicted) ** 2)))
    p = np.clip(predicted, 1e-15, 1 - 1e-15)
    return float(-np.mean(np.where(y > 0, np.log(p), np.log(1.0 - p))))


def ours(train: Path, test: Frame, shapes: str, *, classes: bool) -> tuple[float, float]:
    """The loss, and processor seconds of training."""
    began = time.process_time()
    model = streamomd.train(str(train), label="y", shapes=shapes, checkpoint="none", quiet=True)
    seconds = time.process_time() - began
    rows = pa.Table.from_pandas(test.drop(columns="y"), preserve_index=False)
    found = model.predict_proba(rows)[:, 1] if classes else model.predict(rows)
    return loss_of(test["y"].to_numpy(), found, classes=classes), seconds


def booster(train: Frame, test: Frame, *, classes: bool) -> tuple[float, float]:
    """The same of LightGBM."""
    texts = [name for name in train if train[name].dtype.kind not in "fiub"]
    both = pd.concat([train, test]).astype(dict.fromkeys(texts, "category"))
    X, y = both.drop(columns="y"), both["y"].to_numpy()
    began, stop = time.process_time(), len(train) * 9 // 10
    fit = lgb.Dataset(X[:stop], y[:stop])
    held = lgb.Dataset(X[stop : len(train)], y[stop : len(train)], reference=fit)
    settings = {"objective": "binary" if classes else "regression", "verbose": -1}
    stops = [lgb.early_stopping(20, verbose=False)]
    model = lgb.train(settings, fit, 1000, valid_sets=[held], callbacks=stops)
    seconds = time.process_time() - began
    found = model.predict(X[len(train) :])
    return loss_of(test["y"].to_numpy(), found, classes=classes), seconds


def compare(frame: Frame, folder: Path) -> dict[str, Any]:
    """The figures of a table."""
    cut = len(frame) - min(len(frame) // 10, MOST_TEST)
    train, test = frame[:cut], frame[cut:]
    pq.write_table(pa.Table.from_pandas(train, preserve_index=False), folder / "rows.parquet",
                   row_group_size=100_000)  # fmt: skip
    classes = frame["y"].nunique() == 2
    found: dict[str, Any] = {"rows": cut}
    for shapes in LEVELS:
        found[shapes] = ours(folder / "rows.parquet", test, shapes, classes=classes)
    found["lightgbm"] = booster(train, test, classes=classes)
    return found


def line(name: str, found: dict[str, Any]) -> str:
    """A table's figures."""
    (plain, seconds), (best, _) = found["none"], found["lightgbm"]
    text = f"{name:10} {found['rows']:9,} {plain:9.4f}"
    for kind in (*LEVELS[1:], "lightgbm"):
        loss, spent = found[kind]
        text += f" {loss:9.4f} {spent / seconds:5.1f}"
    shares = [(plain - found[kind][0]) / (plain - best) for kind in LEVELS[1:]]
    ahead = plain > 1.02 * best
    return text + "".join(f" {one:6.2f}" if ahead else "      -" for one in shares)


def spent(words: list[str]) -> float:
    """Processor seconds of a command of streamomd."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "streamomd", *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cost(rows: int, times: int) -> dict[str, Any]:
    """Processor seconds of whole ``train`` commands, start-up and commits included, and LightGBM's
    in memory."""
    frame, taken = SETS["both"](rows), {level: [] for level in LEVELS}
    cut = len(frame) - min(len(frame) // 10, MOST_TEST)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        frame.to_parquet(file, row_group_size=100_000)
        for turn in range(times + 1):  # the first one compiles
            for level in LEVELS:
                url = ["--checkpoint", f"{folder}/{turn}-{level}"]
                seconds = spent(["train", str(file), "--label", "y", "--shapes", level, *url])
                taken[level] += [seconds] if turn else []
    for level, found in taken.items():
        ratio = common.ratio(found, taken["none"])
        print(f"{level:10} {statistics.median(found):6.2f} s of processors, ÷ none {ratio:.2f}")
    _, seconds = booster(frame[:cut], frame[cut:], classes=True)
    print(f"LightGBM   {seconds:6.2f} s of processors, {cut:,} rows in memory")
    return {**taken, "lightgbm": seconds}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--cost", type=int, default=0, metavar="TIMES", help="of whole commands")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of made tables")
    parser.add_argument("--sets", default=",".join(SETS), help="some of the tables")
    args = parser.parse_args()
    if args.cost:
        common.finish(cost(args.rows, args.cost), as_json=args.json)
        return
    head = "".join(f"{level:>10}  CPU" for level in (*LEVELS[1:], "LightGBM"))
    print(f"table           rows      auto{head}   shares")
    figures = {}
    with tempfile.TemporaryDirectory() as warm:  # loops are compiled before the first is timed
        for kind in ("both", "amounts"):
            pq.write_table(pa.Table.from_pandas(made(kind, 20_000)), Path(warm) / "rows.parquet")
            for shapes in LEVELS:
                streamomd.train(warm, label="y", shapes=shapes, checkpoint="none", quiet=True)
    for name in args.sets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            try:
                frame = SETS[name](args.rows)
            except FileNotFoundError as error:
                print(f"skipped: {name}: {error}", file=sys.stderr)
                continue
            figures[name] = compare(frame, Path(folder))
        print(line(name, figures[name]), flush=True)
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
