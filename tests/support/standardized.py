"""Rows and runs of the learners on standardised inputs, for their tests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, SparseBatch
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.loops import rebase
from streamomd.engine.state import State
from streamomd.losses import find_loss
from streamomd.rules import find_rule

Floats = NDArray[np.float64]
LOSSES = {"square": 1, "logistic": 2, "softmax": 3}
"""Losses with a curvature to learn, and their classes."""
NO_SPARSE = np.zeros((0, 0))


@dataclass(frozen=True)
class Rows:
    """Dense columns (n, p), sparse values (n, d), labels and importances."""

    X: Floats
    S: Floats
    y: Floats
    h: Floats

    def __iter__(self) -> Iterator[Any]:
        for x, s, y, h in zip(self.X, self.S, self.y, self.h, strict=True):
            yield x, {int(i): float(s[i]) for i in np.flatnonzero(s)}, float(y), float(h)

    def some(self, at: Any) -> Rows:
        return Rows(self.X[at], self.S[at], self.y[at], self.h[at])

    def batch(self, *, dense: bool = False) -> Batch:
        """Columns first, then the sparse coordinates. CSR rows hold no zeros."""
        cells = np.ascontiguousarray(np.c_[self.X, self.S])
        if dense:
            return DenseBatch(cells, self.y.copy(), self.h.copy())
        row, column = np.nonzero(cells)
        ends = np.searchsorted(row, np.arange(len(cells) + 1)).astype(np.int64)
        values = np.ascontiguousarray(cells[row, column])
        return SparseBatch(ends, column.astype(np.int32), values, self.y.copy(), self.h.copy())


def sigmoid(u: Floats) -> Floats:
    """1 / (1 + exp(-u)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -u))


def labelled(f: Floats, loss: str, rng: np.random.Generator) -> Floats:
    """Noisy labels of scores f, (n, 3)."""
    if loss == "square":
        return 3.0 * f[:, 0] + rng.normal(size=len(f)) + 100.0
    if loss == "logistic":
        return np.where(rng.random(len(f)) < sigmoid(f[:, 0]), 1.0, -1.0)
    return np.argmax(f + rng.gumbel(size=f.shape), axis=1).astype(float)


def made(loss: str, n: int, p: int = 4, d: int = 6, seed: int = 0) -> Rows:
    """Columns with offsets and scales, the last one constant for 20 rows; noisy labels."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, p)) @ (np.eye(p) + 0.5 * rng.normal(size=(p, p)) / math.sqrt(p / 4))
    Z[:20, -1] = 0.0
    S = np.where(rng.random((n, d)) < 0.3, rng.choice([1.0, 2.0], (n, d)), 0.0)
    f = Z @ rng.normal(size=(p, 3)) + S @ rng.normal(size=(d, 3))
    X = Z * 10.0 ** rng.uniform(-2, 2, p) + 10.0 ** rng.uniform(-1, 2, p)
    return Rows(X, S, labelled(f, loss, rng), rng.choice([0.5, 1.0, 3.0], n))


class Run:
    """An engine of a rule with a block, with its state, sums and the margins so far."""

    def __init__(
        self,
        rule: str,
        loss: str,
        p: int,
        d: int,
        *,
        classes: int = 0,
        dtype: str = "float64",
        compiled: bool = False,
        **params: Any,
    ) -> None:
        found, target = find_rule(rule), find_loss(loss)
        given = found.parse_params(params)
        classes = classes or LOSSES.get(loss, 1 + target.classifies)
        storage: Any = found.storage
        most = max(1 + p, min(storage.most(given), 1 + p + d))
        learners = classes if classes > 2 or target.coupled else 1
        layout = Layout(found, 1 + p + d, learners, dtype, p, most)
        self.engine = Engine(layout, target, classes, True, given, compiled=compiled)
        self.state = State.start(layout)
        self.engine.begin(self.state)
        self.sums = np.zeros(3)

    def learn(self, rows: Rows | Batch, *, dense: bool = False) -> Floats:
        """Progressive margins, (rows, learners)."""
        batch = rows.batch(dense=dense) if isinstance(rows, Rows) else rows
        return self.engine.learn(self.state, self.sums, batch)

    def predict(self, rows: Rows, *, dense: bool = False) -> Floats:
        return self.engine.predict(self.state, np.zeros(3), rows.batch(dense=dense))

    def settle(self) -> None:
        """P is computed from A, as at the next of its rows: w takes the pool."""
        engine, state = self.engine, self.state
        *arrays, places, _ = engine._matrices(state)
        work = rebase.scratch(places, arrays[-1].shape[2])
        engine._rebase(math.inf)(
            state.cells, state.totals.reshape(-1), *arrays, places, engine.kind, *work
        )

    def weights(self) -> Floats:
        return self.engine.weights(self.state, 0, self.state.layout.size)

    def total(self, name: str) -> Floats:
        """Of each learner."""
        names = [slot.name for slot in self.state.layout.rule.total_slots]
        return self.state.totals[:, names.index(name)]

    @property
    def size(self) -> int:
        """Coordinates of the block in use."""
        places = self.state.extra["places"]
        return 1 + int(np.count_nonzero(places))

    def blocks(self, name: str) -> Floats:
        """A or P over the coordinates in use, whole matrices: (learners, size, size)."""
        stored = self.state.extra[name][:, : self.size]
        group = stored.shape[2]
        whole = np.zeros((len(stored), self.size, self.size))
        for low in range(0, self.size, group):
            high = min(low + group, self.size)
            whole[:, low:high, low:high] = stored[:, low:high, : high - low]
        return whole

    def bits(self) -> bytes:
        """Everything a run leaves."""
        state = self.state
        used = state.table[:, : state.layout.used]
        arrays = (used, state.totals, *state.extra.values(), self.sums)
        return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
