"""``quality.py --shapes``: how much of the way to a tuned booster do curves, pairs and trees go?

One pass of ``auto`` with ``shapes`` "none", "columns", "pairs" and "all", and a booster at learning
rate 0.05, its number of trees chosen on every sixth training row: LightGBM if it is installed, else
scikit-learn's HistGradientBoosting. Of each set the first split, of sets with at least 5,000
training rows, whose order is random. Boosters get the columns as ``auto`` does, categories one-hot;
"pairs" and "all" have them as categories.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from quality_learners import Fit, Split, figures, learner
from quality_sets import BINARY, CLASSES, REGRESSION, Data
from threadpoolctl import threadpool_limits

from streamomd.core.errors import UnsupportedError

LEAST_ROWS, MOST_VALUES = 5000, 50_000_000
BETTER = 1.02
"""A booster whose loss times this is below ``auto``'s has a way to go."""


class Booster:
    """A boosted model of one thread, its number of trees by early stopping."""

    def fit(self, split: Split, passes: int) -> Fit:
        data, rows, test = split.data, split.train, split.test
        x = data.numeric
        if data.sparse.shape[1]:
            x = np.hstack([x, data.sparse.toarray()])
        y, task = data.y, data.task
        if task == BINARY:
            y = (y > 0).astype(int)
        elif task == CLASSES:
            y = y.astype(int)
        began = time.process_time()
        stop = np.arange(len(rows)) % 6 == 0
        model = self.fitted(task, data, x, y, rows[~stop], rows[stop], rows)
        seconds = time.process_time() - began
        if task == REGRESSION:
            return Fit(model.predict(x[test]), None, None, seconds)
        found = model.predict_proba(x[test])
        likely = np.zeros((len(test), max(data.classes, 2)))
        likely[:, model.classes_] = found
        if task == BINARY:
            return Fit(likely[:, 1] - 0.5, likely[:, 1], None, seconds)
        return Fit(likely, likely, None, seconds)

    def fitted(self, task: str, data: Data, x: Any, y: Any, fit: Any, stop: Any, every: Any) -> Any:
        """The model of all rows, with as many trees as were best on the rows ``stop``."""
        most = 500 if task == CLASSES else 2000
        try:
            import lightgbm
        except ModuleNotFoundError:
            from sklearn import ensemble

            name = "Regressor" if task == REGRESSION else "Classifier"
            made = getattr(ensemble, f"HistGradientBoosting{name}")(
                learning_rate=0.05, max_iter=most, early_stopping=True, n_iter_no_change=40,
                validation_fraction=1.0 / 6.0, random_state=0,
            )  # fmt: skip
            return made.fit(x[every], y[every])
        kind = lightgbm.LGBMRegressor if task == REGRESSION else lightgbm.LGBMClassifier
        given = {"learning_rate": 0.05, "n_jobs": 1, "verbose": -1, "random_state": 0}
        quiet = [lightgbm.early_stopping(40, verbose=False)]
        made = kind(n_estimators=most, **given)
        made.fit(x[fit], y[fit], eval_set=[(x[stop], y[stop])], callbacks=quiet)
        return kind(n_estimators=max(1, made.best_iteration_), **given).fit(x[every], y[every])


SHAPES = {
    "auto": learner("auto"), "curves": learner("auto-curves"), "pairs": learner("auto-pairs"),
    "all": learner("auto-trees"), "booster": Booster(),
}  # fmt: skip
LEVELS = "curves", "pairs", "all"


def compare(name: str, data: Data, found: dict[str, Any]) -> dict[str, Any] | None:
    """The figures of a set; None of one that does not count. found: what is known already."""
    train, _ = data.splits[0]
    wide = data.numeric.shape[1] + data.sparse.shape[1]
    if len(train) < LEAST_ROWS or not data.shuffled or len(train) * wide > MOST_VALUES:
        return None
    made = {"rows": len(train), "numeric": data.numeric.shape[1], **found}
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        split = Split(data, 0, Path(temporary))
        for kind, one in SHAPES.items():
            if kind not in made:
                try:
                    made[kind] = figures(split, one.fit(split, 1))
                except UnsupportedError as error:  # of more classes than trees are grown for
                    print(f"{name}: {error}; counted with curves", file=sys.stderr)
                    made[kind] = made["curves"]
    print(line(name, made), file=sys.stderr, flush=True)
    return made


def share(found: dict[str, Any], level: str) -> float:
    """Of the way from ``auto`` to the booster, by loss."""
    auto, booster = found["auto"]["loss"], found["booster"]["loss"]
    return (auto - found[level]["loss"]) / (auto - booster)


def line(name: str, found: dict[str, Any]) -> str:
    """A set's figures."""
    losses = {kind: found[kind]["loss"] for kind in SHAPES}
    ahead = losses["auto"] >= BETTER * losses["booster"]
    text = f"{name:18} {found['rows']:7,} {found['numeric']:5}"
    text += "".join(f" {loss:11.5g}" for loss in losses.values())
    for level in LEVELS:
        part = f"{share(found, level):6.2f}" if ahead else "     -"
        text += f" {100 * (losses[level] / losses['auto'] - 1):+8.2f} % {part}"
    return text


def summary(sets: dict[str, Any], level: str) -> dict[str, Any]:
    """Shares and the worst sets."""
    ahead = {n: f for n, f in sets.items() if f["auto"]["loss"] >= BETTER * f["booster"]["loss"]}
    shares = sorted(share(one, level) for one in ahead.values())
    rise = {n: f[level]["loss"] / f["auto"]["loss"] - 1.0 for n, f in sets.items()}
    worse = dict(sorted(rise.items(), key=lambda one: -one[1]))
    quarters = [float(np.quantile(shares, q)) for q in (0.25, 0.5, 0.75)] if shares else []
    times = [f[level]["seconds"] / f["auto"]["seconds"] for f in sets.values()]
    return {
        "sets": len(sets), "booster_ahead": len(ahead), "share_quartiles": quarters,
        "worse_by_1_percent": {n: rise for n, rise in worse.items() if rise > 0.01},
        "worst": max(rise.values(), default=0.0), "better": sum(r < 0.0 for r in rise.values()),
        "median_of_times": float(np.median(times)) if times else None,
    }  # fmt: skip


def print_shapes(sets: dict[str, Any]) -> dict[str, Any]:
    """The table and the summary of each level."""
    head = "".join(f" {kind:>11}" for kind in SHAPES)
    head += "".join(f" {level + ' - auto':>10} {'share':>6}" for level in LEVELS)
    print(f"{'set':18} {'rows':>7} {'num.':>5}{head}")
    for name, one in sets.items():
        print(line(name, one))
    found = {level: summary(sets, level) for level in LEVELS}
    for level, figures_of in found.items():
        for key, value in figures_of.items():
            print(f"{level} {key}: {value}")
    return found
