"""Streams of rows to try rules on: seven kinds, each drawn from a generator that is given."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
KINDS = ("dense", "sparse", "scales", "zeros", "repeats", "unseen", "weights")
TARGETS = ("binary", "classes", "real")


class Stream(NamedTuple):
    """Rows to learn from.

    X: (n, d), 0 where absent. y: (n,), in the form ``run`` takes. h: (n,), importance.
    stored: bool (n, d), the entries a sparse file holds; they include explicit zeros in "zeros".
    classes: 2, also in regression, or the number of classes.
    """

    X: Floats
    y: Floats
    h: Floats
    stored: NDArray[np.bool_]
    classes: int


def make(rng: np.random.Generator, kind: str, target: str = "binary") -> Stream:
    """A random stream of a kind: 60 to 200 rows, 5 to 40 features, a linear truth plus noise.

    Rows have a norm near 1 (before "scales" multiplies the features), so that ordinary step sizes
    do not diverge; with "scales", "ogd", "da", "perceptron" and "pa1" see the large features only.
    """
    if kind not in KINDS or target not in TARGETS:
        raise ValueError(f"expected {KINDS} and {TARGETS}, got {kind!r} and {target!r}")
    n, d = int(rng.integers(60, 201)), int(rng.integers(5, 41))
    present = presence(rng, kind, n, d)
    Z = rng.standard_normal((n, d)) / math.sqrt(max(1.0, present.sum() / n))
    Z[~present] = 0.0
    if kind == "repeats":
        Z = repeated(rng, Z)
    y, classes = labels(rng, Z, target)
    h = importances(rng, n) if kind == "weights" else np.ones(n)
    X = Z * 10.0 ** rng.uniform(-12.0, 12.0, d) if kind == "scales" else Z
    stored = X != 0.0
    if kind == "zeros":
        stored |= rng.random((n, d)) < 0.2
    return Stream(X, y, h, stored, classes)


def presence(rng: np.random.Generator, kind: str, n: int, d: int) -> NDArray[np.bool_]:
    """Which features each row has."""
    dense = kind == "dense" or (kind in ("scales", "repeats", "weights") and rng.random() < 0.5)
    present = np.ones((n, d), dtype=bool) if dense else rng.random((n, d)) < rng.uniform(0.1, 0.5)
    if kind == "zeros":
        present[rng.random(n) < 0.2] = False
        present[[int(rng.integers(3, n)), *range(int(rng.integers(0, 3)))]] = False
    if kind == "unseen":
        never, *late = rng.permutation(d)[: 2 + d // 5]
        present[:, never] = False
        for i in late:
            present[: int(rng.integers(n // 2, n - 1)), i] = False
        present[-1, late] = True
    return present


def repeated(rng: np.random.Generator, Z: Floats) -> Floats:
    """The first rows over and over: some twice running, others far apart."""
    order = rng.integers(0, len(Z) // 6, len(Z))
    again = np.flatnonzero(rng.random(len(Z) - 1) < 0.3)
    order[again + 1] = order[again]
    return Z[order]


def importances(rng: np.random.Generator, n: int) -> Floats:
    """Mostly near 1; some 0, the first among them; a few large, one of them 100."""
    h = rng.gamma(2.0, 0.5, n)
    none, *large = rng.permutation(np.arange(1, n))[: n // 20 + 2]
    h[large] = rng.uniform(10.0, 100.0, len(large))
    h[rng.random(n) < 0.15] = 0.0
    h[[0, none]], h[large[0]] = 0.0, 100.0
    return h


def labels(rng: np.random.Generator, Z: Floats, target: str) -> tuple[Floats, int]:
    """What a planted linear truth says of the rows, with noise; and the number of classes."""
    n, d = Z.shape
    if target == "classes":
        classes = 3
        scores = Z @ rng.standard_normal((d, classes)) + 0.3 * rng.standard_normal((n, classes))
        return np.argmax(scores, axis=1).astype(np.float64), classes
    scores = Z @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    return (scores if target == "real" else np.where(scores > 0.0, 1.0, -1.0)), 2
