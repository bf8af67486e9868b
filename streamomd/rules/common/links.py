r"""Links from theta to weights, with sums over all coordinates (P2, section 4; P0, section 6.1).

A link is grad f*, f* the conjugate of a regularizer f whose least value is 0:

    l2      f* = ||theta||_2^2 / 2                        w = theta
    winnow  f* = ln(sum e^theta_i / n)                    w_i = e^theta_i / sum_j e^theta_j
    eg      f* = U ln(sum (e^theta_i + e^-theta_i) / 2n)  w_i = U (e^theta_i - e^-theta_i) / sum
    pnorm   f* = ||theta||_p^2 / 2                        w_i = sign(theta_i) |theta_i|^(p-1)
                                                                / ||theta||_p^(p-2)

Each coordinate stores two numbers in addition to theta, its image relative to a reference ref:
``a``, which gives the weight (w = a times a factor of all coordinates), and ``b``, which goes into
the sum S. For eg and winnow the exponentials are divided by e^ref, for pnorm theta is divided by
ref: ref follows the largest theta, so that S neither overflows nor vanishes.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from streamomd.rules.common.sets import L1, ComparatorSet, Free, Simplex
from streamomd.rules.params import Between, Choice

Link = Annotated[float, Choice(("l2", "winnow", "eg", "pnorm"))]
L2, WINNOW, EG, PNORM = 0.0, 1.0, 2.0, 3.0
Power = Annotated[float, Between(2.0, 64.0)]
EDGE = 1e4  # EDGE^64 and its inverse are finite
LARGE = 692.0  # e^692 is finite, and more than the engine accepts as a sum: it is recomputed
LOW = 1e-3  # of S: below it ref has never been set right, for S >= 1 whenever it is
HIGH = 1e30  # of S: so ``a`` stays finite in float32 too


def power(v: float, p: float) -> float:
    """v^p of v >= 0. Whole p by squaring, a third of the time of a logarithm and an exponential."""
    n = int(p)
    if n == p:
        result = 1.0
        while n > 0:
            if n & 1:
                result *= v
            v *= v
            n >>= 1
        return result
    if v == 0.0:
        return 0.0
    return math.exp(min(p * math.log(v), LARGE))


def root(v: float, p: float) -> float:
    """v^(1/p) of v >= 0."""
    if p == 2.0:
        return math.sqrt(v)
    return math.exp(math.log(v) / p) if v > 0.0 else 0.0


def share(x: float, p: float) -> tuple[float, float, float]:
    """What an entry adds to the sums that ``norm`` takes: small, middling and large entries apart,
    so that abs(x)^p is finite and not 0 from 1e-12 to 1e12."""
    size = abs(x)
    if p == 2.0:
        return 0.0, x * x, 0.0
    if size > EDGE:
        return 0.0, 0.0, power(size / (EDGE * EDGE), p)
    if size < 1.0 / EDGE:
        return power(size * (EDGE * EDGE), p), 0.0, 0.0
    return 0.0, power(size, p), 0.0


def norm(small: float, middle: float, large: float, p: float) -> float:
    """The p-norm of a row, of its sums."""
    if p == 2.0:
        return math.sqrt(middle)
    less = power(1.0 / EDGE, p)
    if large > 0.0:
        return EDGE * EDGE * root(large + middle * less * less, p)
    if middle > 0.0:
        return root(middle + small * less * less, p)
    return root(small, p) / (EDGE * EDGE)


def shares(link: float, x: float, p: float) -> tuple[float, float, float, float]:
    """What an entry adds to the three sums of ``length``, and its size, whose maximum is taken."""
    size = abs(x)
    if link in (WINNOW, EG):
        return 0.0, 0.0, 0.0, size
    small, middle, large = share(x, 2.0 if link == L2 else p)
    return small, middle, large, 0.0


def length(link: float, q: tuple[float, float, float, float], p: float) -> float:
    """The norm of a row that its curvature is made of: the largest entry for winnow and eg."""
    if link in (WINNOW, EG):
        return q[3]
    return norm(q[0], q[1], q[2], 2.0 if link == L2 else p)


def curvature(link: float, length: float, U: float, p: float) -> float:
    """At least x' H x, H the Hessian of f*; length: the row's norm, see ``length``."""
    square = length * length
    if link == EG:
        return U * square
    return (p - 1.0) * square if link == PNORM else square


def image(link: float, theta: float, ref: float, base: float, p: float) -> tuple[float, float]:
    """a and b of a coordinate. base: e^-ref."""
    if link == PNORM:
        if ref == 0.0:
            return 0.0, 0.0
        size = abs(theta) / ref
        lifted = power(size, p - 1.0)
        return math.copysign(lifted, theta), lifted * size
    if link == EG:
        size = abs(theta)
        if size <= 0.05:  # the difference of two exponentials near 1 would lose digits
            more = math.expm1(size)
            up = 1.0 + more
            difference, both = base * (more + more / up), base * (up + 1.0 / up)
        else:
            up = math.exp(min(size - ref, LARGE))
            down = base * (base / up) if up > 0.0 else 0.0  # e^(-size - ref), without overflow
            difference, both = up - down, up + down
        return math.copysign(difference, theta), both
    if link == WINNOW:
        raised = math.exp(min(theta - ref, LARGE))
        return raised, raised
    return theta, theta * theta


def factor(link: float, S: float, ref: float, U: float, p: float) -> float:
    """The weights are this times a."""
    if link == PNORM:
        if S <= 0.0:
            return 0.0
        return ref if p == 2.0 else ref * math.exp((2.0 - p) / p * math.log(S))
    if link == EG:
        return U / S
    return 1.0 / S if link == WINNOW else 1.0


def conjugate(link: float, S: float, ref: float, n: float, U: float, p: float) -> float:
    """f*(theta), n the number of coordinates."""
    if link == PNORM:
        length = ref * root(max(S, 0.0), p)
        return 0.5 * length * length
    if link == EG:
        return U * (ref + math.log(S / (2.0 * n)))
    if link == WINNOW:
        return ref + math.log(S / n)
    return 0.5 * max(S, 0.0)


def height(link: float, theta: float) -> float:
    """ref becomes the largest of these, and 0 with l2, which needs none."""
    if link == L2:
        return 0.0
    return theta if link == WINNOW else abs(theta)


def base_of(link: float, ref: float) -> float:
    """e^-ref, for eg alone: with winnow ref may be far below 0."""
    return math.exp(-ref) if link == EG else 0.0


def unfit(link: float, S: float, ref: float) -> bool:
    """Whether ref is a bad first guess (pnorm), or theta has grown away from it."""
    if link == PNORM and ref > 0.0 and S < LOW:
        return True
    return link != L2 and S > HIGH


def first(link: float, ref: float, a: float) -> float:
    """ref for a step of size a, where there is none yet."""
    return abs(a) if link == PNORM and ref == 0.0 else ref


def rise(kappa: float, cap: float, gamma: float) -> float:
    """What a step of at most cap raises the dual by on a mistake, at least (P2, sections 4, 5)."""
    if kappa * cap <= gamma:
        return cap * (gamma - 0.5 * kappa * cap)
    return 0.5 * gamma * gamma / kappa


def dual_norm(u: Any, p: float) -> float:
    """The norm of u that is dual to the p-norm."""
    return float(np.linalg.norm(u, p / (p - 1.0)))


def complexity(link: float, u: Any, U: float, p: float) -> float:
    """f(u); u in the simplex (winnow), of l1 norm at most U (eg)."""
    if link == WINNOW:
        seen = u[u > 0.0]
        return max(float((seen * np.log(len(u) * seen)).sum()), 0.0)
    if link == EG:
        return U * _divergence(u / U)
    if link == PNORM:
        return 0.5 * dual_norm(u, p) ** 2
    return 0.5 * float(u @ u)


def _divergence(v: Any) -> float:
    """Least relative entropy to the uniform one of 2n numbers >= 0, differences v and sum 1."""
    n = len(v)

    def halves(c: float) -> tuple[Any, Any]:  # at the least one all products are c^2
        larger = np.hypot(c, 0.5 * v) + 0.5 * np.abs(v)
        return larger, c * (c / larger) if c > 0.0 else np.zeros(n)

    low, high = 0.0, 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if sum(float(half.sum()) for half in halves(middle)) > 1.0:
            high = middle
        else:
            low = middle
    parts = np.concatenate(halves(low))
    parts = parts[parts > 0.0]
    return max(float((parts * np.log(2.0 * n * parts)).sum()), 0.0)


def legal(link: float, U: float) -> ComparatorSet:
    """Where f is finite."""
    if link == WINNOW:
        return Simplex()
    return L1(1.0, U) if link == EG else Free()


def few_mistakes(loss: float, kappa: float) -> float:
    """The largest M with M - L <= sqrt(kappa M): P2, theorem 2."""
    return loss + 0.5 * kappa + 0.5 * math.sqrt(kappa * kappa + 4.0 * kappa * loss)
