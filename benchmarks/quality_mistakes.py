"""Rows that a learner of quality.py gets wrong: is it the learner, the linear model, the features?

Of the misclassified held-out rows (in regression: off by more than two RMSE of the baseline), the
share that the baseline gets wrong, too, and the share on which the nearest training rows are wrong,
too; then a few of them, drawn at random, with the features that weigh most in the baseline.

- The baseline is right: the learner is the limit.
- Both are wrong and the nearest rows are right: the linear model is the limit.
- The nearest rows are wrong, too: rows that look alike have other labels; features are the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from quality_learners import Fit, Split, class_numbers
from quality_sets import BINARY, REGRESSION

SHOWN = 5
LOOKED_AT = 500
"""Mistakes, at most, whose nearest rows are searched."""
NEAREST = 20
FEATURES = 10


def guesses(fit: Fit, task: str) -> np.ndarray:
    """Class numbers, or the predicted numbers."""
    if task == REGRESSION:
        return fit.score
    return (fit.score > 0).astype(int) if fit.score.ndim == 1 else fit.score.argmax(axis=1)


def wrong(guess: np.ndarray, truth: np.ndarray, task: str, far: float) -> np.ndarray:
    """far: in regression, the residual above which a prediction counts as a mistake."""
    return np.abs(guess - truth) > far if task == REGRESSION else guess != truth


def nearest(split: Split, rows: np.ndarray) -> np.ndarray:
    """The labels of the training rows nearest to these test rows in standardised units: the mean,
    or the most common class."""
    x, test = map(sp.csr_matrix, split.standardised)
    y, task = split.y(split.train), split.data.task
    squares = np.asarray(x.multiply(x).sum(axis=1)).ravel()
    found = []
    for row in rows:
        distances = squares - 2.0 * (x @ test[int(row)].T).toarray().ravel()
        near = y[np.argpartition(distances, min(NEAREST, len(y) - 1))[:NEAREST]]
        classes = class_numbers(near, task)
        found.append(near.mean() if task == REGRESSION else np.bincount(classes).argmax())
    return np.array(found)


def weighed(split: Split, model: Any, row: int, truth: float, guess: float) -> str:
    """The features of a test row with the largest effect on the baseline's score: in regression
    on the number, else towards the guess and against the true class."""
    coef = np.atleast_2d(model.coef_)
    if split.data.task == REGRESSION:
        w = coef[0]
    elif split.data.task == BINARY:
        w = coef[0] * (1.0 if guess > truth else -1.0)
    else:
        at = {int(name): place for place, name in enumerate(model.classes_)}
        of = [coef[at[k]] if k in at else 0.0 * coef[0] for k in (int(guess), int(truth))]
        w = of[0] - of[1]
    z = sp.csr_matrix(split.standardised[1][row])
    effects = z.data * w[z.indices]
    data, test = split.data, int(split.test[row])
    raw = np.r_[data.numeric[test], data.sparse[test].toarray().ravel()]
    names = data.names or [f"x{j}" for j in range(len(raw))]
    most = np.argsort(-np.abs(effects))[:FEATURES]
    return ", ".join(f"{names[j]} = {raw[j]:.4g} ({effect:+.2f})"
                     for j, effect in zip(z.indices[most], effects[most], strict=True))  # fmt: skip


def sure(fit: Fit, row: int, truth: float) -> str:
    """The probability of the true class; of learners without probabilities, the largest score."""
    if fit.probability is None:
        return f"{np.max(fit.score[row]):.4g}"
    p = fit.probability[row]
    return f"P(label) {float((p if truth else 1.0 - p) if np.ndim(p) == 0 else p[int(truth)]):.3f}"


def print_mistakes(name: str, rule: str, split: Split, found: Fit, base: Fit, model: Any) -> None:
    """Of one learner on the first split."""
    task, y = split.data.task, split.y(split.test)
    truth = y if task == REGRESSION else class_numbers(y, task)
    far = 2.0 * float(np.mean((base.score - y) ** 2)) ** 0.5 if task == REGRESSION else 0.0
    guess = guesses(found, task)
    mistakes = np.flatnonzero(wrong(guess, truth, task, far))
    missed = wrong(guesses(base, task), truth, task, far)
    order = np.random.default_rng(0).permutation(mistakes)[:LOOKED_AT]
    print(f"\n{name}, {rule}: {len(mistakes):,} of {len(y):,} wrong, baseline {missed.sum():,}")
    if not len(order):
        return
    near = nearest(split, order)
    alike = wrong(near, truth[order], task, far)
    both = missed[order]
    limits = {
        "learner (baseline right)": ~both,
        "linear model (nearest rows right)": both & ~alike,
        "features (nearest rows wrong)": both & alike,
    }
    parts = [f"{text} {share.mean():.0%}" for text, share in limits.items()]
    print(f"  limit: {' · '.join(parts)}")
    for row, neighbours in list(zip(order, near, strict=True))[:SHOWN]:
        print(
            f"  row {split.test[row]}: label {truth[row]:.4g}, guess {guess[row]:.4g}, nearest "
            f"{neighbours:.4g}; {rule} {sure(found, row, truth[row])}, "
            f"baseline {sure(base, row, truth[row])}"
        )
        print(f"    {weighed(split, model, int(row), truth[row], guess[row])}")
