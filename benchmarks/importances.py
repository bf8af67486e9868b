"""What importances do to the rules on standardised inputs: a constant factor, and copies of rows.

Streams of 2,000 rows and 5 columns, y = <w, x> + noise of 1, and labels with <w, x> as log odds.
First table: all importances times a constant; the root mean square distance of the predictions from
the true mean (of the margins, for labels), the median over the streams. Second table: importances 1
to 3 against the row as often in sequence: the largest difference of two predictions, in standard
deviations of the predictions.

    python benchmarks/importances.py            # half a minute
    python benchmarks/importances.py --streams 40 --rows 5000
"""

from __future__ import annotations

import argparse

import numpy as np

import streamomd

FACTORS = (1e-6, 1.0 / 2000, 1.0, 10.0, 100.0, 1000.0, 1e6)
RULES = ("auto", "laplace", "adagrad_standardized")


def stream(seed: int, rows: int, *, labels: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, the true mean or margin)."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 5))
    f = X @ draw.normal(size=5)
    if labels:
        return X, (draw.random(rows) < 1.0 / (1.0 + np.exp(-f))).astype(int), f
    return X, f + draw.normal(size=rows), f


def predicted(
    rule: str, X: np.ndarray, y: np.ndarray, h: np.ndarray, test: np.ndarray
) -> np.ndarray:
    if y.dtype == int:
        made = streamomd.OMDClassifier(
            rule=rule, loss="logistic", shuffle=False, early_stopping=False
        )
        return made.fit(X, y, sample_weight=h).decision_function(test)
    return (
        streamomd.OMDRegressor(rule=rule, shuffle=False, early_stopping=False)
        .fit(X, y, sample_weight=h)
        .predict(test)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--rows", type=int, default=2000)
    given = parser.parse_args()
    for labels in (False, True):
        print("\nlabels, log loss" if labels else "numbers, square loss")
        print("factor".ljust(22) + "".join(f"{factor:>10.3g}" for factor in FACTORS))
        for rule in RULES:
            line = []
            for factor in FACTORS:
                misses = []
                for seed in range(given.streams):
                    X, y, f = stream(seed, given.rows, labels=labels)
                    found = predicted(rule, X, y, np.full(given.rows, factor), X)
                    misses.append(np.sqrt(np.mean((found - f) ** 2)))
                line.append(np.median(misses))
            print(rule.ljust(22) + "".join(f"{miss:>10.4f}" for miss in line))
        print("importance 1 to 3 against copies")
        for rule in RULES:
            gaps = []
            for seed in range(given.streams):
                X, y, _ = stream(seed, given.rows, labels=labels)
                h = np.random.default_rng(seed).integers(1, 4, given.rows)
                weighted = predicted(rule, X, y, h.astype(float), X)
                copied = predicted(
                    rule, np.repeat(X, h, axis=0), np.repeat(y, h), np.ones(h.sum()), X
                )
                gaps.append(np.abs(weighted - copied).max() / copied.std())
            print(f"{rule.ljust(22)}{np.median(gaps):>10.4f} median, {np.max(gaps):.4f} largest")


if __name__ == "__main__":
    main()
