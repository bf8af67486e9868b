"""The best fixed weights u for a loss, found offline: what regret is measured against.

L-BFGS over the rows, out of core: a pass over them gives the loss of u and its gradient, summed
with importance weights, by the same compiled loops that learn. Any u is a legal comparator, so
nothing depends on how near this comes; the best that was measured is kept.

A loss with kinks is first made smooth (``losses.smoothed``), and then less and less so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from streamomd.batch import Batch
from streamomd.engine import Engine
from streamomd.losses import Loss
from streamomd.losses.smoothed import smoothed
from streamomd.rules.contract import Row, Rule, Sum
from streamomd.state import Layout, State

Floats = NDArray[np.float64]
Batches = Callable[[], Iterable[Batch]]
REMEMBERED_BYTES = 64 << 20
"""The rows, from the first, each time it is called."""

KINKED = ("absolute", "epsilon_insensitive", "gamma_hinge", "hinge", "pinball")
SMOOTHINGS = (1.0, 0.1, 0.01, 0.001)
PASSES = 200  # over the rows, at most, for each smoothing
MEMORY_BYTES = 1 << 28  # of the steps that L-BFGS remembers
HUGE = 1e300


class Own(NamedTuple):
    """Of a learner and coordinate: what is tried, and the derivative of the loss by it."""

    u: Sum = 0.0
    gradient: Sum = 0.0


class Shared(NamedTuple):
    """Of a coordinate: the sum of x^2."""

    square: Sum = 0.0


class Move(NamedTuple):
    """Of a row and learner: the loss's slope."""

    g: float


def _weight(own: Own, shared: Shared, totals: object, clock: float, h: object) -> float:
    return own.u


def _observe(shared: Shared, x: float, clock: float, h: object) -> tuple[Shared, tuple[()]]:
    return Shared(shared.square + x * x), ()


def _step(row: Row, totals: object, clock: float, h: object) -> tuple[Move, object]:
    return Move(row.importance * row.slope), totals


def _update(own: Own, shared: Shared, x: float, move: Move, clock: float, h: object) -> Own:
    return Own(own.u, own.gradient + move.g * x)


GRADIENT = Rule(
    name="gradient",
    title="learns nothing: sums the loss and its gradient at u",
    source="",
    own=Own,
    shared=Shared,
    move=Move,
    observe=_observe,
    weight=_weight,
    step=_step,
    update=_update,
)


def remembered(batches: Batches, most: int = REMEMBERED_BYTES) -> Batches:
    """The same batches; decoded once, if all together take at most so many bytes."""
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
    """Rows and what is to be minimized over them.

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


@dataclass
class Objective:
    """u, (size, learners) -> the sum of the loss, and its gradient. ``passes``: calls so far."""

    problem: Problem
    engine: Engine
    state: State
    passes: int = field(default=0, init=False)

    def __call__(self, u: Floats) -> tuple[float, Floats]:
        """A pass over the rows."""
        state, sums = self.state, np.zeros(3)
        state.slot("u")[...], state.slot("gradient")[...] = u, 0.0
        state.slot("square")[...], state.clock = 0.0, 0
        for batch in self.problem.batches():
            self.engine.learn(state, sums, batch)
        self.passes += 1
        return float(sums[1]), np.array(state.slot("gradient"), dtype=np.float64)

    @property
    def lengths(self) -> Floats:
        """The root of each coordinate's sum of squares, (size,), known after a call."""
        return np.sqrt(np.asarray(self.state.slot("square"), dtype=np.float64))


@dataclass
class Best:
    """The best u that was measured."""

    u: Floats
    loss: float

    def offer(self, u: Floats, loss: float) -> None:
        """Keep it if it is better."""
        if loss < self.loss:
            self.u, self.loss = u.copy(), loss


def best(problem: Problem, *, passes: int = PASSES) -> Best:
    """The best fixed u, (size, learners), and its loss; not worse than u = 0."""
    plain = problem.at(problem.loss, problem.loss_params)
    start = np.zeros((problem.size, problem.learners))
    found = Best(start, plain(start)[0])
    lengths = plain.lengths
    if problem.loss.name in KINKED:
        smooth = smoothed(problem.loss)
        for amount in SMOOTHINGS:
            nearly = problem.at(smooth, {**problem.loss_params, "smoothing": amount})
            u = descend(nearly, found.u, lengths, passes).u
            found.offer(u, plain(u)[0])
    last = descend(plain, found.u, lengths, passes)
    found.offer(last.u, last.loss)
    return found


def descend(objective: Objective, start: Floats, lengths: Floats, passes: int = PASSES) -> Best:
    """L-BFGS from ``start``; the best u on its way.

    Coordinates are measured in their ``lengths``, which takes out the features' scales; those of
    length 0 were never seen and stay.
    """
    seen = np.flatnonzero(lengths > 0.0)
    found = Best(start, math.inf)
    if not len(seen):
        return found
    unit = 1.0 / lengths[seen, None]

    def value(z: Floats) -> tuple[float, Floats]:
        u = start.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            u[seen] = z.reshape(len(seen), -1) * unit
            loss, gradient = objective(u)
            slope = (gradient[seen] * unit).reshape(-1)
        if not (math.isfinite(loss) and np.isfinite(slope).all()):
            return HUGE, np.zeros_like(slope)
        found.offer(u, loss)
        return loss, slope

    z = (start[seen] / unit).reshape(-1)
    memory = int(min(20, max(3, MEMORY_BYTES // (16 * z.size))))
    options = {"maxiter": passes, "maxfun": passes, "maxcor": memory, "ftol": 1e-13, "gtol": 1e-9}
    minimize(value, z, jac=True, method="L-BFGS-B", options=options)
    return found
