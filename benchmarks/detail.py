"""What do figures beside the loss cost, and rows held out?

Processor time to learn dense rows of 50 columns in memory, NAG, in batches of 4 MiB as ``streamomd
train`` has them: with ``train.detail`` ÷ without, and with ``data.holdout`` ÷ without. Jobs take
turns, the medians are compared. Decoding, which other threads do, is left out: of a whole training
the shares are smaller.

Target: detail ≤ 1.03 with two classes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamomd
from streamomd.core.batch import DenseBatch
from streamomd.training.holdout import held_out
from streamomd.training.training_step import learn_rows

COLUMNS, BATCH = 50, 10_000
TASKS: dict[str, dict[str, Any]] = {
    "two classes, logistic": {"loss": "logistic", "classes": 2},
    "seven classes, one against all": {"loss": "logistic", "classes": 7},
    "seven classes, softmax": {"loss": "softmax", "classes": 7},
    "numbers, square": {"loss": "square", "classes": 1},
    "counts, poisson": {"loss": "poisson", "classes": 1},
}
EVERY = (0, 1000, 100, 10)


def model_of(loss: str, classes: int, folder: Path, **sets: Any) -> streamomd.Model:
    """A model that has seen nothing, its loops compiled."""
    codes = np.arange(200) % max(classes, 2)
    y = codes if classes > 1 else codes.astype(np.float64)
    columns = {f"x{at}": np.zeros(200) for at in range(COLUMNS)}
    shard = folder / f"{loss}-{classes}.parquet"
    pq.write_table(pa.table({"y": y, **columns}), str(shard))
    given = {"label": "y", "rule": "nag", "loss": loss, "eta": 0.1, "checkpoint": "none"}
    model = streamomd.train(str(shard), sets=sets, quiet=True, **given)
    return streamomd.Model.new(model.spec, model.plan)


def batches(classes: int, count: int) -> list[DenseBatch]:
    """Rows whose labels a linear rule can learn, with noise."""
    draw = np.random.default_rng(0)
    truth = draw.normal(size=(COLUMNS, max(classes, 1))) / 7
    found = []
    for _ in range(count):
        X = draw.normal(size=(BATCH, COLUMNS))
        scores = X @ truth + 0.3 * draw.normal(size=(BATCH, truth.shape[1]))
        y = scores[:, 0] if classes == 1 else scores.argmax(axis=1).astype(np.float64)
        y = 2.0 * y - 1.0 if classes == 2 else np.maximum(y, 0.0)
        found.append(DenseBatch(X, y, np.ones(BATCH)))
    return found


def learn(model: streamomd.Model, rows: list[DenseBatch], every: int = 0) -> None:
    """Learn them from the beginning, some held out."""
    fresh = streamomd.Model.new(model.spec, model.plan)
    fresh.engine = model.engine
    fresh.metrics.begin(0)
    for at, batch in enumerate(rows):
        places = np.arange(BATCH) + at * BATCH
        learn_rows(fresh, batch, held=held_out(every, 0, 0, places) if every else None)


def medians(jobs: dict[str, Any], times: int) -> dict[str, float]:
    """Seconds of the processor for each, in turns; the first round is not counted."""
    took = common.in_turn(jobs, times + 1, time.process_time)
    return {name: statistics.median(one[1:]) for name, one in took.items()}


def of_tasks(folder: Path, count: int, times: int) -> list[list[Any]]:
    """For each task: ns a row, ns of its detail, ratio."""
    lines = []
    for title, task in TASKS.items():
        rows = batches(task["classes"], count)
        plain = model_of(**task, folder=folder, **{"train.detail": False})
        whole = model_of(**task, folder=folder)
        took = medians(
            {"plain": partial(learn, plain, rows), "whole": partial(learn, whole, rows)}, times
        )
        each = 1e9 / (BATCH * count)
        more = (took["whole"] - took["plain"]) * each
        lines.append([title, took["plain"] * each, more, took["whole"] / took["plain"]])
    return lines


def of_holdout(folder: Path, count: int, times: int) -> list[list[Any]]:
    """For each share: ratio."""
    rows, model = batches(2, count), model_of("logistic", 2, folder, **{"data.holdout": 10})
    took = medians({str(every): partial(learn, model, rows, every) for every in EVERY}, times)
    return [[every, took[str(every)] / took["0"]] for every in EVERY[1:]]


def main() -> None:
    """Print both tables."""
    parser = common.arguments(__doc__)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--batches", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        tasks = of_tasks(Path(name), given.batches, given.times)
        common.table(["task", "ns a row", "detail", "ratio"], tasks)
        held = of_holdout(Path(name), given.batches, given.times)
        common.table(["data.holdout", "ratio"], held)
    common.finish({"tasks": tasks, "holdout": held}, as_json=given.json)


if __name__ == "__main__":
    main()
