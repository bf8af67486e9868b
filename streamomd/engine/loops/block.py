"""The loop for learners on standardised inputs, with a full matrix over a block of coordinates.

Row i of the block is coordinate ``places[i]``: the bias, the p numeric columns, then sparse
coordinates in the order in which they were first seen, up to the block's end. Of two predictors
that learn the same rows, B keeps A (the information of the data) and P = (A + prior)^-1 over the
block, and a diagonal outside; G is AdaGrad. ``storage.second`` and ``storage.first`` say which of
them a rule has; with both, a row's prediction is wB m_B + (1 - wB) m_G. Margins are relative to
c_y. In wide blocks A and P are block-diagonal: see ``rebase``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops import block_predict, sparse
from streamomd.engine.loops.block_row import (
    absorb,
    audit,
    centres,
    inner,
    make_losses,
    make_solver,
    multiply,
    whole_triangle,
)
from streamomd.engine.loops.block_solve import is_due
from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.load_store import number, put, take
from streamomd.engine.loops.rebase import AT, G, H, W, mean_importance, passes_held, used
from streamomd.engine.loops.reference import C, S, beyond, observe, standardise
from streamomd.engine.loops.row import Shape, entry, miss_of, span
from streamomd.losses import Loss
from streamomd.rules.common.standardized import (
    Move,
    Shared,
    grown,
    outweighs,
    pull_of_pass,
    see,
    smoothing,
    sparse_unit,
    squash,
)
from streamomd.rules.contract import Rule, fields

make_look, make_predict = sparse.make_look, block_predict.make_predict
REFRESH = 4096
"""Rows between two inversions of A + prior at least: P's rank-one updates add up their rounding."""
STEEP = 1e3
"""A rank-one update that shrinks P by more than this factor leaves the rounding of what it cancels:
P is inverted again after the row."""


def scratch(learners: int, places: Any, p: int, indptr: Any, *, dense: bool) -> tuple[Any, ...]:
    """What ``learn`` writes into for itself: coordinates of a row, arrays of one number each, and
    arrays of one number for each learner."""
    longest = indptr[0] if dense else np.diff(indptr).max(initial=0)
    width = max(int(longest), len(places), p + 1)
    wide, each = np.zeros((3 + learners, width)), np.zeros((11, learners))
    return np.zeros(longest, dtype=np.int64), wide, each


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> row, with the arguments of ``sparse.make_learn`` and, after totals, the arrays of
    ``Layout.block``, p, the number of numeric columns, and the row to begin with. The last ones are
    those of ``scratch``: a loop that makes arrays is loaded with all that numba knows of arrays.

    It ends after the last row, or where a change of reference or a solve of the first rows is due:
    at row i, which has been observed already, as ``observed`` says to the next call; or, where it
    returns ~i, before row i.
    """
    L, _, width, bias, dense = shape
    assert bias == 1, rule.name
    Own: Any = rule.state.own
    Hyper: Any = rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    load_own, store_own = take(n_own), put(n_own)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_hyper = take(len(fields(Hyper)))
    storage: Any = rule.storage
    second, first = storage.second, storage.first
    both = second and first
    terms, pull, update, step = storage.terms, storage.pull, rule.update, rule.step
    share_of_B, learns_G = storage.share, storage.learns_first
    row_loss, exact_steps = make_losses(rule, loss, shape), make_solver(rule, loss, shape)
    miss, mean = miss_of(shape), loss.mean
    squared, probable = loss.quadratic, loss.probabilistic
    regression = not loss.classifies
    at_g = [slot.name for slot in rule.own_slots].index("g") if first else 0
    referred = centres(loss, shape.classes)
    first_account = len(AT)
    accounted = len(rule.total_slots) > first_account and squared and L == 1
    t_, n_, next_, lam_, N_, lead_ = (AT[x] for x in ("t", "n", "next", "lam", "N", "lead"))
    labels_, mean_, M2_ = AT["labels"], AT["y_mean"], AT["y_M2"]
    min_, max_, c_y_, s_y_ = AT["y_min"], AT["y_max"], AT["c_y"], AT["s_y"]
    mse_, v_, since_ = AT["mse"], AT["v"], AT["since"]
    recent_n_, recent_t_, all_n_ = AT["recent_n"], AT["recent_t"], AT["all_n"]
    horizon_ = AT["horizon"]
    recent_a_, all_a_, scale_ = AT["recent_a"], AT["all_a"], AT["scale"]
    twice, sparse_unit_ = 2.0 if squared else 1.0, sparse_unit(squared)
    squares_ = AT["squares"]
    solves = second and probable
    pulls = pull_of_pass(squared, L)

    def shown(totals: Any, margin: float) -> Any:
        """The progressive prediction: of numbers, at most a range of the labels away from them."""
        if not squared or totals[labels_] == 0.0:
            return margin
        far = totals[max_] - totals[min_]
        return min(max(margin, totals[min_] - far), totals[max_] + far)

    def observe_label(totals: Any, y: float, h: float) -> None:
        n = totals[labels_] + h
        if totals[labels_] == 0.0:
            totals[min_] = totals[max_] = y
        totals[min_], totals[max_] = min(totals[min_], y), max(totals[max_], y)
        d = y - totals[mean_]
        totals[labels_] = n
        totals[mean_] += d * (h / n)
        totals[M2_] += h * d * (y - totals[mean_])

    def learn(
        cells: Any,
        totals: Any,
        reference: Any,
        vectors: Any,
        A: Any,
        P: Any,
        places: Any,
        p: int,
        row: int,
        observed: bool,
        sums: Any,
        hyper: Any,
        clock: float,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
        at: Any,
        wide: Any,
        each: Any,
    ) -> int:
        most, size = len(places), used(places, p)
        x, xs, z, u = wide[0], wide[1], wide[2], wide[3:]
        m, g, tried = each[0:1], each[1:2], each[2:3]
        chi, reached, slopes, s, a = each[3], each[4], each[5], each[6], each[7]
        s_G, none, scratch = each[8], each[9], each[10]
        h = Hyper(*load_hyper(hyper, 0, 1))
        due = len(y)
        steepest = 0.0
        again = solves and P.shape[1] == P.shape[2]
        for i in range(row, len(y)):
            weight_of_row = importance[i]
            learns = weight_of_row > 0.0
            start, entries = span(indptr, i, bias, dense)
            for j in range(p + 1):
                x[j] = 0.0
            count = 0
            for n in range(1, entries):
                j, value = entry(indices, values, start, n, bias, dense)
                if j <= p:
                    x[j] = value
                elif value != 0.0:
                    at[count], xs[count] = j, value
                    count += 1
            if learns:
                if not observed:
                    totals[t_] += 1.0
                    totals[n_] += weight_of_row
                    totals[squares_] += weight_of_row * weight_of_row
                    observe(reference, x, p, weight_of_row, totals[n_])
                    others = (totals[n_] - weight_of_row) / weight_of_row
                    if beyond(reference, x, p, others):
                        totals[next_] = totals[t_]
                    refreshed = second and totals[t_] % REFRESH == 0.0
                    solved = again and is_due(totals[t_])
                    if totals[t_] >= totals[next_] or refreshed or solved:
                        due = i
                        break
                observed = False
                standardise(reference, x, p, z)
            else:
                for j in range(1, p + 1):
                    scale = reference[S, j]
                    z[j] = (x[j] - reference[C, j]) / scale if scale > 0.0 else 0.0
            z[0] = 1.0
            for j in range(p + 1, size):
                z[j] = 0.0
            length = 1.0
            for j in range(1, p + 1):
                length += z[j] * z[j]
            if first and learns:
                bound = math.sqrt((totals[n_] - weight_of_row) / weight_of_row)
                for j in range(1, p + 1):
                    if abs(z[j]) > bound:
                        for k in range(L):
                            vectors[k, G, j] *= bound / abs(z[j])
            for k in range(L):
                m[0, k] = g[0, k] = chi[k] = 0.0
            mean_h = mean_importance(totals)
            unit = sparse_unit_ * passes_held(totals) * mean_h
            for n in range(count):
                j, value = at[n], xs[n]
                if n + 8 < count:
                    prefetch(cells, at[n + 8] * width, width)
                shared = Shared(*load_shared(cells, j * width, 1))
                if learns:
                    new = shared.n == 0.0
                    if first and outweighs(shared, value, weight_of_row):
                        by = squash(shared, value, weight_of_row)
                        for k in range(L):
                            cell = j * width + n_shared + at_g * L + k
                            cells[cell] = number(cells[cell]) * by
                    shared = see(shared, value, weight_of_row)
                    if second and new and size < most:
                        shared = Shared(shared.n, shared.q, float(size))
                        places[size] = j
                        reference[S, size] = abs(value)
                        for k in range(L):
                            P[k, size, size % P.shape[2]] = 1.0 / totals[lam_]
                        size += 1
                    store_shared(cells, j * width, 1, shared)
                    shared = Shared(*load_shared(cells, j * width, 1))
                elif shared.n == 0.0:
                    continue  # nothing is known of it: D is 0
                place = int(shared.place)
                if place > 0:
                    z[place] = value / reference[S, place]
                if shared.q > 0.0:
                    length += value * (value / shared.q)
                for k in range(L):
                    own = Own(*load_own(cells, j * width + n_shared + k, L))
                    scale = totals[k * n_totals + scale_]
                    dm, dchi, dg = terms(own, shared, value, scale, unit, h)
                    m[0, k] += dm
                    chi[k] += dchi
                    g[0, k] += dg
            for k in range(L):
                if second:
                    if learns:
                        chi[k] += multiply(P[k], z, size, u[k])
                    m[0, k] += inner(vectors[k, W], z, size)
                if first:
                    g[0, k] += inner(vectors[k, G], z, p + 1)
            part = share_of_B(totals[lead_], h)
            c_y = totals[c_y_]
            for k in range(L):
                margins[i, k] = shown(totals, c_y + part * m[0, k] + (1.0 - part) * g[0, k])
            e = smoothing(totals[t_])
            sums[0] += weight_of_row
            sums[1] += weight_of_row * row_loss(margins, i, y[i], e, hyper, slopes)
            sums[2] += weight_of_row * miss(margins, i, y[i], mean)
            if not learns:
                continue
            if referred and totals[t_] == 1.0:
                c_y = totals[c_y_] = y[i]  # the first label is the reference: the residual is 0
            if second:
                for k in range(L):
                    tried[0, k] = shown(totals, c_y + m[0, k])
                of_B = twice * row_loss(tried, 0, y[i], e, hyper, slopes)
                of_G = of_B
                if first:
                    for k in range(L):
                        tried[0, k] = shown(totals, c_y + g[0, k])
                    of_G = twice * row_loss(tried, 0, y[i], e, hyper, slopes)
                lead, totals[mse_], totals[v_] = step(
                    totals[lead_], totals[mse_], totals[v_], of_B, of_G, squared, weight_of_row,
                    totals[n_], totals[t_],
                )  # fmt: skip
                if first and learns_G(h) and totals[horizon_] == 0.0:
                    if (lead > 0.0) != (totals[lead_] > 0.0):
                        totals[since_] = totals[t_]
                    totals[lead_] = lead
            goal = y[i] - c_y if referred else y[i]
            for k in range(L):
                s[k] = a[k] = s_G[k] = 0.0
            if second:
                exact_steps(m, 0, chi, goal, weight_of_row, hyper, s, a, scratch)
                if accounted:
                    audit(
                        totals, first_account, totals[t_] == 1.0, y[i] - margins[i, 0],
                        goal - m[0, 0], chi[0], weight_of_row,
                    )  # fmt: skip
                for k in range(L):
                    for j in range(size):
                        vectors[k, W, j] += s[k] * u[k, j]
                    steepest = max(steepest, absorb(A[k], P[k], z, u[k], size, a[k]))
                    totals[k * n_totals + recent_a_] += a[k]
                    totals[k * n_totals + all_a_] += a[k]
                totals[recent_n_] += weight_of_row
                totals[all_n_] += weight_of_row
                totals[recent_t_] += 1.0
            if first and learns_G(h) and not (both and totals[horizon_] > 0.0):
                totals[N_] += weight_of_row * length
                pace = h.eta * math.sqrt(totals[t_] / totals[N_])
                if referred:
                    pace *= totals[s_y_]
                if not (both and probable):  # else the slopes are those of the last prediction
                    row_loss(g, 0, goal, e, hyper, slopes)
                for k in range(L):
                    total = 0.0
                    for j in range(p + 1):
                        if z[j] != 0.0:
                            vectors[k, H, j] = grown(
                                vectors[k, H, j], z[j], slopes[k], weight_of_row
                            )
                            root_of_H = math.sqrt(vectors[k, H, j])
                            if root_of_H > 0.0:
                                total += z[j] * (z[j] / root_of_H)
                    for n in range(count):
                        shared = Shared(*load_shared(cells, at[n] * width, 1))
                        own = Own(*load_own(cells, at[n] * width + n_shared + k, L))
                        total += pull(own, shared, xs[n], slopes[k], weight_of_row)
                    reached[k] = pace * total
                exact_steps(g, 0, reached, goal, weight_of_row, hyper, s_G, none, scratch)
                for k in range(L):
                    s_G[k] *= pace
                    for j in range(p + 1):
                        root_of_H = math.sqrt(vectors[k, H, j])
                        if z[j] != 0.0 and root_of_H > 0.0:
                            vectors[k, G, j] += s_G[k] * (z[j] / root_of_H)
            elif both:
                for k in range(L):
                    slopes[k] = 0.0  # G's H stays, as its weights do
            decay = 0.0
            if totals[horizon_] > 0.0:
                decay = pulls * weight_of_row * (totals[n_] / totals[horizon_])
            for n in range(count):
                shared = Shared(*load_shared(cells, at[n] * width, 1))
                for k in range(L):
                    scale = totals[k * n_totals + scale_]
                    own = Own(*load_own(cells, at[n] * width + n_shared + k, L))
                    move = Move(
                        s[k], a[k], scale, unit, slopes[k], weight_of_row, s_G[k], decay, mean_h
                    )  # fmt: skip
                    own = update(own, shared, xs[n], move, clock, h)
                    store_own(cells, at[n] * width + n_shared + k, L, own)
            if regression:
                observe_label(totals, y[i], weight_of_row)
            if steepest > STEEP:
                due = ~(i + 1)
                break
        if second:
            for k in range(L):
                whole_triangle(A[k], size)
        return due

    return learn
