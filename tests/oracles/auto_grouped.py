"""Oracle of ``auto`` where the block is wide: A and P have groups of coordinates, and no more.

As ``auto``, with A and P zero outside the groups' squares on their diagonals: coordinates
0 … 63, 64 … 127, and so on; the bias is in the first. A step's chi is the sum of all groups' chi,
so the step stays exact along the row; each group's P is that of its own z. What a change of
centres would move from another group's columns to the bias goes to b of the first group as a
change of the target's reference does, for A has no row between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from auto import Auto, Floats, ratio, transformation

GROUP = 64


class Grouped(Auto):
    """``Auto`` in groups of coordinates. most: of the block at most, which says how many groups
    share the prior: groups do not know of each other, and each would explain all of a row."""

    def __init__(self, loss: str, p: int, classes: int = 1, *, most: int, **given: Any) -> None:
        super().__init__(loss, p, classes, lam=float(-(-most // GROUP)), **given)
        self.first, self.solves = (
            None,
            False,
        )  # Choice: groups are not solved again, for they do not know of each other

    def groups(self) -> list[slice]:
        return [slice(low, min(low + GROUP, self.D)) for low in range(0, self.D, GROUP)]

    def information(
        self, k: int, c: Floats, s: Floats, c_y: float, share: float = 1.0
    ) -> tuple[Floats, Floats]:
        first, *others = self.groups()
        b = share * (self.A[k] @ self.w[k]) + self.prior(self.lam_now) * self.w[k]
        b = b + self.pool[k]
        A = np.zeros_like(self.A[k])
        T = transformation(self.c[first], self.s[first], c[first], s[first])
        A[first, first] = share * (T @ self.A[k, first, first] @ T.T)
        moved = self.c_y - c_y
        al, be = ratio(self.s, s), ratio(self.c - c, s)
        for at in others:
            A[at, at] = share * np.outer(al[at], al[at]) * self.A[k, at, at]
            b[at] = al[at] * b[at]
            moved -= self.w[k, at] @ ratio(be[at], al[at])
        b[first] = T @ b[first] + A[first, 0] * moved
        return A, b
