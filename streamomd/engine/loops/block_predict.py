"""Predictions of learners on standardised inputs: a linear model in raw units, and its variance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops.block_row import inner, make_losses, multiply
from streamomd.engine.loops.load_store import take
from streamomd.engine.loops.rebase import AT, G, W, mean_importance, passes_held, used
from streamomd.engine.loops.reference import C, S
from streamomd.engine.loops.row import Shape, entry, miss_of, span
from streamomd.losses import Loss
from streamomd.rules.common.standardized import Shared, leverage, precision, smoothing, sparse_unit
from streamomd.rules.contract import Rule, fields

FEW, FARTHEST = 16.0, 5.0
"""After ``FEW`` rows the scale of labels, but for the square loss, is that of labels at most
``FARTHEST`` standard deviations from their mean."""


def make_labels(squared: bool) -> tuple[Callable[..., Any], Callable[..., None]]:
    """(shown(totals, margin), observe_label(totals, y, h)): of the progressive prediction."""
    labels_, mean_, M2_, t_ = AT["labels"], AT["y_mean"], AT["y_M2"], AT["t"]
    min_, max_ = AT["y_min"], AT["y_max"]

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
        # Else a few huge labels would set the pace of all. After equal ones any other is a scale.
        if not squared and totals[t_] > FEW and totals[M2_] > 0.0:
            far = FARTHEST * math.sqrt(totals[M2_] / totals[labels_])
            y = min(max(y, totals[mean_] - far), totals[mean_] + far)
        d = y - totals[mean_]
        totals[labels_] = n
        totals[mean_] += d * (h / n)
        totals[M2_] += h * d * (y - totals[mean_])

    return shown, observe_label


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): predicts each row and adds to sums; learns nothing. Arguments as ``learn``'s, and
    the ``saved_mix`` of the state.

    The same linear model in raw units as ``raw_block``.
    """
    L, _, width, bias, dense = shape
    Own = rule.state.own
    n_shared, n_own = len(rule.shared_slots), len(rule.own_slots)
    load_own, load_shared = take(n_own), take(n_shared)
    weight = rule.weight
    row_loss, miss, mean = make_losses(rule, loss, shape), miss_of(shape), loss.mean
    raw = make_raw(rule, loss, shape)
    t_ = AT["t"]

    def predict(
        cells: Any,
        totals: Any,
        reference: Any,
        vectors: Any,
        A: Any,
        P: Any,
        places: Any,
        p: int,
        sums: Any,
        hyper: Any,
        clock: float,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
        mix: Any,
    ) -> None:
        w, slopes = np.zeros((L, len(places))), np.zeros(L)
        raw(totals, reference, vectors, p, mix, w)
        e = smoothing(totals[t_])
        for i in range(len(y)):
            start, entries = span(indptr, i, bias, dense)
            for k in range(L):
                margins[i, k] = w[k, 0]
            for n in range(1, entries):
                j, x = entry(indices, values, start, n, bias, dense)
                if x == 0.0:
                    continue
                if j <= p:
                    for k in range(L):
                        margins[i, k] += w[k, j] * x
                    continue
                shared = Shared(*load_shared(cells, j * width, 1))
                place = int(shared.place)
                for k in range(L):
                    own = Own(*load_own(cells, j * width + n_shared + k, L))
                    piece = weight(own, mix[1], mix[2])
                    if place > 0:
                        piece += w[k, place]
                    margins[i, k] += piece * x
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss(margins, i, y[i], e, hyper, slopes)
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return predict


def make_raw(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """raw(totals, reference, vectors, p, mix, w): the block's weights for rows in raw units.

    w: (learners, block), written. W_j = (mix_0 w_j + mix_2 g_j) / s_j; the bias also takes the
    references: c_y - sum W_j c_j. Of a sparse coordinate: what its place adds to its own weight.
    """
    L = shape.learners
    storage: Any = rule.storage
    second, first, c_y_ = storage.second, storage.first, AT["c_y"]

    def raw(totals: Any, reference: Any, vectors: Any, p: int, mix: Any, w: Any) -> None:
        for k in range(L):
            offset = 0.0
            for j in range(w.shape[1]):
                total = mix[0] * vectors[k, W, j] if second else 0.0
                if j <= p:
                    total += mix[2] * vectors[k, G, j] if first else 0.0
                scale = reference[S, j]
                w[k, j] = total / scale if scale > 0.0 else 0.0
                offset += w[k, j] * reference[C, j]
            w[k, 0] += totals[c_y_] - offset + mix[3 + k]

    return raw


def make_spread(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """spread(…): each learner's x'P x of a row, in z, the variance of its margin in units of the
    noise; after those z'P (prior w), by which the prior of the block has moved the margin towards
    0. Arguments as ``predict``'s, but that margins, which they are written to, is twice as wide."""
    L, _, width, bias, dense = shape
    Own: Any = rule.state.own
    Hyper: Any = rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    load_own, load_shared, load_hyper = take(n_own), take(n_shared), take(len(fields(Hyper)))
    unit, scale_, outside_ = sparse_unit(loss.quadratic), AT["scale"], AT["outside"]
    lam_, lam_bias_ = AT["lam"], AT["lam_bias"]

    def spread(
        cells: Any,
        totals: Any,
        reference: Any,
        vectors: Any,
        A: Any,
        P: Any,
        places: Any,
        p: int,
        sums: Any,
        hyper: Any,
        clock: float,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
    ) -> None:
        size, h = used(places, p), Hyper(*load_hyper(hyper, 0, 1))
        z, u, moved = np.zeros(size), np.zeros(size), np.zeros((L, size))
        move(P, vectors, totals[lam_], totals[lam_bias_], size, z, moved)
        prior = h.prior_sparse * unit * passes_held(totals) * mean_importance(totals)
        prior *= totals[outside_]
        for i in range(len(y)):
            start, entries = span(indptr, i, bias, dense)
            z[:] = 0.0
            z[0] = 1.0
            for j in range(1, p + 1):
                if reference[S, j] > 0.0:
                    z[j] = -reference[C, j] / reference[S, j]
            for k in range(L):
                margins[i, k] = 0.0
            for n in range(1, entries):
                j, x = entry(indices, values, start, n, bias, dense)
                if x == 0.0:
                    continue
                if j <= p:
                    if reference[S, j] > 0.0:
                        z[j] = (x - reference[C, j]) / reference[S, j]
                    continue
                shared = Shared(*load_shared(cells, j * width, 1))
                if shared.n == 0.0:
                    continue  # never seen: its weight is 0
                place = int(shared.place)
                if place > 0:
                    z[place] = x / reference[S, place]
                    continue
                for k in range(L):
                    own = Own(*load_own(cells, j * width + n_shared + k, L))
                    scale = totals[k * n_totals + scale_]
                    D = precision(own.S, shared.q, scale, prior)
                    margins[i, k] += leverage(x, D)
            for k in range(L):
                margins[i, k] += multiply(P[k], z, size, u)
                margins[i, L + k] = inner(moved[k], z, size)

    return spread


def move(
    P: Any, vectors: Any, lam: float, lam_bias: float, size: int, pulls: Any, moved: Any
) -> None:
    """moved = P (prior w), by which the prior has moved each learner's w. pulls: scratch."""
    for k in range(len(moved)):
        pulls[0] = lam_bias * vectors[k, W, 0]
        for j in range(1, size):
            pulls[j] = lam * vectors[k, W, j]
        multiply(P[k], pulls, size, moved[k])
