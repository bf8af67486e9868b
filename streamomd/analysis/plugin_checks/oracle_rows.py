"""An oracle beside the engine: one function that walks the rows as the paper prints the algorithm.

``oracle(d, rows, **params)`` walks ``rows`` in order. For each it forms the weights of the round, a
dense vector, and asks ``row.slope(w)``, which predicts <w, x> and gives the derivative of the loss
there, times the row's importance. It may return its final slots, arrays by name, or None::

    def ogd(d, rows, eta, **_):
        w = np.zeros(d)
        for row in rows:
            w = w - eta / math.sqrt(row.t) * row.slope(w) * row.x
        return {"w": w}

A margin is a sum in another order than the engine's, so an oracle is run again, a second
and third time with margins moved by 1e-11 of their terms. Rows from the first on whose margin this
moves ten thousand times as far are not compared: a kink is near, or the run diverges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.plugin_checks.learner import learners_of
from streamomd.losses import Loss

Floats = NDArray[np.float64]
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
        """As ``slope`` where the prediction is no <w, x>. scale: the size of what was summed."""
        self.margin, self.loss, slope = self._judge(self.t - 1, margin, scale)
        return self.importance * float(slope)


class Trace(NamedTuple):
    """margins, scale: (rows, learners). slots: final ones by name, (d,) of each learner.

    error: what ended it early, as an overflow does.
    """

    margins: Floats
    scale: Floats
    slots: list[Mapping[str, Any]]
    error: Exception | None


def run_oracle(
    oracle: Oracle,
    rows: Rows,
    loss: Loss,
    params: Mapping[str, Any],
    classes: int = 2,
    nudge: float = 0.0,
) -> Trace:
    """Run it over the rows, once for each learner. Rows after an overflow are left out."""
    count, n = learners_of(loss, classes), len(rows.y)
    margins, scale, slots = np.full((2, n, count), math.nan), [], []
    signs = np.random.default_rng(n).choice([-1.0, 1.0], (n, count))
    errors: list[Exception] = []
    known: list[Any] = []  # of a coupled loss: each row's loss, and its slope for each learner
    told = loss.numbers({})

    def one(k: int, end: int) -> Mapping[str, Any]:
        def judge(at: int, margin: float, size: float) -> tuple[float, float, float]:
            margins[0, at, k], margins[1, at, k] = margin, size
            moved = margin + nudge * size * signs[at, k]
            if loss.coupled:
                if at >= len(known):
                    raise _Stop
                return moved, rows.h[at] * known[at][0], known[at][1][k]
            value, slope = (f(moved, target(at, k), told) for f in (loss.value, loss.slope))
            return moved, float(rows.h[at]) * value, slope

        try:
            return oracle(rows.X.shape[1], _walk(rows, end, k, target, judge), **params) or {}
        except _Stop:
            return {}
        except (ArithmeticError, ValueError) as error:  # diverged: infinite sums, too large powers
            errors.append(error)
            return {}

    def target(at: int, k: int) -> float:
        return float(rows.y[at]) if count == 1 else 1.0 if rows.y[at] == k else -1.0

    with np.errstate(all="ignore"):  # 0/0 of an oracle's where=… is its affair
        if loss.coupled:
            for at in range(n):  # a row's slopes need all learners' margins: run again to each row
                for k in range(count):
                    one(k, at + 1)
                slopes = np.zeros(count)
                moved = margins[0] + nudge * margins[1] * signs
                label = rows.y[at] if classes > 2 else float(rows.y[at] > 0.0)
                known.append((loss.couple(moved, at, int(label), slopes), slopes))  # type: ignore[misc]
        slots = [one(k, n) for k in range(count)]
        scale = margins[1]
    return Trace(margins[0], scale, slots, errors[0] if errors else None)


def _walk(rows: Rows, end: int, k: int, target: Any, judge: Any) -> Iterator[OracleRow]:
    for at in range(end):
        yield OracleRow(at + 1, rows.X[at].copy(), target(at, k), float(rows.h[at]), judge)


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
    far = ~(np.abs(first.margins - nudged.margins) <= MOST_AMPLIFIED * NUDGE * unit)
    unsteady = np.flatnonzero(np.any(far | ~np.isfinite(unit), axis=1))
    return int(unsteady[0]) if len(unsteady) else len(far)


def _same_slots(first: Trace, nudged: Trace) -> bool:
    for slots, others in zip(first.slots, nudged.slots, strict=True):
        for name, slot in slots.items():
            top = float(np.abs(slot).max(initial=0.0))
            if not np.allclose(slot, others[name], rtol=0.0, atol=MOST_AMPLIFIED * NUDGE * top):
                return False
    return True
