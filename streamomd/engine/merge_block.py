"""Merge states of learners on standardised inputs, see ``loops.block``.

Every state is a part: it was trained from the same start on rows of its own, and took no more
coordinates into its block. What each part has added to the start adds up, and the sum is again a
part of that start: merging parts in pairs or all together gives the same to rounding, but for the
bound on the lead.

Statistics of columns and targets are joined by Chan's formula; they are the merged reference. B's
information, A and b = A w + prior w, is taken to that reference, where a sum is what one learner
would have collected from all rows with the same curvatures; then P = (A + prior)^-1 and w = P b.
Outside the block, b = D w. A recalibration scales down A, the start's included: of A_0 a part has
left rho A_0, and has added A - rho A_0; of the whole, the mean rho of A_0 is left. G's weights are
means by what each part has added to H.

All formulas are linear in what was added. So G's predictions are moved without the squash of
``loops.rebase``, and its bias is averaged at the start's reference, which all parts share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import UsageError
from streamomd.engine import Engine
from streamomd.engine.loops.block_row import centres
from streamomd.engine.loops.rebase import AT, DIAGONAL, POOL, G, H, W, mean_importance, passes_held
from streamomd.engine.loops.reference import M2, MU, C, S
from streamomd.engine.moments import Moments, _Cells, _joined, _ratio, inverse
from streamomd.engine.state import State
from streamomd.rules.common.standardized import LEAD, of_noise, sparse_unit

Floats = NDArray[np.float64]


def merge_blocks(engine: Engine, states: Sequence[State], start: State, rows: int) -> State:
    """One state of several that were trained from ``start``; none of them is changed.

    rows: coordinates whose cells are merged in one batch. Raises UsageError for a state whose block
    took coordinates that the start's has not.
    """
    for state in states:
        if np.any(state.extra["places"] != start.extra["places"]):
            raise UsageError(
                "a state to merge has other coordinates in its block than the common start: its "
                "rows were not learned as a part, engine.learn(..., part=True)"
            )
    one = _Merge(engine, start, states)
    one.merge_all_cells(rows)
    one.merge_statistics()
    if one.whole.totals[0, AT["t"]] > 0.0:
        one.change_reference()
        if one.storage.second:
            one.merge_second()
        if one.storage.first:
            one.merge_first()
    return one.whole


def merge_cells(engine: Engine, states: Sequence[State], start: State, rows: int) -> State:
    """The cells of a range of coordinates of such states, without the block's arrays; of the totals
    those that do not depend on them."""
    one = _Merge(engine, start, states)
    one.merge_all_cells(rows)
    return one.whole


class _Merge:
    """The states of a merge, and the one that is made of them.

    shares: by the importance that each part has learned. rho: (parts, learners), what is left of
    the start's A in each part; of_start: in the whole.
    """

    def __init__(self, engine: Engine, start: State, parts: Sequence[State]) -> None:
        self.start, self.parts, self.whole = start, parts, start.copy()
        self.whole.clock = start.clock + sum(part.clock - start.clock for part in parts)
        self.storage: Any = engine.layout.rule.storage
        self.h = engine.h
        self.groups = engine.layout.groups
        self.squared = engine.loss.quadratic
        self.centres = centres(engine.loss, engine.classes)
        self.p, self.learners = start.layout.numeric, start.layout.learners
        added = np.array([part.totals[0, AT["n"]] - start.totals[0, AT["n"]] for part in parts])
        total = added.sum()
        self.shares = added / total if total > 0.0 else np.full(len(parts), 1.0 / len(parts))
        retained = AT["retained"]
        self.rho = np.array(
            [part.totals[:, retained] / start.totals[:, retained] for part in parts]
        )
        self.of_start = self.mean(self.rho)

    @cached_property
    def size(self) -> int:
        """Coordinates that the block has taken."""
        return self.start.used_places

    def mean(self, values: Sequence[Any] | Floats) -> Any:
        """By what each part has learned; summed in their order."""
        return sum(share * value for share, value in zip(self.shares, values, strict=True))

    def grown(self, first: Any, others: Sequence[Any]) -> Any:
        """A sum: the start's, and what each part has added."""
        return first + sum(other - first for other in others)

    def total(self, name: str) -> tuple[float, list[float]]:
        """A total that all learners share, of the start and of the parts."""
        at = 0, AT[name]
        return self.start.totals[at], [part.totals[at] for part in self.parts]

    def merge_totals(self) -> None:
        """All but the reference of the targets and lam."""
        totals, row = self.whole.totals, self.whole.totals[0]
        for name in ("t", "n", "squares", "N", "lead", "all_n", "labels"):
            row[AT[name]] = self.grown(*self.total(name))
        # A sum of leads may pass the bound of a single run.
        row[AT["lead"]] = min(max(row[AT["lead"]], -LEAD), LEAD)
        row[AT["since"]] = max(self.total("since")[1])
        if row[AT["n"]] > 0.0:
            n, counts = self.total("n")
            for name in ("mse", "v"):
                first, means = self.total(name)
                sums = [count * mean for count, mean in zip(counts, means, strict=True)]
                row[AT[name]] = max(self.grown(n * first, sums), 0.0) / row[AT["n"]]
        row[AT["outside"]] = self.mean(self.total("outside")[1])
        row[AT["outside_g"]] = row[AT["outside_R"]] = 0.0
        self.merge_recent()
        totals[:, AT["retained"]] *= self.of_start
        # S is merged multiplied out.
        totals[:, AT["scale"]] = 1.0
        curvature, *others = [state.totals[:, AT["all_a"]] for state in (self.start, *self.parts)]
        totals[:, AT["all_a"]] = self.of_start * curvature + self.added(others, curvature)

    def merge_recent(self) -> None:
        """The next change of reference, and sums since the last recalibration.

        A part that was recalibrated has none of the start's in its sums, and so counts fewer rows
        than it has learned since. Of the whole, whose rows may have come to ``next``, the first
        row after the merge changes the reference.
        """
        self.whole.totals[0, AT["next"]] = max(self.total("next")[1])
        columns = [AT[name] for name in ("recent_n", "recent_t", "recent_a")]
        first, rows = self.start.totals[0, AT["recent_t"]], self.start.totals[0, AT["t"]]
        sums, start = 0.0 * self.start.totals[:, columns], self.start.totals[:, columns]
        fresh = False
        for part in self.parts:
            row = part.totals[0]
            alone = row[AT["recent_t"]] < first + (row[AT["t"]] - rows)
            sums += part.totals[:, columns] - (not alone) * start
            fresh = fresh or alone
        self.whole.totals[:, columns] = sums + (not fresh) * start

    def added(self, of_parts: Sequence[Any], first: Any) -> Any:
        """What the parts have added to a sum of which each has left rho of the start's."""
        pairs = zip(of_parts, self.rho, strict=True)
        return sum(value - rho * first for value, rho in pairs)

    # Coordinates' own cells

    def merge_all_cells(self, rows: int) -> None:
        """Merge all coordinates, this many in one batch, after the totals."""
        self.merge_totals()
        size = self.start.layout.size
        for low in range(0, size, rows):
            self.merge_cells(low, min(low + rows, size))

    def merge_cells(self, low: int, high: int) -> None:
        """Merge coordinates low … high - 1, outside the block or not: ``place`` stays."""
        whole = self.whole.block(low, high)
        start, *parts = [_Cells(state.block(low, high)) for state in (self.start, *self.parts)]
        n = self.grown(start["n"], [part["n"] for part in parts])
        # n q: as fractions of n, which cannot overflow
        first, *others = [_ratio(one["n"], n) * one["q"] for one in (start, *parts)]
        q = self.grown(first, others)
        whole.slot("n")[...], whole.slot("q")[...] = n[:, 0], q[:, 0]
        if self.storage.second:
            self.merge_diagonal(whole, start, parts, q)
        if self.storage.first:
            g, squares = self.mean_by_growth(
                (start["g"], start["H"]), [(part["g"], part["H"]) for part in parts]
            )
            whole.slot("g")[...], whole.slot("H")[...] = g, squares

    def merge_diagonal(self, whole: State, start: _Cells, parts: list[_Cells], q: Floats) -> None:
        """S and b = D w add up, D = prior_sparse q + S. The prior's q is the merged one."""
        one, of_start = self.h.prior_sparse * sparse_unit(self.squared), self.of_start
        prior_0, *priors, prior = (
            one * mean_importance(state.totals[0]) * state.totals[0, AT["outside"]]
            for state in (self.start, *self.parts, self.whole)
        )
        S_0 = start["S"] * self.start.totals[:, AT["scale"]]
        total = of_start * S_0
        b = (prior_0 * start["q"] + total) * start["w"]
        for part, state, rho, prior_k in zip(parts, self.parts, self.rho, priors, strict=True):
            S_k = part["S"] * state.totals[:, AT["scale"]]
            # Rounding may make it negative.
            total = total + np.maximum(S_k - rho * S_0, 0.0)
            b = b + (prior_k * part["q"] + S_k) * part["w"]
            b = b - (prior_0 * start["q"] + rho * S_0) * start["w"]
        whole.slot("S")[...], whole.slot("w")[...] = total, _ratio(b, prior * q + total)

    def mean_by_growth(
        self, start: tuple[Floats, Floats], parts: Sequence[tuple[Floats, Floats]]
    ) -> tuple[Floats, Floats]:
        """(g, H): H adds up, g is the mean by what H has grown by; where by nothing, by rows."""
        growth = [np.maximum(squares - start[1], 0.0) for _, squares in parts]
        total = sum(growth)
        mean = np.zeros_like(start[0])
        for (g, _), by, share in zip(parts, growth, self.shares, strict=True):
            mean += g * _ratio(by, total, share)
        return mean, start[1] + total

    # Numeric columns, targets, and the block

    def merge_statistics(self) -> None:
        """Means and squared deviations of columns and targets, and the targets' extremes."""
        rows = [state.totals[0] for state in (self.start, *self.parts)]
        stored = [state.extra["reference"] for state in (self.start, *self.parts)]
        samples = zip(rows, stored, strict=True)
        _, mean, squares = _joined([Moments(row[AT["n"]], of[MU], of[M2]) for row, of in samples])
        self.whole.extra["reference"][MU], self.whole.extra["reference"][M2] = mean, squares
        names = "labels", "y_mean", "y_M2"
        _, mean, squares = _joined([Moments(*(row[AT[name]] for name in names)) for row in rows])
        row = self.whole.totals[0]
        row[AT["y_mean"]], row[AT["y_M2"]] = mean, squares
        # Only parts with labels have extremes.
        known = [one for one in rows[1:] if one[AT["labels"]] > 0.0]
        if known:
            row[AT["y_min"]] = min(one[AT["y_min"]] for one in known)
            row[AT["y_max"]] = max(one[AT["y_max"]] for one in known)

    def change_reference(self) -> None:
        """(c, s, c_y, s_y) and lam of the whole, as at a change of reference."""
        row, reference = self.whole.totals[0], self.whole.extra["reference"]
        row[AT["c_y"]], row[AT["s_y"]] = 0.0, 1.0
        if self.centres:
            seen = row[AT["labels"]]
            row[AT["c_y"]] = row[AT["y_mean"]]
            row[AT["s_y"]] = math.sqrt(row[AT["y_M2"]] / seen) if seen > 0.0 else 0.0
        columns, later = slice(1, 1 + self.p), slice(1 + self.p, self.size)
        s = np.zeros(len(reference[S]))
        s[columns] = np.sqrt(reference[M2, columns] / row[AT["n"]])
        s[later] = np.sqrt(self.whole.slot("q")[self.whole.extra["places"][later]])
        # Where a column has no deviation the largest scale of a part stays.
        largest = np.max([part.extra["reference"][S] for part in self.parts], axis=0)
        reference[C, columns] = reference[MU, columns]
        reference[S, 1:] = np.where(s > 0.0, s, largest)[1:]
        if self.storage.second and self.squared:
            lam = of_noise(self.h.prior * self.groups, row[AT["mse"]], row[AT["s_y"]])
            row[AT["lam"]] = lam * passes_held(row) * mean_importance(row)
        elif self.storage.second:  # the parts' evidence: of the whole there is none before w
            row[AT["lam"]] = self.mean(self.total("lam")[1])
        if self.storage.second:
            row[AT["lam_bias"]] = self.h.prior_bias * mean_importance(row)

    def merge_second(self) -> None:
        """B's A and b add up in the merged reference; then P and w."""
        extra = self.whole.extra
        group = extra["A"].shape[2]
        prior = self.prior(self.whole)
        for k in range(self.learners):
            informations = [
                self.information(part, self.rho[at, k], k) for at, part in enumerate(self.parts)
            ]
            A, b = self.raw_information(self.start, k, float(self.of_start[k]))
            for A_k, b_k in informations:
                A, b = A + A_k, b + b_k
            for low in reversed(range(0, self.size, group)):
                d = min(group, self.size - low)
                rows = slice(low, low + d)
                if low == 0:  # what the other groups' weights add to the bias, see ``offset``
                    b[:d] -= A[:d, 0] * self.offset(self.whole, k)
                extra["A"][k, rows, :d] = A[rows, :d]
                extra["P"][k, rows, :d] = P = inverse(A[rows, :d], prior[rows])
                extra["vectors"][k, W, rows] = (P * b[rows]).sum(axis=1)
                extra["vectors"][k, DIAGONAL, rows] = 1.0 / (A[rows, :d].diagonal() + prior[rows])
            # Pools are in b: with the new P w has taken them.
            extra["vectors"][k, POOL] = 0.0

    def prior(self, state: State) -> Floats:
        """Returns the prior of each of the block's coordinates."""
        prior = np.full(self.size, state.totals[0, AT["lam"]])
        prior[0] = state.totals[0, AT["lam_bias"]]
        return prior

    def information(self, part: State, rho: float, k: int) -> tuple[Floats, Floats]:
        """What a part has added to A and b."""
        A, b = self.raw_information(part, k, 1.0)
        A_0, b_0 = self.raw_information(self.start, k, float(rho))
        return A - A_0, b - b_0

    def raw_information(self, state: State, k: int, share: float) -> tuple[Floats, Floats]:
        """(A', b') of a state in the merged reference, (size, group), (size,); of ``share`` of A.

        With al and be of T as in ``loops.rebase``. Groups but the first are not centred by A.
        """
        stored, w = state.extra["A"][k, : self.size], state.extra["vectors"][k, W, : self.size]
        group, row = stored.shape[1], state.totals[0]
        al, be = self.transformation(state)
        prior = self.prior(state)
        A: Floats = np.zeros((self.size, group))
        b: Floats = prior * w + state.extra["vectors"][k, POOL, : self.size]
        for low in range(0, self.size, group):
            d = min(group, self.size - low)
            rows = slice(low, low + d)
            part = share * stored[rows, :d]
            b[rows] += (part * w[rows]).sum(axis=1)
            if low == 0:
                first = part[0]
                b[rows] = al[rows] * b[rows] + be[rows] * b[0]
                part = al[rows, None] * part + be[rows, None] * first
                part = part * al[rows] + part[:, :1] * be[rows]
            else:
                b[rows] *= al[rows]
                part = part * al[rows, None] * al[rows]
            # Symmetric to the bit, as the loops leave it.
            A[rows, :d] = 0.5 * (part + part.T)
        shift = row[AT["c_y"]] - self.whole.totals[0, AT["c_y"]] + self.offset(state, k)
        d = min(group, self.size)
        b[:d] += A[:d, 0] * shift
        return A, b

    def transformation(self, state: State) -> tuple[Floats, Floats]:
        """al, be of T to the merged reference: z' = al z + be."""
        new, old = (one.extra["reference"][:, : self.size] for one in (self.whole, state))
        al, be = _ratio(old[S], new[S]), _ratio(old[C] - new[C], new[S])
        al[0], be[0] = 1.0, 0.0
        return al, be

    def offset(self, state: State, k: int) -> float:
        """What the bias gains if the columns outside its group move to the start's centre."""
        later = slice(state.extra["A"].shape[2], 1 + self.p)
        w = state.extra["vectors"][k, W, later]
        old = state.extra["reference"][:, later]
        moved = self.start.extra["reference"][C, later] - old[C]
        return float((w * _ratio(moved, old[S])).sum())

    def merge_first(self) -> None:
        """G's weights in the merged reference; the bias first at the start's centre."""
        front = slice(0, 1 + self.p)
        moved = [self.moved_first(state, front) for state in (self.start, *self.parts)]
        g, squares = self.mean_by_growth(moved[0], moved[1:])
        centre = self.start.extra["reference"][C, front], self.start.totals[0, AT["c_y"]]
        reference = self.whole.extra["reference"][:, front]
        shift = _ratio(reference[C] - centre[0], reference[S])
        shift[0] = 0.0
        # From the start's centre, where all biases were compared, to the merged one.
        g[:, 0] += (g * shift).sum(axis=1) + (centre[1] - self.whole.totals[0, AT["c_y"]])
        self.whole.extra["vectors"][:, G, front] = g
        self.whole.extra["vectors"][:, H, front] = squares

    def moved_first(self, state: State, front: slice) -> tuple[Floats, Floats]:
        """g and H, (learners, bias and columns), at the merged scale and the start's centre."""
        new, old = (one.extra["reference"][:, front] for one in (self.whole, state))
        first = self.start.extra["reference"][C, front]
        by = _ratio(old[S], new[S])
        back = _ratio(new[S], old[S])
        by[0] = back[0] = 1.0
        g = state.extra["vectors"][:, G, front] * back
        squares = state.extra["vectors"][:, H, front] * by * by
        shift = _ratio(first - old[C], new[S])
        shift[0] = 0.0
        difference = state.totals[0, AT["c_y"]] - self.start.totals[0, AT["c_y"]]
        g[:, 0] += (g * shift).sum(axis=1) + difference
        return g, squares
