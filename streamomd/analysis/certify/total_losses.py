"""Total losses over rows: of a learner's own margins, or of fixed weights u."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis.comparator import Problem
from streamomd.core.batch import Batch, SparseBatch

Floats = NDArray[np.float64]


def targets(problem: Problem, y: Floats) -> Floats:
    """The target of each learner, (rows, learners): y, or in one-against-all ±1."""
    if problem.learners == 1:
        return y[:, None]
    number = y if problem.classes > 2 else (y > 0.0).astype(np.float64)
    own: Floats = np.where(number[:, None] == np.arange(problem.learners), 1.0, -1.0)
    return own


@dataclass
class TotalLosses:
    """Sums by learner, each row times its importance; a coupled loss has none of its own.

    loss (of one learner: left to the loops), square ((y - p)^2), mistakes (classification).
    hinges: by gamma, of [gamma - y p]_+. widest: the largest abs(p). steep: whether to compute
    ``steepest``, the largest importance times slope.
    """

    problem: Problem
    loss: Floats
    square: Floats
    mistakes: Floats
    widest: Floats
    hinges: dict[float, Floats]
    steep: bool = False
    steepest: float = 0.0

    @classmethod
    def none(
        cls, problem: Problem, gammas: tuple[float, ...] = (), *, steep: bool = False
    ) -> TotalLosses:
        """Sums of no rows."""
        loss, square, mistakes, widest, *hinges = np.zeros((4 + len(gammas), problem.learners))
        by_gamma = dict(zip(gammas, hinges, strict=True))
        return cls(problem, loss, square, mistakes, widest, by_gamma, steep=steep)

    def add(self, batch: Batch, margins: Floats) -> None:
        """Add rows with these margins, (rows, learners)."""
        y, h, p = targets(self.problem, batch.y), batch.weight[:, None], margins
        loss, numbers = self.problem.loss, self.problem.loss.numbers(self.problem.loss_params)
        if self.problem.learners > 1 and not loss.coupled:
            self.loss += (h * _each(loss.value, numbers)(p, y)).sum(axis=0)
        if self.steep:
            slopes = h * np.abs(_each(loss.slope, numbers)(p, y))
            self.steepest = max(self.steepest, float(slopes.max(initial=0.0)))
        self.square += (h * (y - p) ** 2).sum(axis=0)
        self.widest = np.maximum(self.widest, np.abs(p).max(axis=0, initial=0.0))
        self.mistakes += (h * np.where(y > 0.0, ~(p > 0.0), ~(p <= 0.0))).sum(axis=0)
        for gamma in self.hinges:
            self.hinges[gamma] += (h * np.maximum(gamma - y * p, 0.0)).sum(axis=0)


def _each(function: Callable[..., float], numbers: Any) -> Callable[[Floats, Floats], Floats]:
    return np.vectorize(lambda p, y: function(p, y, numbers), otypes=[np.float64])


@dataclass
class FixedWeights:
    """The losses of fixed weights u, (size, learners), over the rows of a problem.

    lower: if they were searched, a lower bound on the loss in the set, by learner.
    """

    problem: Problem
    u: Floats
    gammas: tuple[float, ...]
    lower: Floats | None = None
    total: float = field(init=False)
    costs: TotalLosses = field(init=False)

    def __post_init__(self) -> None:
        self.total, self.costs = self._walk(self.gammas)

    def hinge(self, learner: int) -> Callable[[float], float]:
        """``hinge(learner)(gamma)``: the sum of [gamma - y <u, x>]_+, by a pass if not cached."""

        def of(gamma: float) -> float:
            if gamma not in self.costs.hinges:
                self.costs.hinges |= self._walk((gamma,))[1].hinges
            return float(self.costs.hinges[gamma][learner])

        return of

    def longest(self) -> float:
        """The largest ||x||^2 of a row, the bias included, by a pass."""
        squares = [squared_lengths(batch).max(initial=0.0) for batch in self.problem.batches()]
        return float(max(squares, default=0.0)) + float(self.problem.bias)

    def losses_at(self, rows: Sequence[int]) -> Floats:
        """The loss of u over the first rows, for each of these ascending numbers; a pass."""
        sums, done, found, left = np.zeros(3), 0, [], list(rows)
        objective = self.problem.at(self.problem.loss, self.problem.loss_params)
        objective.state.slot("u")[...] = self.u
        for batch in self.problem.batches():
            low = 0
            while low < len(batch) and left:
                high = min(len(batch), low + left[0] - done)
                objective.engine.predict(objective.state, sums, batch.rows(low, high))
                done, low = done + high - low, high
                if done == left[0]:
                    found.append(float(sums[1]))
                    del left[0]
        return np.array(found, dtype=np.float64)

    def _walk(self, gammas: tuple[float, ...]) -> tuple[float, TotalLosses]:
        sums, costs = np.zeros(3), TotalLosses.none(self.problem, gammas)
        for batch, margins in self._margins(sums):
            costs.add(batch, margins)
        return float(sums[1]), costs

    def _margins(self, sums: Floats) -> Iterator[tuple[Batch, Floats]]:
        """Each batch with the predictions of u; its loss is added to ``sums``."""
        objective = self.problem.at(self.problem.loss, self.problem.loss_params)
        objective.state.slot("u")[...] = self.u
        for batch in self.problem.batches():
            yield batch, objective.engine.predict(objective.state, sums, batch)


def squared_lengths(batch: Batch) -> Floats:
    """||x||^2 of each row, without a bias."""
    if not isinstance(batch, SparseBatch):
        dense = np.asarray(batch.values, dtype=np.float64)
        return np.asarray((dense * dense).sum(axis=1))
    values = np.asarray(batch.values, dtype=np.float64)
    rows = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
    some = values[batch.indptr[0] : batch.indptr[-1]]
    return np.asarray(np.bincount(rows, weights=some * some, minlength=len(batch)), np.float64)
