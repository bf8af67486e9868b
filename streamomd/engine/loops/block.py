"""The loop for learners on standardised inputs, with a full matrix over a block of coordinates.

Row i of the block is coordinate ``places[i]``: the bias, the p numeric columns, then sparse
coordinates in the order in which they were first seen, up to the block's end. Of two predictors
that learn the same rows, B keeps A (the information of the data) and P = (A + prior)^-1 over the
block, and a diagonal outside; G is AdaGrad. ``storage.second`` and ``storage.first`` say which of
them a rule has; with both, a row's prediction is wB m_B + (1 - wB) m_G. Margins are relative to
c_y. Most of B's steps are pooled, see ``rules.common.pooled``. In wide blocks A and P are
block-diagonal: see ``rebase``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops import block_entries, block_predict, sparse
from streamomd.engine.loops.block_entries import EACH, X, leverage_outside, reach_first
from streamomd.engine.loops.block_row import (
    add_row,
    audit,
    centres,
    dot,
    make_losses,
    make_solver,
    multiply,
    padded,
    shrink,
    whole_triangle,
)
from streamomd.engine.loops.block_solve import is_due
from streamomd.engine.loops.frozen import is_scored, period
from streamomd.engine.loops.load_store import inlined, take
from streamomd.engine.loops.rebase import (
    AT,
    DIAGONAL,
    POOL,
    ROWS,
    G,
    H,
    W,
    mean_importance,
    passes_held,
    used,
)
from streamomd.engine.loops.reference import (
    LARGEST,
    first_scales,
    inverses,
    is_beyond,
    observe,
    standardise_by,
)
from streamomd.engine.loops.row import FAR, Shape, miss_of
from streamomd.losses import Loss
from streamomd.rules.common import pooled
from streamomd.rules.common.standardized import (
    along_outside,
    grown,
    pull_of_pass,
    smoothing,
    sparse_unit,
)
from streamomd.rules.contract import Rule, fields

make_look, make_predict = sparse.make_look, block_predict.make_predict
STEEP = 1e3
"""A rank-one update that shrinks P by more than this factor leaves the rounding of what it cancels:
P is inverted again after the row."""
Z, SQUARES, COLUMNS, STEPS = 1, 3, 4, 5
"""Rows of ``wide``: 0 is x, 2 the inverses of scales, Z all of z, COLUMNS that of numeric columns
alone; from STEPS on each learner has P z, and then G's pulls."""


def scratch(learners: int, places: Any, p: int, indptr: Any, *, dense: bool) -> tuple[Any, ...]:
    """What ``learn`` writes into for itself: of a row's sparse coordinates, of the block's, and of
    the learners."""
    longest = padded(int(indptr[0] if dense else np.diff(indptr).max(initial=0)))
    lanes = np.zeros((block_entries.rows(learners), longest))
    wide = np.zeros((STEPS + 2 * learners, padded(max(len(places), p + 1))))
    return np.zeros(longest, dtype=np.int64), lanes, wide, np.zeros((13, learners))


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> row, with the arguments of ``sparse.make_learn`` and, after totals, the arrays of
    ``Layout.block``, of which vectors are a table of two dimensions, p, the number of numeric
    columns, the row to begin with, and which predictor rests, see ``rules.common.pooled``. The last
    ones are those of ``scratch``: a loop that makes arrays is loaded with all that numba knows of
    arrays.

    It ends after the last row, or where a change of reference, a new P or a solve of the first rows
    is due: at row i, which has been observed already, as ``observed`` says to the next call; or,
    where it returns ~i, before row i.
    """
    L = shape.learners
    assert shape.bias == 1, rule.name
    Hyper: Any = rule.hyper
    names, n_totals = fields(Hyper), len(rule.total_slots)
    load_hyper = take(len(names))
    storage: Any = rule.storage
    second, first = storage.second, storage.first
    both = second and first
    share_of_B, learns_G, step = storage.share, storage.learns_first, rule.step
    row_loss, exact_steps = make_losses(rule, loss, shape), make_solver(rule, loss, shape)
    shown, observe_label = block_predict.make_labels(loss.quadratic)
    miss, mean = miss_of(shape), loss.mean
    squared, probable = loss.quadratic, loss.probabilistic
    regression = not loss.classifies
    referred = centres(loss, shape.classes)
    read, gather = block_entries.make_read(shape), block_entries.make_gather(rule, shape)
    store = block_entries.make_store(rule, shape)
    each = ROWS if second else 3
    prior_ = names.index("prior_sparse") if second else 0
    eta_ = names.index("eta") if first else 0
    first_account = len(AT)
    accounted = n_totals > first_account and squared and L == 1
    t_, n_, next_, lam_, N_, lead_ = (AT[x] for x in ("t", "n", "next", "lam", "N", "lead"))
    c_y_, s_y_ = AT["c_y"], AT["s_y"]
    mse_, v_, since_ = AT["mse"], AT["v"], AT["since"]
    recent_n_, recent_t_, all_n_ = AT["recent_n"], AT["recent_t"], AT["all_n"]
    horizon_, outside_ = AT["horizon"], AT["outside"]
    recent_a_, all_a_, scale_ = AT["recent_a"], AT["all_a"], AT["scale"]
    outside_g_, outside_R_ = AT["outside_g"], AT["outside_R"]
    twice, sparse_unit_ = 2.0 if squared else 1.0, sparse_unit(squared)
    squares_ = AT["squares"]
    solves = second and probable
    pulls = pull_of_pass(squared, L)

    @inlined
    def step_second(
        totals: Any, table: Any, A: Any, P: Any, wide: Any, size: int, s: Any, a: Any, h: float,
        light: bool,
    ) -> float:  # fmt: skip
        """B's step in the block; the largest factor by which P has shrunk."""
        z, steepest, all_of_it = wide[Z], 0.0, padded(size)
        enters = pooled.entering(totals[t_]) if light else 1.0
        for k in range(L):
            w, d = (k * each + W) & FAR, (k * each + DIAGONAL) & FAR
            pool, u = (k * each + POOL) & FAR, (STEPS + k) & FAR
            if light:
                for j in range(all_of_it):
                    table[pool, j] += s[k] * wide[Z, j]
            else:
                for j in range(all_of_it):
                    table[w, j] += s[k] * wide[u, j]
                steepest = max(steepest, shrink(P[k], z, wide[u], size, a[k]))
                for j in range(all_of_it):
                    table[d, j] = pooled.lighter(table[d, j], wide[Z, j], a[k])
            if enters > 0.0:
                add_row(A[k], z, size, enters * a[k])
            totals[k * n_totals + recent_a_] += a[k]
            totals[k * n_totals + all_a_] += a[k]
        totals[recent_n_] += h
        totals[all_n_] += h
        totals[recent_t_] += 1.0
        return steepest

    def take_pools(table: Any, P: Any, wide: Any, size: int, most: float) -> bool:
        """w += P pool; whether a pool is too large for this P, and waits for the next one."""
        large = False
        for k in range(L):
            w, pool, u = k * each + W, k * each + POOL, STEPS + k
            if multiply(P[k], table[pool], size, wide[u]) > most:
                large = True
                continue
            for j in range(size):
                table[w, j] += wide[u, j]
                table[pool, j] = 0.0
        return large

    def reach_columns(table: Any, wide: Any, k: int, size: int, slope: float, h: float) -> float:
        """G's sum of z^2 / sqrt(H) with this row in H, and its pulls, z / sqrt(H)."""
        squares, pull = (k * each + H) & FAR, (STEPS + L + k) & FAR
        for j in range(size):
            table[squares, j] = grown(table[squares, j], wide[COLUMNS, j], slope, h)
        for j in range(size):
            root = math.sqrt(table[squares, j])
            wide[pull, j] = wide[COLUMNS, j] / root if root > 0.0 else 0.0
        return dot(wide, COLUMNS, wide, pull, size)

    def learn(
        cells: Any,
        totals: Any,
        reference: Any,
        table: Any,
        A: Any,
        P: Any,
        places: Any,
        p: int,
        row: int,
        observed: bool,
        rests: int,
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
        lanes: Any,
        wide: Any,
        numbers: Any,
    ) -> int:
        size = used(places, p)
        x, z, r, columns = wide[0], wide[Z], wide[2], wide[COLUMNS]
        front = padded(p + 1)
        m, g, tried = numbers[0:1], numbers[1:2], numbers[2:3]
        chi, reached, slopes, s, a = numbers[3], numbers[4], numbers[5], numbers[6], numbers[7]
        s_G, none, work, own_chi = numbers[8], numbers[9], numbers[10], numbers[11]
        slopes_B = numbers[12]
        h = Hyper(*load_hyper(hyper, 0, 1))
        prior_sparse = hyper[prior_] if second else 0.0
        eta = hyper[eta_] if first else 0.0
        G_learns = first and learns_G(h) and not (both and totals[horizon_] > 0.0)
        lead = totals[lead_]
        part = share_of_B(lead, h)
        unscaled = inverses(reference, size, r)
        due = len(y)
        again = solves and P.shape[1] == P.shape[2]
        for i in range(row, len(y)):
            weight_of_row = importance[i]
            learns = weight_of_row > 0.0
            count = read(cells, indptr, indices, values, i, p, x, at, lanes)
            bound = LARGEST
            if learns:
                if not observed:
                    totals[t_] += 1.0
                    totals[n_] += weight_of_row
                    totals[squares_] += weight_of_row * weight_of_row
                    observe(reference, x, 0, front, weight_of_row, totals[n_])
                bound = math.sqrt((totals[n_] - weight_of_row) / weight_of_row)
            above = standardise_by(r, reference, x, front, columns, min(bound, LARGEST))
            t = totals[t_]
            if learns:
                if not observed:
                    if above > 0 and is_beyond(columns, p, bound):
                        totals[next_] = t
                    renews = second and pooled.refreshes(t)
                    if t >= totals[next_] or renews or (again and is_due(t)):
                        due = i
                        break
                observed = False
                if unscaled > 0:
                    unscaled = first_scales(reference, x, p, r, columns)
                if first and above > 0:
                    for j in range(1, p + 1):
                        if abs(columns[j]) > bound:
                            for k in range(L):
                                table[k * each + G, j] *= bound / abs(columns[j])
            for j in range(front):
                z[j] = columns[j]
            for j in range(front, min(padded(size + count), wide.shape[1])):
                z[j] = 0.0
            size = gather(
                cells, reference, table, P, places, at, lanes, count, size, z, r, totals[lam_],
                weight_of_row, learns,
            )  # fmt: skip
            mean_h = mean_importance(totals)
            prior_now = prior_sparse * mean_h * totals[outside_]
            prior = prior_now * sparse_unit_ * passes_held(totals)
            if totals[lead_] != lead:
                lead = totals[lead_]
                part = share_of_B(lead, h)
            of_turn_B = pooled.turn(t, rests == pooled.REST_B and lead >= pooled.DECIDED)
            of_turn_G = pooled.turn(t, rests == pooled.REST_G and lead <= -pooled.DECIDED)
            awake, G_awake = second and of_turn_B > 0.0, first and of_turn_G > 0.0
            h_B, h_G = of_turn_B * weight_of_row, of_turn_G * weight_of_row
            light = awake and learns and not accounted
            entries, all_of_it = padded(count), padded(size)
            if awake:
                for j in range(all_of_it):
                    wide[SQUARES, j] = wide[Z, j] * wide[Z, j]
            for k in range(L):
                of_k, at_k = k * EACH, k * each
                m[0, k] = g[0, k] = 0.0
                if awake:
                    scale = totals[k * n_totals + scale_]
                    chi[k] = leverage_outside(lanes, of_k, entries, scale, prior)
                    m[0, k] = dot(lanes, block_entries.U, lanes, block_entries.W + of_k, entries)
                    m[0, k] += dot(table, at_k + W, wide, Z, all_of_it)
                    own_chi[k] = dot(table, at_k + DIAGONAL, wide, SQUARES, all_of_it)
                    light = light and pooled.is_light(t, h_B, own_chi[k])
                if G_awake:
                    g[0, k] = dot(lanes, X, lanes, block_entries.G + of_k, entries)
                    g[0, k] += dot(table, at_k + G, wide, COLUMNS, front)
            c_y, of_B = totals[c_y_], part if awake or not first else 0.0
            if both and not G_awake:
                of_B = 1.0
            for k in range(L):
                margins[i, k] = shown(totals, c_y + of_B * m[0, k] + (1.0 - of_B) * g[0, k])
            e = smoothing(t)
            sums[0] += weight_of_row
            sums[2] += weight_of_row * miss(margins, i, y[i], mean)
            if not learns:
                continue
            shown_loss = -1.0
            if referred and t == 1.0:
                c_y = totals[c_y_] = y[i]  # the first label is the reference: the residual is 0
            loss_B = 0.0
            if awake:
                for k in range(L):
                    tried[0, k] = shown(totals, c_y + m[0, k])
                loss_B = row_loss(tried, 0, y[i], e, hyper, slopes_B)
                if L == 1 and tried[0, 0] == margins[i, 0]:
                    shown_loss = loss_B
                if totals[horizon_] == 0.0 and is_scored(int(t)):
                    by = 2.0 * weight_of_row / (weight_of_row + mean_h) * period(int(t))
                    for k in range(L):
                        moved = -prior * block_entries.leaning(lanes, k * EACH, entries)
                        grad, bend = along_outside(slopes_B[k], moved, squared, totals[mse_])
                        totals[outside_g_] += by * grad
                        totals[outside_R_] += by * bend
            loss_G = loss_B
            if both and G_awake:
                for k in range(L):
                    tried[0, k] = shown(totals, c_y + g[0, k])
                loss_G = row_loss(tried, 0, y[i], e, hyper, slopes)
                if L == 1 and tried[0, 0] == margins[i, 0]:
                    shown_loss = loss_G
            if awake and (G_awake or not first):
                other = twice * (loss_G if first else loss_B)
                after, totals[mse_], totals[v_] = step(
                    lead, totals[mse_], totals[v_], twice * loss_B, other, squared, weight_of_row,
                    totals[n_], t, max(of_turn_B, of_turn_G),
                )  # fmt: skip
                if first and learns_G(h) and totals[horizon_] == 0.0:
                    if (after > 0.0) != (lead > 0.0):
                        totals[since_] = t
                    totals[lead_] = after
            if shown_loss < 0.0:
                shown_loss = row_loss(margins, i, y[i], e, hyper, none)
            sums[1] += weight_of_row * shown_loss
            goal = y[i] - c_y if referred else y[i]
            steep, large, pace = False, False, 0.0
            if awake:
                for k in range(L):
                    chi[k] += own_chi[k] if light else multiply(P[k], z, size, wide[STEPS + k])
            if G_learns and G_awake:
                length = dot(wide, COLUMNS, wide, COLUMNS, front)
                length += block_entries.lengths(lanes, entries)
                totals[N_] += h_G * length
                pace = eta * math.sqrt(t / totals[N_])
                if referred:
                    pace *= totals[s_y_]
                if not (both and probable):  # else the slopes are those of the last prediction
                    row_loss(g, 0, goal, e, hyper, slopes)
                for k in range(L):
                    reach = reach_columns(table, wide, k, front, slopes[k], h_G)
                    reach += reach_first(lanes, k * EACH, entries, slopes[k], h_G)
                    reached[k] = pace * reach
            # One right after the other: a processor that looks ahead takes both steps together.
            if awake:
                exact_steps(m, 0, slopes_B, chi, goal, h_B, hyper, s, a, work)
            if G_learns and G_awake:
                exact_steps(g, 0, slopes, reached, goal, h_G, hyper, s_G, none, work)
                for k in range(L):
                    s_G[k] *= pace
                    g_k, pull = (k * each + G) & FAR, (STEPS + L + k) & FAR
                    for j in range(front):
                        table[g_k, j] += s_G[k] * wide[pull, j]
            if awake:
                if accounted:
                    audit(
                        totals, first_account, t == 1.0, y[i] - margins[i, 0], goal - m[0, 0],
                        chi[0], weight_of_row,
                    )  # fmt: skip
                steepest = step_second(totals, table, A, P, wide, size, s, a, h_B, light)
                steep = steepest > STEEP
                if pooled.takes(t):
                    most = mean_h * totals[mse_] if squared else mean_h
                    large = take_pools(table, P, wide, size, most)
            decay = 0.0
            if totals[horizon_] > 0.0:
                decay = pulls * weight_of_row * (totals[n_] / totals[horizon_])
            if awake:
                for k in range(L):
                    a[k] /= totals[k * n_totals + scale_]
            store(
                cells, at, lanes, count, s, a, decay, prior_now, slopes, s_G,
                h_G, awake, G_learns and G_awake,
            )  # fmt: skip
            if regression:
                observe_label(totals, y[i], weight_of_row)
            if steep or large:
                due = ~(i + 1)
                break
        if second:
            for k in range(L):
                whole_triangle(A[k], size)
        return due

    return learn
