"""Held-out loss of the estimators with their defaults, on sets of ``quality_sets``.

    python benchmarks/estimators.py --data ../shared/data [SET …]

Next to them: one epoch in the given order (what ``streamomd train`` does), SGDClassifier or
SGDRegressor and LogisticRegression or Ridge behind StandardScaler, all with their defaults. The
figure is the log loss of held-out rows, or the RMSE in regression; error in brackets. Sets whose
files are absent are skipped with the reason.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from quality_sets import REGRESSION, SETS, Data
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamomd import OMDClassifier, OMDRegressor

MOST_ROWS, MOST_SPLITS = 20_000, 3
USUAL = (
    "breast_cancer", "wine", "iris", "digits", "diabetes", "covertype", "bank", "census",
    "california", "nycflights", "blogfeedback", "a9a", "w8a", "ijcnn1", "20news-comp", "20news",
    "cover7",
)  # fmt: skip
IN_ORDER = {"shuffle": False, "early_stopping": False}


def learners(data: Data) -> dict[str, Any]:
    """The estimators by the name of their column."""
    scale = StandardScaler(with_mean=not data.sparse.shape[1])
    if data.task == REGRESSION:
        return {
            "defaults": OMDRegressor(random_state=0), "one epoch": OMDRegressor(**IN_ORDER),
            "SGD": make_pipeline(scale, SGDRegressor(random_state=0)),
            "Ridge": make_pipeline(scale, Ridge()),
        }  # fmt: skip
    sgd = SGDClassifier(loss="log_loss", random_state=0)
    return {
        "defaults": OMDClassifier(random_state=0), "one epoch": OMDClassifier(**IN_ORDER),
        "SGD": make_pipeline(scale, sgd),
        "LogisticRegression": make_pipeline(scale, LogisticRegression(max_iter=300)),
    }  # fmt: skip


def figures(data: Data) -> dict[str, tuple[float, float, float]]:
    """Loss, error (NaN in regression) and CPU seconds of each, the mean of the splits."""
    X = sp.hstack([data.numeric, data.sparse]).tocsr() if data.sparse.shape[1] else data.numeric
    found: dict[str, list[Any]] = {}
    for train, test in list(data.splits)[:MOST_SPLITS]:
        learned, held = train[:MOST_ROWS], test[:MOST_ROWS]
        for name, learner in learners(data).items():
            began = time.process_time()
            learner.fit(X[learned], data.y[learned])
            seconds = time.process_time() - began
            if data.task == REGRESSION:
                loss, error = (
                    root_mean_squared_error(data.y[held], learner.predict(X[held])),
                    np.nan,
                )
            else:
                likely = learner.predict_proba(X[held])
                loss = log_loss(data.y[held], likely, labels=learner.classes_)
                error = 1.0 - learner.score(X[held], data.y[held])
            found.setdefault(name, []).append((loss, error, seconds))
    return {name: tuple(np.mean(values, axis=0)) for name, values in found.items()}


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("sets", nargs="*", default=USUAL)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # peers that did not converge
    for name in args.sets:
        try:
            data = SETS[name](args.data)
        except (OSError, ImportError) as error:
            print(f"{name}: skipped, {error}")
            continue
        texts = []
        for kind, (loss, error, seconds) in figures(data).items():
            wrong = "" if np.isnan(error) else f" ({error:.2%})"
            texts.append(f"{kind} {loss:.4g}{wrong} {seconds:.1f} s")
        print(f"{name}: {'; '.join(texts)}", flush=True)


if __name__ == "__main__":
    main()
