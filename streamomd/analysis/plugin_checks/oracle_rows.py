"""Oracles: a function that walks rows as the paper prints the algorithm, to compare with.

``oracle(d, rows, **params)`` walks ``rows`` in order. For each it forms the weights of the round, a
dense vector, and calls ``row.slope(w)``, which predicts <w, x> and gives the derivative of the loss
there, times the row's importance. It may return its final slots, arrays by name, or None::

    def ogd(d, rows, eta, **_):
        w = np.zeros(d)
        for row in rows:
            w = w - eta / math.sqrt(row.t) * row.slope(w) * row.x
        return {"w": w}

A margin is a sum in another order than the engine's. An oracle therefore runs three times, twice
with margins moved by 1e-11 of their terms. Rows from the first on whose margin this moves ten
thousand times as much are not compared: a kink is near, or the run diverges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.plugin_checks.learner import learners_of
from streamomd.core.batch import Floats
from streamomd.losses import Loss

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


Oracle = Callable[..., Mapping[str, Any] | None]
NUDGE = 1e-11
MOST_AMPLIFIED = 1e4


class _Stop(BaseException):
    """No row is known beyond this one. An oracle's own handlers of exceptions do not catch it."""


class Rows(NamedTuple):
    """X: (n, d), 0 where absent. y: (n,), the class's number with several learners. h: (n,)."""

    X: Floats
    y: Floats
    h: Floats

    def first(self, count: int) -> Rows:
        """The first rows."""
        return Rows(self.X[:count], self.y[:count], self.h[:count])


class OracleRow:
    """A row as an oracle meets it.

    t: from 1. x: (d,). y: −1 or +1, or the number to predict. importance: h. Once ``slope`` was
    asked: margin, the prediction; loss, h times its loss.
    """

    def __init__(self, t: int, x: Floats, y: float, importance: float, judge: Any) -> None:
        self.t, self.x, self.y, self.importance = t, x, y, importance
        self.margin = self.loss = math.nan
        self._judge = judge

    def slope(self, w: Floats) -> float:
        """Predict <w, x>; the derivative by it of importance * loss."""
        terms = w * self.x
        return self.slope_at(math.fsum(terms), math.fsum(np.abs(terms)))

    def slope_at(self, margin: float, scale: float) -> float:
        """Predicts a margin that is no <w, x>; returns the slope there, times the row's importance.

        scale: the size of what was summed.
        """
        self.margin, self.loss, slope = self._judge(self.t - 1, margin, scale)
        return self.importance * float(slope)


class Trace(NamedTuple):
    """margins, scale: (rows, learners). slots: final ones by name, (d,) of each learner.

    error: what ended it early, as an overflow does.
    """

    margins: Floats
    scale: Floats
    slots: Sequence[Mapping[str, Any]]
    error: Exception | None


def run_oracle(
    oracle: Oracle,
    rows: Rows,
    loss: Loss,
    params: Mapping[str, Any],
    classes: int = 2,
    nudge: float = 0.0,
) -> Trace:
    """Run it over the rows, once for each learner. Rows after an overflow are not predicted."""
    run = _Run(rows, loss, classes, nudge)
    with np.errstate(all="ignore"):  # oracles divide by 0 and then choose with numpy.where
        if loss.coupled:
            for row in range(len(rows.y)):  # a row's slopes need all learners' margins
                for k in range(run.count):
                    run.walk(oracle, params, k, row + 1)
                run.couple(row)
        slots = [run.walk(oracle, params, k, len(rows.y)) for k in range(run.count)]
    return Trace(run.margins, run.scale, slots, run.error)


class _Run:
    """Margins of all learners, filled in as each learner's oracle calls for its slopes."""

    def __init__(self, rows: Rows, loss: Loss, classes: int, nudge: float) -> None:
        self.rows, self.loss, self.classes, self.nudge = rows, loss, classes, nudge
        self.count = learners_of(loss, classes)
        self.margins, self.scale = np.full((2, len(rows.y), self.count), math.nan)
        signs = np.random.default_rng(len(rows.y)).choice([-1.0, 1.0], self.margins.shape)
        self.nudges = nudge * signs
        self.coupled: list[tuple[float, Floats]] = []  # each row's loss, a slope for each learner
        self.loss_params = loss.numbers({})
        self.error: Exception | None = None

    def walk(self, oracle: Oracle, params: Mapping[str, Any], k: int, end: int) -> dict[str, Any]:
        """Learner k over the first rows; its slots."""
        rows = self.rows
        given = (
            OracleRow(
                row + 1, rows.X[row].copy(), self.target(row, k), float(rows.h[row]),
                partial(self.judge, k),
            )
            for row in range(end)
        )  # fmt: skip
        try:
            return dict(oracle(rows.X.shape[1], given, **params) or {})
        except _Stop:
            return {}
        except (ArithmeticError, ValueError) as error:  # diverged: infinite sums, too large powers
            self.error = error
            return {}

    def target(self, at: int, k: int) -> float:
        """The row's target for learner k."""
        y = float(self.rows.y[at])
        return y if self.count == 1 else 1.0 if y == k else -1.0

    def judge(self, k: int, at: int, margin: float, size: float) -> tuple[float, float, float]:
        """The margin, moved by the nudge; the loss times the importance; and the slope."""
        self.margins[at, k], self.scale[at, k] = margin, size
        moved, h = margin + size * self.nudges[at, k], float(self.rows.h[at])
        if self.loss.coupled:
            if at >= len(self.coupled):
                raise _Stop
            value, slopes = self.coupled[at]
            return moved, h * value, slopes[k]
        y, p = self.target(at, k), self.loss_params
        return moved, h * self.loss.value(moved, y, p), self.loss.slope(moved, y, p)

    def couple(self, at: int) -> None:
        """The loss of a row that all learners have predicted, and its slopes."""
        assert self.loss.couple is not None
        slopes, moved = np.zeros(self.count), self.margins + self.scale * self.nudges
        y = self.rows.y[at] if self.classes > 2 else self.rows.y[at] > 0.0
        self.coupled.append((self.loss.couple(moved, at, int(y), slopes), slopes))


def steady_part(
    traced: Callable[[Rows, float], Trace], rows: Rows, first: Trace
) -> tuple[Rows, Trace]:
    """The rows before a small change of a margin grows beyond all measure, and their trace.

    traced: the oracle's run over some rows, with margins moved by this share of their terms.
    """
    moved = [traced(rows, nudge) for nudge in (NUDGE, -NUDGE)]
    count = min(_steady_rows(first, other) for other in moved)
    part, trace = rows, first
    while count < len(part.y) or any(not _same_slots(trace, other) for other in moved):
        if count == len(part.y):
            count -= 1 + count // 8
        if count < 1:
            return rows.first(0), first
        part = rows.first(count)
        trace, *moved = [traced(part, nudge) for nudge in (0.0, NUDGE, -NUDGE)]
    return part, trace


def _steady_rows(first: Trace, nudged: Trace) -> int:
    unit = np.maximum.accumulate(np.nan_to_num(first.scale, nan=np.inf), axis=0)
    amplified = ~(np.abs(first.margins - nudged.margins) <= MOST_AMPLIFIED * NUDGE * unit)
    unsteady = np.flatnonzero(np.any(amplified | ~np.isfinite(unit), axis=1))
    return int(unsteady[0]) if len(unsteady) else len(amplified)


def _same_slots(first: Trace, nudged: Trace) -> bool:
    for slots, others in zip(first.slots, nudged.slots, strict=True):
        for name, slot in slots.items():
            top = float(np.abs(slot).max(initial=0.0))
            if not np.allclose(slot, others[name], rtol=0.0, atol=MOST_AMPLIFIED * NUDGE * top):
                return False
    return True
