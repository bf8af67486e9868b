"""The comparator that minimizes a claim's right-hand side.

A right-hand side is the claim's bound, for regret plus the comparator's loss. It consists of sums
over the rows (the loss of u, its hinge loss, its squared error), whose gradients one pass computes,
and of a closed form in u and these sums, the rule's ``certificate``, which is differentiated
numerically. Projected quasi-Newton minimizes it over the rule's set; losses with kinks are smoothed
first, as for the best weights.

The closed form is evaluated twice per coordinate and step, so at most ``MOST`` coordinates are
searched, those with the largest share of the best weights' predictions; the others are 0 (in the
simplex: equal). Every comparator is valid: the bound holds in any case.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.analysis import quasi_newton
from streamomd.analysis.certify.claims import (
    Facts,
    certified,
    claim_rows,
    is_regret_claim,
    key_of,
    measured_losses,
    run_facts,
)
from streamomd.analysis.certify.total_losses import FixedWeights
from streamomd.analysis.comparator import Objective, scale
from streamomd.losses import find_loss
from streamomd.losses.smoothed import smoothed
from streamomd.rules.certificates.certificate import Run
from streamomd.rules.common.sets import ComparatorSet, Simplex
from streamomd.training.model import Model

Floats = NDArray[np.float64]
Key = tuple[str, str]
Row = dict[str, Any]

MOST = 256  # coordinates
WORK = 100_000_000  # numbers that all closed forms of a gradient may read
STAGES = (0.1, 0.01, 0.001)  # how smooth, in units of what predicting 0 costs a row
PASSES = 60  # over the rows, at most, for each stage
STARTS = (1.0, 0.3, 0.1, 0.03, 0.0)  # multiples of the best weights where the search may start


def minimize_bounds(
    model: Model, facts: Facts, fixed: FixedWeights, sets: Sequence[ComparatorSet]
) -> list[Row]:
    """``claim_rows``, each claim with the comparator that minimizes its right-hand side.

    fixed: the best weights. Loss and regret of a row are those of its first claim's comparator.
    """
    first = claim_rows(model, facts, fixed)
    keys = {(c["claim"], c["source"]): None for row in first for c in row["claims"] or ()}
    if not keys:
        return first
    search = Search(model, facts, fixed, sets)
    tried = {key: claim_rows(model, facts, replace_u(fixed, search.least(key))) for key in keys}
    rows = [dict(row) for row in next(iter(tried.values()))]
    for at, row in enumerate(rows):
        found = {
            key: claim
            for key, others in tried.items()
            for claim in [*(others[at]["claims"] or ()), *(first[at]["claims"] or ())][::-1]
            if (claim["claim"], claim["source"]) == key
        }  # that of the best weights, if the claim does not hold with those found
        row["claims"] = list(found.values()) or None
    return rows


def replace_u(fixed: FixedWeights, u: Floats) -> FixedWeights:
    """The losses of other weights over the same rows."""
    return FixedWeights(fixed.problem, u, tuple(fixed.costs.hinges))


class Sums(NamedTuple):
    """The sums of a right-hand side; gamma: of the hinge loss, NaN: none."""

    loss: float
    square: float
    hinge: float
    gamma: float


@dataclass
class Search:
    """Searches comparators for one run."""

    model: Model
    facts: Facts
    fixed: FixedWeights
    sets: Sequence[ComparatorSet]
    objectives: dict[tuple[str, float], Objective] = field(default_factory=dict)

    def least(self, key: Key) -> Floats:
        """u, (size, learners), that minimizes the claim's right-hand side."""
        u = np.array(self.fixed.u)
        learners = list(range(u.shape[1]))
        groups = [learners] if self.fixed.problem.loss.coupled else [[k] for k in learners]
        for group in groups:
            u[:, group] = Group(self, key, group).least()
        return u

    def evaluate(self, kind: str, smoothing: float, gamma: float, u: Floats) -> Any:
        """A pass over the rows with a loss: "loss", "square" or "hinge", of this smoothness."""
        problem = self.fixed.problem
        loss, params = problem.loss, dict(problem.loss_params)
        if kind == "square":
            loss, params = find_loss("square"), {}
        if kind == "hinge":
            loss, params = find_loss("gamma_hinge"), {"gamma": gamma}
        if smoothing > 0.0 and loss.kinked:
            loss, params = smoothed(loss), {**params, "smoothing": smoothing}
        at = (f"{kind} {gamma}", smoothing)
        if at not in self.objectives:
            self.objectives[at] = problem.at(loss, params)
        return self.objectives[at](u)


class Group:
    """The learners whose claims are added: one, or with a coupled loss all."""

    def __init__(self, search: Search, key: Key, learners: list[int]) -> None:
        self.search, self.key, self.learners = search, key, learners
        model, facts, fixed = search.model, search.facts, search.fixed
        self.runs = [
            run_facts(model, fixed, k, measured_losses(model, facts, fixed, k)) for k in learners
        ]
        self.best = np.array(fixed.u[:, learners])
        self.sums = self._required_sums()
        squares = search.evaluate("loss", 0.0, math.nan, fixed.u)
        self.lengths = search.objectives[f"loss {math.nan}", 0.0].lengths
        self.unit_loss = scale(squares)
        self.typical = math.sqrt(max(squares.importance, 1.0))
        self.free = self._select_coordinates()
        sets = [search.sets[k] for k in learners]
        self.rest = isinstance(sets[0], Simplex) and len(self.free) < len(self.lengths)
        self.others = np.setdiff1d(np.arange(len(self.lengths)), self.free) if self.rest else None
        unit = np.where(
            self.lengths > 0.0, 1.0 / np.where(self.lengths > 0.0, self.lengths, 1.0), 0
        )
        self.unit = unit[self.free]
        self.unit[self.unit == 0.0] = float(np.median(unit[unit > 0.0])) if unit.any() else 1.0
        if self.rest:  # one extra number: the total of the coordinates that are not searched
            self.unit = np.append(self.unit, float(np.median(self.unit)) if len(self.unit) else 1.0)
        self.sets = [one.taken(self.free).scaled(self.unit) for one in sets]

    # ---- what is searched

    def _select_coordinates(self) -> NDArray[np.intp]:
        """The coordinates with the largest share, in order."""
        carried = (np.abs(self.best) * self.lengths[:, None]).sum(axis=1) + 1e-9 * self.lengths
        matrix = sum(array.size for array in self.runs[0].extra.values())
        most = max(8, min(MOST, WORK // (2 * max(len(carried), matrix))))
        seen = np.flatnonzero(self.lengths > 0.0)
        heaviest = seen[np.argsort(-carried[seen], kind="stable")[:most]]
        return np.sort(heaviest)

    def embed(self, z: Floats) -> Floats:
        """(size, learners of the group) from the searched vector, in units of the columns'
        lengths."""
        v = z.reshape(len(self.unit), -1) * self.unit[:, None]
        u = np.zeros_like(self.best)
        u[self.free] = v[: len(self.free)]
        if self.others is not None:
            u[self.others] = v[-1] / len(self.others)
        return u

    def restrict(self, u: Floats) -> Floats:
        """The inverse of ``embed``."""
        v = u[self.free]
        if self.others is not None:
            v = np.concatenate([v, u[self.others].sum(axis=0, keepdims=True)])
        return (v / self.unit[:, None]).reshape(-1)

    def nearest(self, z: Floats) -> Floats:
        """The projection onto the learners' sets."""
        columns = z.reshape(len(self.unit), -1).T
        some = [one.nearest(column) for one, column in zip(self.sets, columns, strict=True)]
        return np.stack(some, axis=1).reshape(-1)

    # ---- the right-hand side

    def _required_sums(self) -> dict[str, float]:
        """The sums the closed form uses, by kind, with the margin of a hinge loss."""
        required: dict[str, float] = {}
        u = self.best

        def hinge(gamma: float) -> float:
            required["hinge"] = gamma
            return self.runs[0].hinge_u(gamma)

        plain = Sums(self.runs[0].loss_u, self.runs[0].square_u, 0.0, math.nan)
        for kind in ("loss", "square"):
            if math.isnan(self.right_hand_side(u, plain._replace(**{kind: math.nan}), hinge)):
                required[kind] = math.nan
        return required

    def right_hand_side(
        self, u: Floats, sums: Sums, hinge: Callable[[float], float] | None = None
    ) -> float:
        """The right-hand side at u, given the sums; infinity without a claim."""
        total = 0.0
        for at in range(len(self.learners)):
            total += self._one(at, u[:, at], sums, hinge)
        return total

    def _one(
        self, at: int, u: Floats, sums: Sums, hinge: Callable[[float], float] | None = None
    ) -> float:
        whole = at == 0  # the loss counts once
        run: Run = replace(
            self.runs[at],
            u=u,
            loss_u=sums.loss if whole else 0.0,
            square_u=sums.square,
            hinge_u=hinge or (lambda gamma: sums.hinge),
        )
        try:
            claims = certified(self.search.model, run)
        except (ArithmeticError, ValueError):  # outside of the theorem with this u
            return math.inf
        claim = next((one for one in claims if key_of(one) == self.key), None)
        if claim is None:
            return math.inf
        side = claim.bound - claim.measured + run.loss if is_regret_claim(claim) else claim.bound
        return float(side)

    def weighted_sums(self, u: Floats, smoothing: float) -> tuple[Sums, dict[str, Floats]]:
        """The required sums, and the gradient of each, (size, learners)."""
        full = np.zeros_like(self.search.fixed.u)
        full[:, self.learners] = u
        values = {"loss": 0.0, "square": 0.0, "hinge": 0.0}
        gradients = {}
        for kind, gamma in self.sums.items():
            evaluate = self.search.evaluate(kind, smoothing, gamma, full)
            coupled = len(self.learners) > 1
            value = evaluate.loss if coupled else float(evaluate.each[self.learners[0]])
            double = 2.0 if kind == "square" else 1.0  # the loss is half the square
            values[kind] = double * value
            gradients[kind] = double * evaluate.gradient[:, self.learners]
        return Sums(**values, gamma=self.sums.get("hinge", math.nan)), gradients

    def value(self, u: Floats) -> float:
        """The right-hand side, without smoothing."""
        found = self.right_hand_side(u, self.weighted_sums(u, 0.0)[0])
        return found if not math.isnan(found) else math.inf

    def least(self) -> Floats:
        """The best u found."""
        starts = [self.nearest(self.restrict(factor * self.best)) for factor in STARTS]
        tried = [(self.value(u), u) for u in (self.best, *map(self.embed, starts))]
        for stage in STAGES:
            _, u = min(tried, key=lambda pair: pair[0])
            z = self.nearest(self.restrict(u))
            slope = functools.partial(self.slope, stage=stage)
            reached = quasi_newton.minimize(slope, self.nearest, z, passes=PASSES)
            found = self.embed(reached)
            tried.append((self.value(found), found))
        return min(tried, key=lambda pair: pair[0])[1]

    def slope(self, z: Floats, stage: float) -> tuple[float, Floats]:
        """The right-hand side and its gradient by z, with losses of this smoothness."""
        u, shape = self.embed(z), (len(self.unit), len(self.learners))
        sums, gradients = self.weighted_sums(u, stage * self.unit_loss)
        value = self.right_hand_side(u, sums)
        if not math.isfinite(value):
            return math.inf, np.zeros_like(z)
        slope = np.zeros(shape)
        for kind, gradient in gradients.items():
            rate = self._rate(u, sums, kind)
            part = gradient[self.free]
            if self.others is not None:
                mean = gradient[self.others].mean(axis=0, keepdims=True)
                part = np.concatenate([part, mean])
            slope += rate * part
        for at, k in self._entries(shape):
            slope[at, k] += self._partial(z.reshape(shape), at, k, sums, stage)
        return value, (slope * self.unit[:, None]).reshape(-1)

    def _entries(self, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
        return ((at, k) for at in range(shape[0]) for k in range(shape[1]))

    def _rate(self, u: Floats, sums: Sums, kind: str) -> float:
        """The derivative of the right-hand side by one of the sums."""
        value = getattr(sums, kind)
        step = 1e-5 * (1.0 + abs(value))
        low = max(value - step, 0.0) if kind != "loss" else value - step
        ends = [
            self.right_hand_side(u, sums._replace(**{kind: end})) for end in (value + step, low)
        ]
        return float((ends[0] - ends[1]) / (value + step - low))

    def _partial(self, z: Floats, at: int, k: int, sums: Sums, stage: float) -> float:
        """The derivative by one weight of learner k, the sums as they are."""
        step = 1e-5 * abs(float(z[at, k])) + 1e-3 * stage * self.typical
        ends = []
        for sign in (1.0, -1.0):
            moved = z.copy()
            moved[at, k] += sign * step
            ends.append(self._one(k, self.embed(moved.reshape(-1))[:, k], sums))
        found = (ends[0] - ends[1]) / (2.0 * step * float(self.unit[at]))
        return found if math.isfinite(found) else 0.0
