"""The merge of several ``Auto`` of a common start into one, as literal as ``auto``."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from auto import Auto, Floats, following, ratio


class Moments(NamedTuple):
    """Weight n, mean mu and sum of squared deviations M2."""

    n: float
    mu: Floats
    M2: Floats

    def plus(self, b: Moments) -> Moments:
        """Of both samples (Chan, Golub & LeVeque 1983)."""
        n = self.n + b.n
        if n == 0.0:
            return self
        d = b.mu - self.mu
        return Moments(n, self.mu + d * b.n / n, self.M2 + b.M2 + d * d * self.n * b.n / n)

    def minus(self, a: Moments) -> Moments:
        """What was added to a."""
        n = self.n - a.n
        if n == 0.0:
            return Moments(0.0, 0.0 * self.mu, 0.0 * self.M2)
        d = (self.mu - a.mu) * self.n / n
        return Moments(n, a.mu + d, self.M2 - a.M2 - d * d * a.n * n / self.n)


def merge(start: Auto, parts: Sequence[Auto]) -> Auto:
    """One state of several that were trained from ``start.part()``, each on rows of its own.

    What every part has added to the common start adds up. The recipe adds A and b in raw
    coordinates; here every state moves to the merged reference first, which is the same up to the
    invertible map U and does not cancel digits where means are large. Choice: so does G, whose
    weights are means by what each part has added to H.
    """
    whole = copy.deepcopy(start)
    for name in ("t", "n", "N", "lead", "n_y", "sum_n"):
        setattr(whole, name, grown(name, start, parts))
    whole.next, whole.lead = following(whole.t), min(max(whole.lead, -whole.LEAD), whole.LEAD)
    whole.recent_a, whole.recent_n, whole.recent_t = np.zeros(whole.C), 0.0, 0
    whole.weight_sum = grown("weight_sum", start, parts)
    whole.loss_sum = grown("loss_sum", start, parts)
    merge_statistics(whole, start, parts)
    whole.c, whole.s = whole.next_reference()
    whole.c_y = whole.ybar
    whole.s_y = math.sqrt(whole.M2y / whole.n_y) if whole.n_y > 0.0 else 0.0
    # Choice: the evidence of the parts, for there is none of the whole before it is solved.
    squared = whole.loss == "square"
    means = [part.lam_now for part in parts]
    whole.lam_now = whole.next_lam(whole.s_y) if squared else sum(means) / len(means)
    merge_B(whole, start, parts)
    merge_G(whole, start, parts)
    return whole


def grown(name: str, start: Auto, parts: Sequence[Auto]) -> float:
    """A total that adds up."""
    first = getattr(start, name)
    return first + sum(getattr(part, name) - first for part in parts)


def merge_statistics(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """Means and sums of squares by Chan's formula, means by weight, extremes."""
    x = [Moments(one.n, one.mu, one.M2) for one in (start, *parts)]
    y = [Moments(one.n_y, np.array(one.ybar), np.array(one.M2y)) for one in (start, *parts)]
    _, whole.mu, whole.M2 = joined(x)
    _, ybar, M2y = joined(y)
    whole.ybar, whole.M2y = float(ybar), float(M2y)
    for name in ("mse", "v"):
        first = start.n * getattr(start, name)
        total = first + sum(part.n * getattr(part, name) - first for part in parts)
        setattr(whole, name, total / whole.n if whole.n > 0.0 else 0.0)
    whole.ymin = min(part.ymin for part in parts)
    whole.ymax = max(part.ymax for part in parts)
    for i in sorted({i for part in parts for i in part.n_i}):
        n = [one.n_i.get(i, 0.0) for one in (start, *parts)]
        nq = [one.n_i.get(i, 0.0) * one.q.get(i, 0.0) for one in (start, *parts)]
        whole.n_i[i] = n[0] + sum(part - n[0] for part in n[1:])
        whole.q[i] = (nq[0] + sum(part - nq[0] for part in nq[1:])) / whole.n_i[i]


def joined(moments: Sequence[Moments]) -> Moments:
    """Of the start, the first, and of what each other one has added to it."""
    whole = start = moments[0]
    for part in moments[1:]:
        whole = whole.plus(part.minus(start))
    return whole


def merge_B(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """A and b add up, in the merged reference.

    Choice: a part that was recalibrated has only rho A_0 of the start's A left; its rho A_0, not
    A_0, is subtracted, or the sum could lose its positive definiteness. Of the start, the mean
    rho remains. Of the other coordinates b = D w adds up, too: a mean of the parts' w, weighted by
    D, counts the prior once for each part, and held-out loss on text grows with every round.
    """
    none = np.zeros(whole.C)
    rho = sum((part.rho for part in parts), none) / len(parts)
    informations = []
    for k in range(whole.C):
        A, b = start.information(k, whole.c, whole.s, whole.c_y, rho[k])
        for part in parts:
            A_0, b_0 = start.information(k, whole.c, whole.s, whole.c_y, part.rho[k])
            A_k, b_k = part.information(k, whole.c, whole.s, whole.c_y)
            A, b = A + (A_k - A_0), b + (b_k - b_0)
        informations.append((A, b))
    whole.sum_a = rho * start.sum_a
    whole.sum_a += sum((part.sum_a - part.rho * start.sum_a for part in parts), none)
    whole.solve_B(informations)
    for i in sorted({i for part in parts for i in part.S}):
        S_0, q_0, w_0 = start.S.get(i, none), start.q.get(i, 0.0), start.w_i.get(i, none)
        S = rho * S_0
        b = (whole.lamS * q_0 + S) * w_0
        for part in (one for one in parts if i in one.S):
            D_0 = part.lamS * q_0 + part.rho * S_0
            S = S + part.S[i] - part.rho * S_0
            b = b + part.precision(i) * part.w_i[i] - D_0 * w_0
        whole.S[i], whole.w_i[i] = S, b / (whole.lamS * whole.q[i] + S)


def merge_G(whole: Auto, start: Auto, parts: Sequence[Auto]) -> None:
    """H adds up; g is the mean by the growth of H, coordinate by coordinate."""
    first, *others = [copy.deepcopy(one) for one in (start, *parts)]
    for one in (first, *others):
        one.change_reference_of_G(whole.c, whole.s, one.c_y - whole.c_y)
    whole.g, whole.H = mean_by_growth(first.H, [one.g for one in others], [one.H for one in others])
    none = np.zeros(whole.C)
    for i in sorted({i for part in parts for i in part.H_i}):
        whole.g_i[i], whole.H_i[i] = mean_by_growth(
            start.H_i.get(i, none),
            [part.g_i.get(i, none) for part in parts],
            [part.H_i.get(i, none) for part in parts],
        )


def mean_by_growth(H_0: Floats, g: Sequence[Floats], H: Sequence[Floats]) -> tuple[Floats, Floats]:
    """(g, H) of all parts; where H has not grown, the plain mean."""
    growth = [np.maximum(H_k - H_0, 0.0) for H_k in H]
    total = sum(growth, np.zeros_like(H_0))
    means = zip(g, growth, strict=True)
    mean = sum((g_k * ratio(by, total, 1.0 / len(g)) for g_k, by in means), np.zeros_like(H_0))
    return mean, H_0 + total
