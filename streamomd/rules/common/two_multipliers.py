"""The exact step of two multipliers: the maximum of a quadratic on a rectangle (P2, eq. 31)."""

from __future__ import annotations

from streamomd.rules.contract import Row

SINGULAR = 1e-12  # rows this near to parallel have a ridge of maxima: the first point is taken


def edge(b: float, square: float, cross: float, other: float, cap: float) -> float:
    """The best multiplier when the other one is given."""
    gap = b - cross * other
    if square > 0.0:
        return min(max(gap / square, 0.0), cap)
    return cap if gap > 0.0 else 0.0


def dual(a: float, b: float, p: float, q: float, aa: float, ab: float, bb: float) -> float:
    """D of two multipliers: p a + q b - (aa a^2 + 2 ab a b + bb b^2) / 2."""
    return p * a + q * b - 0.5 * (aa * a * a + 2.0 * ab * a * b + bb * b * b)


def maximum(old: Row, new: Row, cross: float, C: float) -> tuple[float, float, float]:
    """The two multipliers, and what they raise D by; ``cross`` is y_i y_j <x_i, x_j>."""
    aa, alpha = old.q
    bb, beta = new.q
    top, cap = old.importance * C, new.importance * C
    p = 1.0 - old.y * old.margin + aa * alpha + cross * beta
    q = 1.0 - new.y * new.margin + cross * alpha + bb * beta
    det = aa * bb - cross * cross
    a, b = 0.0, edge(q, bb, cross, 0.0, cap)
    best = dual(a, b, p, q, aa, cross, bb)
    inside = False
    if det > SINGULAR * aa * bb:
        first, second = (bb * p - cross * q) / det, (aa * q - cross * p) / det
        inside = 0.0 <= first <= top and 0.0 <= second <= cap
        if inside:
            a, b = first, second
            best = dual(a, b, p, q, aa, cross, bb)
    if not inside:
        second = edge(q, bb, cross, top, cap)
        found = dual(top, second, p, q, aa, cross, bb)
        if found > best + SINGULAR * abs(best):
            a, b, best = top, second, found
        first = edge(p, aa, cross, 0.0, top)
        found = dual(first, 0.0, p, q, aa, cross, bb)
        if found > best + SINGULAR * abs(best):
            a, b, best = first, 0.0, found
        first = edge(p, aa, cross, cap, top)
        found = dual(first, cap, p, q, aa, cross, bb)
        if found > best + SINGULAR * abs(best):
            a, b, best = first, cap, found
    return a, b, best - dual(alpha, beta, p, q, aa, cross, bb)
