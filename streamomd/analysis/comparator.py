"""The best fixed weights u for a loss, found offline: the comparator of regret.

Out of core: a pass over the rows computes the loss of u and its gradient, summed with importance
weights, by the same compiled loops that learn. Without a constraint L-BFGS finds u; in a rule's
set, projected quasi-Newton. A loss with kinks is smoothed (``losses.contract``), in decreasing
steps.

Regret against a u that is not exactly the best is too small. ``Best.gap`` bounds by how much: for a
convex loss l and slopes a of it at margins q, every v in the set K has

    sum h l(<v, x>) >= sum h (l(q) + a (<v, x> - q)) >= sum h (l(q) - a q) + min over K <G, v>,

G = sum h a x. q are the margins p of u, or, with a smoothed loss, the feet of its envelope at p:
then the first sum is the smoothed loss plus s a^2 / 2, less a p. Without a constraint K is the ball
of weights at most twice as long as u, in the lengths of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamomd.analysis import quasi_newton
from streamomd.core.batch import Batch, Floats
from streamomd.engine import Engine
from streamomd.engine.layout import Layout
from streamomd.engine.state import State
from streamomd.losses import Loss
from streamomd.losses.contract import smoothed
from streamomd.rules.common.sets import L2, ComparatorSet, Free
from streamomd.rules.contract import Observe, Row, Rule, Slots, Sum

Batches = Callable[[], Iterable[Batch]]
CACHE_BYTES = 64 << 20
"""Yields the rows from the first one on each call."""

SMOOTHINGS = (1.0, 0.1, 0.01, 0.001, 0.0001)  # in units of what predicting 0 costs a row
PASSES = 200  # over the rows, at most, for each smoothing
MEMORY_BYTES = 1 << 28  # of the L-BFGS history
HUGE = 1e300
NEAR = 1e-7  # a gap of this share of the loss is small enough


class Own(NamedTuple):
    """Per learner and coordinate: the current u, and the derivative of the loss."""

    u: Sum = 0.0
    gradient: Sum = 0.0


class Shared(NamedTuple):
    """Per coordinate: the sum of x^2."""

    square: Sum = 0.0


class Totals(NamedTuple):
    """Per learner: the sums of the loss and of its slope squared."""

    loss: Sum = 0.0
    slopes: Sum = 0.0


class Move(NamedTuple):
    """Per row and learner: the loss's slope."""

    g: float


def _weight(own: Own, shared: Shared, totals: object, clock: float, h: object) -> float:
    return own.u


def _observe(shared: Shared, x: float, clock: float, h: object) -> tuple[Shared, tuple[()]]:
    return Shared(shared.square + x * x), ()


def _step(row: Row, totals: Totals, clock: float, h: object) -> tuple[bool, Move, Totals]:
    g = row.importance * row.slope
    loss = totals.loss + row.importance * row.loss
    return g != 0.0, Move(g), Totals(loss, totals.slopes + g * row.slope)


def _update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: object) -> Own:
    return Own(own.u, own.gradient + move.g * x)


GRADIENT = Rule(
    name="gradient",
    title="learns nothing: sums the loss and its gradient at u",
    source="",
    state=Slots(own=Own, shared=Shared, totals=Totals, move=Move),
    observe=Observe(_observe),
    weight=_weight,
    step=_step,
    update=_update,
)


def cache_batches(batches: Batches, most: int = CACHE_BYTES) -> Batches:
    """The same batches; decoded only once if all together need at most ``most`` bytes."""
    held: list[Batch] | None = None

    def again() -> Iterator[Batch]:
        nonlocal held
        if held is not None:
            yield from held
            return
        some, nbytes = [], 0
        for batch in batches():
            nbytes += batch.nbytes
            if nbytes <= most:
                some.append(batch)
            else:
                some.clear()
            yield batch
        held = some if nbytes <= most else None

    return again


@dataclass(frozen=True)
class Problem:
    """Rows and the loss to minimize over them.

    size: coordinates, the bias included. classes: 1 in regression. learners: weight vectors.
    """

    batches: Batches
    loss: Loss
    loss_params: dict[str, Any]
    size: int
    classes: int
    learners: int
    bias: bool
    engine: Callable[..., Engine] = Engine

    def at(self, loss: Loss, loss_params: dict[str, Any]) -> Objective:
        """The sum of a loss over the rows."""
        layout = Layout(GRADIENT, self.size, self.learners, "float64")
        engine = self.engine(layout, loss, self.classes, self.bias, {}, loss_params)
        return Objective(self, engine, State.start(layout))


class Sums(NamedTuple):
    """The result of a pass: the loss of all learners, its gradient, (size, learners); by learner,
    the loss and the sum of its slope squared, (learners,); the summed importance."""

    loss: float
    gradient: Floats
    each: Floats
    slopes: Floats
    importance: float


@dataclass
class Objective:
    """u, (size, learners) -> ``Sums``. ``passes``: number of calls."""

    problem: Problem
    engine: Engine
    state: State
    passes: int = field(default=0, init=False)

    def __call__(self, u: Floats) -> Sums:
        """A pass over the rows."""
        state, sums = self.state, np.zeros(3)
        state.slot("u")[...], state.slot("gradient")[...] = u, 0.0
        state.slot("square")[...], state.totals[...], state.clock = 0.0, 0.0, 0
        for batch in self.problem.batches():
            self.engine.learn(state, sums, batch)
        self.passes += 1
        gradient = np.array(state.slot("gradient"), dtype=np.float64)
        each, slopes = np.array(state.totals[:, :2], dtype=np.float64).T
        return Sums(float(sums[1]), gradient, each, slopes, float(sums[0]))

    @property
    def lengths(self) -> Floats:
        """The root of each coordinate's sum of squares, (size,), known after a call."""
        return np.sqrt(np.asarray(self.state.slot("square"), dtype=np.float64))


@dataclass
class Best:
    """The best measured u, and a lower bound on the loss in the sets, by learner.

    lower: (learners,), or (1,) of a coupled loss.
    """

    u: Floats
    loss: float
    lower: Floats

    def offer(self, u: Floats, loss: float) -> None:
        """Replace the best u if this one is better."""
        if loss < self.loss:
            self.u, self.loss = u.copy(), loss

    def raise_to(self, lower: Floats) -> None:
        """Add another lower bound."""
        self.lower = np.fmax(self.lower, lower)

    @property
    def gap(self) -> float:
        """The most by which the loss may exceed the minimum."""
        return max(self.loss - float(self.lower.sum()), 0.0)


def best(
    problem: Problem, sets: Sequence[ComparatorSet] | None = None, *, passes: int = PASSES
) -> Best:
    """The best fixed u, (size, learners), each column in its set; not worse than u = 0."""
    sets = [Free()] * problem.learners if sets is None else sets
    plain = problem.at(problem.loss, problem.loss_params)
    start = np.stack([constraint.nearest(np.zeros(problem.size)) for constraint in sets], axis=1)
    first = plain(start)
    lowest = Best(start, first.loss, np.full(1 if problem.loss.coupled else len(sets), -math.inf))
    descend = Descent(sets, plain.lengths, lowest, passes)
    if not np.any(descend.lengths > 0.0):  # no u changes a prediction
        lowest.raise_to(np.full(1, first.loss) if problem.loss.coupled else first.each)
        return lowest
    nearly, smoothing, u = plain, 0.0, lowest.u
    if problem.loss.kinked:
        smooth, unit = smoothed(problem.loss), scale(first)
        for amount in SMOOTHINGS:
            smoothing = amount * unit
            nearly = problem.at(smooth, {**problem.loss_params, "smoothing": smoothing})
            u = descend(nearly, lowest.u, smoothing)
            lowest.offer(u, plain(u).loss)
    if not (descend.constrained and nearly is not plain):
        last = descend(plain, lowest.u, 0.0, measured=True)
        u = last if nearly is plain else u
    if not all(constraint.bounded for constraint in sets):
        descend.bound(nearly, u, smoothing)
    return lowest


def scale(first: Sums) -> float:
    """The mean loss of predicting 0: the unit of smoothing for a loss with kinks."""
    mean = first.loss / first.importance if first.importance > 0.0 else 1.0
    return mean if math.isfinite(mean) and mean > 0.0 else 1.0


@dataclass
class Descent:
    """Minimizes over the sets; results and bounds go to ``found``.

    Coordinates are measured in units of their ``lengths``, which removes the features' scales.
    Those of length 0 were never seen: without a constraint they stay unchanged.
    """

    sets: Sequence[ComparatorSet]
    lengths: Floats
    found: Best
    passes: int

    @property
    def constrained(self) -> bool:
        """Whether any column is."""
        return not all(isinstance(one, Free) for one in self.sets)

    def __call__(
        self, objective: Objective, start: Floats, smoothing: float, *, measured: bool = False
    ) -> Floats:
        """u that minimizes the objective. measured: the objective is the loss itself."""
        minimum = self._quasi_newton if self.constrained else self._lbfgs
        return minimum(objective, start, smoothing, measured)

    def bound(self, objective: Objective, u: Floats, smoothing: float) -> None:
        """The sets of the lower bound without a constraint: weights at most twice as long as u."""
        longest = max(2.0 * float(np.linalg.norm(self.lengths[:, None] * u)), 1.0)
        sums = objective(u)
        longest = max(longest, math.sqrt(sums.importance))
        sets = [one if one.bounded else L2(self.lengths, longest) for one in self.sets]
        self._raise(sums, u, smoothing, sets)

    def _raise(
        self, sums: Sums, u: Floats, smoothing: float, sets: Sequence[ComparatorSet]
    ) -> Floats:
        """Lower bounds by learner, from a pass."""
        columns = zip(sets, sums.gradient.T, u.T, strict=True)
        gaps = np.array([float(g @ v) - one.least(g) for one, g, v in columns])
        if len(self.found.lower) < len(gaps):
            lower = np.array([sums.loss - float(gaps.sum())])
        else:
            lower = sums.each + 0.5 * smoothing * sums.slopes - gaps
        self.found.raise_to(lower)
        return lower

    def _quasi_newton(
        self, objective: Objective, start: Floats, smoothing: float, measured: bool
    ) -> Floats:
        """Minimizes an objective over the constraints from ``start``; returns the weights of the
        last step."""
        seen = self.lengths > 0.0
        unit = np.where(seen, 1.0 / np.where(seen, self.lengths, 1.0), 0.0)
        unit[~seen] = np.median(unit[seen])
        scaled = [constraint.scaled(unit) for constraint in self.sets]
        gaps: list[float] = []

        def value(z: Floats) -> tuple[float, Floats]:
            u = z.reshape(start.shape) * unit[:, None]
            with np.errstate(over="ignore", invalid="ignore"):
                sums = objective(u)
                finite = math.isfinite(sums.loss) and bool(np.isfinite(sums.gradient).all())
                if not finite:
                    return math.inf, np.zeros_like(z)
                own = sums.loss + 0.5 * smoothing * float(sums.slopes.sum())
                lower = self._raise(sums, u, smoothing, self.sets)
                gaps.append((own - float(lower.sum())) / max(abs(own), 1e-300))
            if measured:
                self.found.offer(u, sums.loss)
            return sums.loss, (sums.gradient * unit[:, None]).reshape(-1)

        def nearest(z: Floats) -> Floats:
            columns = z.reshape(start.shape).T
            some = [
                constraint.nearest(column)
                for constraint, column in zip(scaled, columns, strict=True)
            ]
            return np.stack(some, axis=1).reshape(-1)

        z = quasi_newton.minimize(
            value,
            nearest,
            (start / unit[:, None]).reshape(-1),
            passes=self.passes,
            enough=lambda: bool(gaps) and gaps[-1] < NEAR,
        )
        return z.reshape(start.shape) * unit[:, None]

    def _lbfgs(
        self, objective: Objective, start: Floats, smoothing: float, measured: bool
    ) -> Floats:
        """Minimizes an objective without constraints from ``start``; returns the best weights that
        it met."""
        seen = np.flatnonzero(self.lengths > 0.0)
        unit = 1.0 / self.lengths[seen, None]
        own = Best(start, math.inf, np.zeros(1))

        def value(z: Floats) -> tuple[float, Floats]:
            u = start.copy()
            with np.errstate(over="ignore", invalid="ignore"):
                u[seen] = z.reshape(len(seen), -1) * unit
                sums = objective(u)
                slope = (sums.gradient[seen] * unit).reshape(-1)
            if not (math.isfinite(sums.loss) and np.isfinite(slope).all()):
                return HUGE, np.zeros_like(slope)
            own.offer(u, sums.loss)
            return sums.loss, slope

        from scipy.optimize import minimize  # late: a fifth of the time of a short run

        z = (start[seen] / unit).reshape(-1)
        options = {
            "maxiter": self.passes, "maxfun": self.passes, "ftol": 1e-13, "gtol": 1e-9,
            "maxcor": int(min(20, max(3, MEMORY_BYTES // (16 * z.size)))),
        }  # fmt: skip
        minimize(value, z, jac=True, method="L-BFGS-B", options=options)
        if measured:
            self.found.offer(own.u, own.loss)
        return own.u
