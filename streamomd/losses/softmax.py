"""Softmax cross-entropy over classes, one weight vector per class (P3, section 1).

ln(sum over k of exp(p_k)) - p_y; the slope of class k is its probability, less 1 for class y.
"""

from __future__ import annotations

import math
from typing import Any

from streamomd.core.scalars import sigmoid
from streamomd.losses.contract import Loss

STEPS = 200  # more than are ever needed


def couple(margins: Any, i: int, y: int, slopes: Any) -> float:
    """Row i's loss; a slope for each learner. The largest margin is subtracted: no overflow."""
    classes = margins.shape[1]
    top = margins[i, 0]
    for k in range(classes):
        top = max(top, margins[i, k])
    rest = 0.0  # all but class y: its share less 1 would lose the digits of a sure prediction
    for k in range(classes):
        slopes[k] = math.exp(margins[i, k] - top)
        if k != y:
            rest += slopes[k]
    total = rest + slopes[y]
    for k in range(classes):
        slopes[k] /= total
    slopes[y] = -rest / total
    loss: float = math.log(total) + (top - margins[i, y])
    return loss


def solve_all(margins: Any, i: int, chi: Any, y: int, h: float, s: Any, a: Any, work: Any) -> None:
    """The exact step, solved for one number: t = -ln p_y after it. work: one number a class.

    With r = 1 - e^-t = 1 - p_y, s_y = h r, and the logarithm of the sum of exp rises above
    margins[i, y] to D = t + X_y r, X = h chi. Each other class follows from D alone:
    p_k = exp(c_k - X_k p_k), c_k = margins[i, k] - margins[i, y] - D. The sum of these p_k falls
    with t, and r rises. Where they meet is found by Newton's method on their logarithms by ln t,
    or, where that leaves the interval or gains too little, by halving it: O(classes) an iteration.
    Newton's method in s (Jacobian diagonal plus rank one) has the same denominators 1 + X_k p_k,
    but needs ever shorter steps where X is large.
    """
    classes, h = margins.shape[1], float(h)
    t = probabilities_before(margins, i, y, s)
    for k in range(classes):
        X = h * chi[k]
        work[k] = math.log(X) if X > 0.0 else -1e300
        a[k] = 0.0
    add_curvatures(s, 0.5 * h, a)
    if t > 0.0:
        t = find_root(margins, i, y, h, chi, t, work, s)
        s[y] = math.exp(-t)
    add_curvatures(s, 0.5 * h, a)
    for k in range(classes):
        s[k] *= -h
    s[y] = -h * math.expm1(-t)  # more exact than the sum of the others where X_y is large


def probabilities_before(margins: Any, i: int, y: int, p: Any) -> float:
    """The probabilities before the step, written; -ln p_y, which no step raises."""
    top = margins[i, 0]
    for k in range(len(p)):
        top = max(top, margins[i, k])
    rest = 0.0  # as in ``couple``
    for k in range(len(p)):
        p[k] = math.exp(margins[i, k] - top)
        if k != y:
            rest += p[k]
    total = rest + p[y]
    for k in range(len(p)):
        p[k] /= total
    if margins[i, y] == top:
        return math.log1p(rest)
    return float(math.log(total) + (top - margins[i, y]))


def find_root(
    margins: Any, i: int, y: int, h: float, chi: Any, t: float, logs: Any, p: Any
) -> float:
    """The t where the sum of the other classes' probabilities, written, is 1 - e^-t."""
    low, high, last = 5e-324, t, 1e300
    for _ in range(STEPS):
        rest, fall = other_probabilities(margins, i, y, h, chi, t, logs, p)
        if abs(last) <= 1e-9:  # the step that led here: the next one would be below rounding
            break
        r, p_y = -math.expm1(-t), math.exp(-t)
        if rest < r:
            high = t
        else:
            low = t
        step, after = 1e300, 0.0
        if fall > 0.0:
            slope = fall / rest * (1.0 + h * float(chi[y]) * p_y) + p_y / r
            step = math.log(rest / r) / (slope * t)
            after = t * math.exp(min(step, 700.0))
        tiny = abs(step) <= 1e-9
        if not tiny and not (low < after < high and abs(step) < 0.5 * abs(last)):
            after = math.sqrt(low) * math.sqrt(high)
            step = max(0.5 * (math.log(high) - math.log(low)), 1e-8)
            if not low < after < high:
                break
        t, last = after, step
    return t


def other_probabilities(
    margins: Any, i: int, y: int, h: float, chi: Any, t: float, logs: Any, p: Any
) -> tuple[float, float]:
    """The p_k of all classes but y, written; their sum, and by how much it falls by D.

    q = X p solves q e^q = e^L, L = c + ln X. The left side is convex and rises in q: Newton's
    steps from an upper bound fall onto the root.
    """
    D = t - h * float(chi[y]) * math.expm1(-t)
    total = fall = 0.0
    for k in range(margins.shape[1]):
        if k == y:
            continue
        c = float(margins[i, k] - margins[i, y]) - D
        L = c + float(logs[k])
        if L < -40.0:  # q does not count in any digit
            q, p_k = 0.0, math.exp(min(c, 700.0))
        else:
            q = L if L > 1.0 else math.exp(min(L, 0.0))
            for _ in range(STEPS):
                step = (q - math.exp(L - q)) / (1.0 + q)
                q -= step
                if not step > 1e-9 * q:
                    break
            p_k = q / (h * float(chi[k]))
        total += p_k
        fall += p_k / (1.0 + q)
        p[k] = p_k
    return total, fall


def add_curvatures(p: Any, factor: float, a: Any) -> None:
    """a_k += factor f p_k (1 - p_k); 1 - p of the largest p is the sum of the others.

    Each class's step takes the other margins as they are, but H = diag(p) - p p' couples them:
    what one class gains, others lose. f = |H|^2 / |diag H|^2, so that f diag H is as large as H is
    where the margins move: 2 where two classes compete, C / (C - 1) where all are as probable.
    """
    top, others = 0, 0.0
    for k in range(len(p)):
        if p[k] > p[top]:
            top = k
    coupled = squares = own = 0.0
    for k in range(len(p)):
        if k != top:
            others += p[k]
            coupled += squares * (p[k] * p[k])
            squares += p[k] * p[k]
            own += (p[k] * (1.0 - p[k])) * (p[k] * (1.0 - p[k]))
    coupled += squares * (p[top] * p[top])
    own += (p[top] * others) * (p[top] * others)
    f = 1.0 + 2.0 * coupled / own if own > 0.0 else 1.0
    for k in range(len(p)):
        a[k] += factor * f * p[k] * (others if k == top else 1.0 - p[k])


def value(margin: float, y: float, p: object) -> float:
    """Never called: see ``couple``."""
    return math.nan


def lipschitz(p: object) -> float:
    return 1.0


LOSS = Loss(
    name="softmax",
    title="cross-entropy of several classes, learned together; probabilities",
    value=value,
    slope=value,
    couple=couple,
    solve_all=solve_all,
    mean=sigmoid,
    classifies=True,
    probabilistic=True,
    lipschitz=lipschitz,
    aliases=("cross_entropy", "multinomial"),
)
