"""Log loss, ln(1 + exp(-y p)), stable in both tails."""

from __future__ import annotations

import math

from streamomd.core.scalars import sigmoid
from streamomd.losses.contract import Loss

STEPS = 100  # far more than are ever needed


def value(margin: float, y: float, p: object) -> float:
    """ln(1 + exp(-y margin)).

    >>> value(-700.0, 1.0, ()), value(700.0, 1.0, ()) > 0.0
    (700.0, True)
    """
    z = y * margin  # without a branch: the sign of z is not predictable
    return math.log1p(math.exp(-abs(z))) - min(z, 0.0)


def slope(margin: float, y: float, p: object) -> float:
    return -y * sigmoid(-y * margin)


def along(margin: float, y: float, change: float, p: object) -> float:
    """The flow dz/ds = R / (1 + e^z) of z = y m ends at z + u, where u + e^z (e^u - 1) = R.

    The left side is convex and rises in u: Newton's steps from an upper bound fall onto the root.
    """
    z = y * margin
    if z > 30.0:
        return 1.0  # the slope hardly changes: u = R / (1 + e^z) to the last digit
    e = math.exp(z)
    if e == 0.0:
        e = 5e-324
    whole = abs(change)
    rate = whole * (1.0 + e)
    u = min(whole, math.log1p(rate / e) if rate / e < 1e300 else math.log(rate) - z)
    for _ in range(100):
        grown = e * math.exp(u) if u + z < 700.0 else 1e300
        lower = u - (u + e * math.expm1(u) - rate) / (1.0 + grown) if u < 700.0 else u - 1.0
        if not lower < u:
            break
        u = lower
    return min(1.0, max(0.0, u / whole))


def solve(m: float, chi: float, y: float, h: float, p: object, slope: float) -> tuple[float, float]:
    """The margin z = y m moves by d = X / (1 + e^(z + d)), X = h chi.

    d (1 + e^(z + d)) is convex and rises in d: Newton's steps from an upper bound fall onto the
    root. With E and q, the slopes before and after, (E - q) / d = E (1 - q) (1 - e^-d) / d.
    """
    z, X = y * m, h * chi
    E = abs(slope)  # sigmoid(-z)
    d = X * E
    if not d > 1e-30:  # the slope does not change in any digit, or the margin is NaN
        return y * (h * E), h * (E * sigmoid(z))
    if X <= 1.0:
        d = small_move(z, X, E)
        q = d / X
        if d > 1e-3:
            return y * (h * q), h * ((E - q) / d)
        of_d = 1.0 - d * (0.5 - d * (1.0 / 6.0 - d / 24.0))  # (1 - e^-d) / d
        return y * (h * q), h * (E * (1.0 - q) * of_d)
    if d > 1.0:
        d = min(d, max(1.0, math.log(X) - z))  # e^(z + d) <= X where d >= 1
    for _ in range(STEPS):
        v = z + d
        e = math.exp(-abs(v))
        q, rest = (e, 1.0) if v > 0.0 else (1.0, e)
        q, rest = q / (1.0 + e), rest / (1.0 + e)
        step = (d - X * q) / (1.0 + d * rest)
        d -= step
        if not step > 1e-9 * d:  # the next one would be below rounding
            break
    return y * (h * (d / X)), h * (E * sigmoid(z + d) * (-math.expm1(-d) / d))


def small_move(z: float, X: float, E: float) -> float:
    """The root of f(d) = d - X q(z + d) for X <= 1, by Halley's method from d = 0, where q is E.

    A step leaves less than a tenth of its cube, both relative to d.
    """
    d, q = 0.0, E
    for _ in range(STEPS):
        f, bend = d - X * q, X * (q * (1.0 - q))
        slope = 1.0 + bend
        step = f * slope / (slope * slope + 0.5 * f * (bend * (1.0 - 2.0 * q)))
        d -= step
        if not abs(step) > 1e-4 * d:
            break
        q = sigmoid(-(z + d))
    return d


def lipschitz(p: object) -> float:
    return 1.0


LOSS = Loss(
    name="logistic",
    title="log loss; classification with probabilities",
    value=value,
    slope=slope,
    along=along,
    solve=solve,
    mean=sigmoid,
    classifies=True,
    probabilistic=True,
    lipschitz=lipschitz,
    aliases=("log_loss", "log", "logistic_regression"),
)
