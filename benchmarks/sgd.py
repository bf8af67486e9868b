"""Is OGD quicker than scikit-learn's SGDClassifier, on the same rows in memory?

``Engine.learn`` of OGD (a constant eta, logistic, float64) and ``SGDClassifier.partial_fit``
(log_loss, constant, no penalty, float64) over the same CSR batches, 2^18 coordinates, about 75
non-zeros a row, no intercept (scikit-learn's moves a hundredth as far on sparse rows). In turn,
processor time, the median of the pairs' ratios. Both learn the same: weights must agree to 1e-9.

Target: scikit-learn's time ÷ ours ≥ 1.3. Needs scikit-learn.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any

import common
import numpy as np

ETA = 0.01


def batches(rng: np.random.Generator, rows: int, batch_rows: int) -> list[Any]:
    """Rows in batches, values in float64."""
    from streamomd.batch import SparseBatch

    found = []
    for low in range(0, rows, batch_rows):
        count = min(batch_rows, rows - low)
        made = common.batch(rng, count, common.SMALL)
        found.append(
            SparseBatch(
                made.indptr, made.indices, made.values.astype(np.float64), made.y, made.weight
            )
        )
    return found


def ours(given: list[Any]) -> tuple[float, Any]:
    """Seconds, and the weights."""
    walk = common.Walk("ogd", common.SMALL, "float64", None, eta=ETA, schedule="constant")
    walk.engine = dataclasses.replace(walk.engine, bias=False)
    walk.engine.warm(walk.state, given[0].rows(0, 0), learning=True)
    began = time.process_time()
    for batch in given:
        walk.engine.learn(walk.state, walk.sums, batch)
    spent = time.process_time() - began
    return spent, walk.state.slot("v")[: common.SMALL, 0]


def theirs(given: list[Any]) -> tuple[float, Any]:
    """Seconds, and the weights; matrices are made beforehand."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import SGDClassifier

    shape = common.SMALL
    matrices = [
        csr_array((b.values, b.indices, b.indptr.astype(np.int32)), (len(b), shape)) for b in given
    ]
    told: dict[str, Any] = {"learning_rate": "constant", "eta0": ETA, "penalty": None}
    model = SGDClassifier(loss="log_loss", shuffle=False, fit_intercept=False, **told)
    began = time.process_time()
    for X, batch in zip(matrices, given, strict=True):
        model.partial_fit(X, batch.y, classes=[-1.0, 1.0])
    spent = time.process_time() - began
    return spent, model.coef_[0]


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows learned in a run")
    parser.add_argument("--batch-rows", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=5, help="runs of each")
    args = parser.parse_args()
    given = batches(np.random.default_rng(0), args.rows, args.batch_rows)
    nonzeros = sum(len(batch.values) for batch in given)
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(args.pairs + 1):
        one, w = ours(given)
        other, v = theirs(given)
        found["ours"].append(1e9 * one / nonzeros)
        found["theirs"].append(1e9 * other / nonzeros)
        if not np.abs(w - v).max() <= 1e-9:
            raise SystemExit(f"the weights differ by {np.abs(w - v).max()}")
    found = {name: times[1:] for name, times in found.items()}
    figures = {f"{name}_ns": statistics.median(times) for name, times in found.items()}
    figures["ratio"] = common.ratio(found["theirs"], found["ours"])
    line = ["OGD, 2^18, float64", *figures.values(), "≥ 1.30"]
    head = ["ns of processor time a non-zero", "Engine.learn", "partial_fit", "ratio", "target"]
    common.table(head, [line])
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
