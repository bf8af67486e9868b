"""What the loops of learners on standardised inputs share: losses, exact steps, matrix updates.

The block's matrices have a row of their group's coordinates each: see ``rebase``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from streamomd.engine.loops.load_store import inlined, take
from streamomd.engine.loops.row import FAR, Shape, number_of_class, target
from streamomd.losses import Loss
from streamomd.losses.contract import make_solve
from streamomd.rules.common.standardized import smoothed
from streamomd.rules.contract import Rule, fields

LANES = 8
"""Numbers that a loop over an array takes together. Arrays are padded to a multiple of it."""


def centres(loss: Loss, classes: int) -> bool:
    """Whether the target has a reference: not where each of several learners has its own target."""
    return loss.centres and classes <= 2


def make_losses(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., Any]:
    """row_loss(margins, i, y, e, hyper, slopes) -> loss of row i, smoothed by e."""
    L, classes = shape.learners, shape.classes
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim = take(len(fields(Aim)))
    value, slope, coupled = loss.value, loss.slope, loss.coupled
    couple: Any = loss.couple
    probable = loss.probabilistic

    def coupled_loss(margins: Any, i: int, y: float, e: float, hyper: Any, slopes: Any) -> float:
        goal = number_of_class(y, classes)
        couple(margins, i, goal, slopes)
        return smoothed(abs(slopes[goal]), e, L * 1.0)

    def single_loss(margins: Any, i: int, y: float, e: float, hyper: Any, slopes: Any) -> float:
        total = 0.0
        aim = Aim(*load_aim(hyper, n_rule, 1))
        for k in range(L):
            goal = target(y, k, classes, L)
            slopes[k] = slope(margins[i, k], goal, aim)
            if probable:  # a log loss: its slope is the other class's probability
                total += smoothed(abs(slopes[k]), e, 2.0)
            else:
                total += value(margins[i, k], goal, aim)
        return total

    return coupled_loss if coupled else single_loss


def make_solver(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """exact_steps(margins, i, slopes, chi, y, importance, hyper, s, a, work): each learner's exact
    step. slopes: of a log loss, as ``make_losses`` gives them; those of others are computed."""
    L, classes = shape.learners, shape.classes
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim = take(len(fields(Aim)))
    coupled, probable, slope = loss.coupled, loss.probabilistic, loss.slope
    solve_all: Any = loss.solve_all
    solve: Any = None if coupled else make_solve(loss)

    @inlined  # else every array goes over the stack, seven words each
    def all_steps(
        margins: Any, i: int, slopes: Any, chi: Any, y: float, importance: float, hyper: Any,
        s: Any, a: Any, work: Any,
    ) -> None:  # fmt: skip
        solve_all(margins, i, chi, number_of_class(y, classes), importance, s, a, work)

    @inlined
    def own_steps(
        margins: Any, i: int, slopes: Any, chi: Any, y: float, importance: float, hyper: Any,
        s: Any, a: Any, work: Any,
    ) -> None:  # fmt: skip
        aim = Aim(*load_aim(hyper, n_rule, 1))
        for k in range(L):
            goal = target(y, k, classes, L)
            start = slopes[k] if probable else slope(margins[i, k], goal, aim)
            s[k], a[k] = solve(margins[i, k], chi[k], goal, importance, aim, start)

    return all_steps if coupled else own_steps


def padded(size: int) -> int:
    """The least multiple of ``LANES`` from size on."""
    return (size + LANES - 1) & -LANES & FAR


@inlined
def dot(a: Any, k: int, b: Any, l: int, size: int) -> float:
    """The sum of a_kj b_lj, in an order that is fixed and that vectors add in; size: padded."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for n in range((size >> 3) & FAR):
        j = (n << 3) & FAR
        s0 += a[k, j] * b[l, j]
        s1 += a[k, j + 1] * b[l, j + 1]
        s2 += a[k, j + 2] * b[l, j + 2]
        s3 += a[k, j + 3] * b[l, j + 3]
        s4 += a[k, j + 4] * b[l, j + 4]
        s5 += a[k, j + 5] * b[l, j + 5]
        s6 += a[k, j + 6] * b[l, j + 6]
        s7 += a[k, j + 7] * b[l, j + 7]
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


def inner(a: Any, b: Any, size: int) -> float:
    """The sum of a_j b_j."""
    total = 0.0
    for j in range(size & FAR):
        total += a[j] * b[j]
    return total


def multiply(P: Any, z: Any, size: int, u: Any) -> Any:
    """u = P z by groups, four rows at a time where z is not 0; z'u."""
    group = P.shape[1]
    for j in range(size):
        u[j] = 0.0
    for first in range(0, size, group):
        low = first & FAR  # an index that is never negative: what follows is vectorised
        d = min(group, size - low) & FAR
        i = 0
        while i + 3 < d:
            at = (low + i) & FAR
            v0, v1, v2, v3 = z[at], z[at + 1], z[at + 2], z[at + 3]
            if v0 != 0.0 or v1 != 0.0 or v2 != 0.0 or v3 != 0.0:
                for j in range(d):
                    u[low + j] = (
                        ((u[low + j] + v0 * P[at, j]) + v1 * P[at + 1, j]) + v2 * P[at + 2, j]
                    ) + v3 * P[at + 3, j]
            i += 4
        while i < d:
            at = (low + i) & FAR
            for j in range(d):
                u[low + j] += z[at] * P[at, j]
            i += 1
    return inner(u, z, size)


def add_row(A: Any, z: Any, size: int, a: float) -> None:
    """A += a z z', by groups; of the upper triangle alone, which ``whole_triangle`` mirrors."""
    group = A.shape[1]
    for first in range(0, size, group):
        low = first & FAR
        d = min(group, size - low) & FAR
        for n in range(d):
            i = n & FAR
            v = a * z[low + i]
            if v != 0.0:
                for l in range(d - i):  # from 0: LLVM vectorises it better
                    j = i + l
                    A[low + i, j] += v * z[low + j]


def shrink(P: Any, z: Any, u: Any, size: int, a: float) -> float:
    """P <- (P^-1 + a z z')^-1, by groups, each with its own z'P z; the largest a z'P z."""
    group = P.shape[1]
    steepest = 0.0
    for first in range(0, size, group):
        low = first & FAR
        d = min(group, size - low) & FAR
        chi = 0.0
        for i in range(d):
            chi += z[low + i] * u[low + i]
        steepest = max(steepest, a * chi)
        f = a / (1.0 + a * chi)
        for i in range(d):
            v = f * u[low + i]
            if v != 0.0:
                for j in range(d):
                    P[low + i, j] -= v * u[low + j]
    return steepest


def audit(
    totals: Any, at: int, first: bool, off: float, residual: float, chi: float, h: float
) -> None:
    """Add a row to ``Accounts``, which begin at ``at``. off: y - p; residual: y - m, of B.

    The first row's own label is its reference: all of its loss is an excess.
    """
    if first:
        totals[at + 3] += 0.5 * h * off * off
        return
    growth = h * chi
    totals[at] += h * off * off * (growth / (1.0 + growth))
    totals[at + 1] += math.log1p(growth)
    totals[at + 2] = max(totals[at + 2], h * off * off)
    totals[at + 3] += 0.5 * h * (off - residual) * (off + residual) / (1.0 + growth)


def whole_triangle(A: Any, size: int) -> None:
    """A's lower triangle from the upper one."""
    group = A.shape[1]
    for low in range(0, size, group):
        d = min(group, size - low)
        for i in range(d):
            for j in range(i):
                A[low + i, j] = A[low + j, i]
