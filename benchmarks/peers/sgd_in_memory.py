"""Online gradient descent against SGDClassifier.partial_fit: learning alone, in one process.

The same CSR batches in memory (rcv1-like: about 75 of 2^18 coordinates, float64 values), the same
steps: logistic loss, a constant step size, no penalty, no intercept, rows in order. Three ways, in
turn: scikit-learn's ``partial_fit``; our estimator's, checks of the rows included in both; our
engine's loop alone. Processor seconds of the thread that learns (scikit-learn leaves others that
spin for a fifth of a second); medians of the rounds' ratios. The weights must agree.

Target: estimator ≥ 1.3 × the rows of scikit-learn.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier

sys.path.insert(0, str(Path(__file__).parents[1]))

import common

from streamomd import OMDClassifier
from streamomd.core.batch import SparseBatch

STEP: dict[str, Any] = {"eta": 0.1, "schedule": "constant"}


def batches(count: int, rows: int) -> list[tuple[Any, Any]]:
    """CSR (rows, 2^18) and labels 0 or 1."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        indptr, indices, values = common.rows(rng, rows, common.SMALL)
        shape = (rows, common.SMALL)
        X = csr_matrix((values.astype(np.float64), indices, indptr), shape=shape)
        found.append((X, (common.labels(rng, rows) > 0).astype(np.int64)))
    return found


class Peer:
    """A model's partial_fit on all batches."""

    def __init__(self, model: Any, given: list[tuple[Any, Any]]) -> None:
        self.model, self.given = model, given

    def __call__(self) -> None:
        for X, y in self.given:
            self.model.partial_fit(X, y, classes=[0, 1])

    def weights(self) -> Any:
        return self.model.coef_[0]


class Loop:
    """Our engine on the same numbers."""

    def __init__(self, given: list[tuple[Any, Any]]) -> None:
        walk = common.Walk("ogd", common.SMALL, "float64", None, **STEP)
        self.engine, self.state = dataclasses.replace(walk.engine, bias=False), walk.state
        self.sums = np.zeros(3)
        self.given = [
            SparseBatch(X.indptr.astype(np.int64), X.indices, X.data, 2.0 * y - 1, np.ones(len(y)))
            for X, y in given
        ]

    def __call__(self) -> None:
        for batch in self.given:
            self.engine.learn(self.state, self.sums, batch)

    def weights(self) -> Any:
        return self.state.slot("v").ravel()[: common.SMALL]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000, help="a batch")
    parser.add_argument("--times", type=int, default=7, help="rounds")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    given = batches(args.batches, args.rows)
    theirs = SGDClassifier(
        loss="log_loss", penalty=None, learning_rate="constant", eta0=STEP["eta"],
        fit_intercept=False, shuffle=False,
    )  # fmt: skip
    ours = OMDClassifier("ogd", eta0=STEP["eta"], params={"schedule": "constant"},
                         fit_intercept=False)  # fmt: skip
    jobs = {"SGDClassifier": Peer(theirs, given), "OMDClassifier": Peer(ours, given),
            "engine alone": Loop(given)}  # fmt: skip
    for job in jobs.values():
        job()  # compiles
    seconds = common.in_turn(jobs, args.times, time.thread_time)
    worst = max(
        float(np.abs(job.weights() - jobs["SGDClassifier"].weights()).max())
        for job in jobs.values()
    )
    if worst > 1e-8:
        raise SystemExit(f"the weights differ by {worst:g}: not the same work")
    rows, nonzeros = args.batches * args.rows, sum(X.nnz for X, _ in given)
    lines, figures = [], {}
    for name, took in seconds.items():
        times = common.ratio(seconds["SGDClassifier"], took)
        middle = float(np.median(took))
        figures[name] = {"seconds": took, "ratio": times, "ns_per_nonzero": 1e9 * middle / nonzeros}
        target = "≥ 1.30" if name == "OMDClassifier" else ""
        lines.append([name, rows / middle, 1e9 * middle / nonzeros, times, target])
    head = [
        f"{rows:,} rows × {nonzeros / rows:.0f}",
        "rows/CPU-s",
        "ns/non-zero",
        "times",
        "target",
    ]
    common.table(head, lines)
    print(f"weights differ by {worst:.1g} at most")
    common.finish(figures, as_json=args.json)


if __name__ == "__main__":
    main()
