"""The loops of sharded mode: a micro-batch of rows is observed and predicted, stepped, applied.

Three loops instead of one, for what lies between them is a sum over owners of coordinates: each
gives the numbers of its own partitions, and all take the same steps from the sums. In a row's place
of a partition's numbers stand the sums of ``observe``, then each learner's margin, then what
``terms`` gathers for each learner. Compiled by ``engine.fuse``; for rules whose ``modes`` say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine import nothing
from streamomd.engine.cells import add, put, take
from streamomd.engine.loops import AHEAD
from streamomd.engine.prefetch import prefetch
from streamomd.engine.row import Shape, entry, miss_of, number_of_class, target
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields


def numbers_of(rule: Rule, learners: int) -> int:
    """Numbers of a row that are summed over the partitions."""
    return rule.sums + learners * (1 + rule.gathers)


def make_sense(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """sense(…): observes all rows, then sums each partition's share of margins and the like.

    cells, totals, hyper and rows as ``loops.make_learn`` has them. edges: (partitions + 1,), the
    coordinates between partitions. out: (partitions * rows * numbers,), zeros, written.
    """
    L, _, width, bias, dense = shape
    Own, Shared, Totals, Hyper = rule.own, rule.shared, rule.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, store_own = take(n_own), put(n_own)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_totals, load_hyper = take(len(fields(Totals))), take(n_rule)
    sums, gathers, size = rule.sums, rule.gathers, numbers_of(rule, L)
    load_q, store_q, add_q = take(sums), put(sums), add(sums)
    load_r, store_r, add_r = take(gathers), put(gathers), add(gathers)
    observe, align = rule.observe or nothing.observe, rule.align or nothing.align
    weight, part, terms = rule.weight, rule.part or nothing.part, rule.terms or nothing.terms
    observes, aligns, parts = (
        rule.observe is not None,
        rule.align is not None,
        rule.part is not None,
    )
    touches = observes or aligns

    def sense(
        cells: Any,
        totals: Any,
        hyper: Any,
        clock: float,
        edges: Any,
        rows: int,
        indptr: Any,
        indices: Any,
        values: Any,
        out: Any,
    ) -> None:
        stored = len(indices)
        if touches:
            for i in range(rows):
                t = clock + (i + 1.0)
                start = i * indptr[0] if dense else indptr[i]
                stop = start + indptr[0] if dense else indptr[i + 1]
                p = 0
                for n in range(start - bias, stop):
                    j, x = entry(indices, values, n, start, bias, dense)
                    if not dense and n + AHEAD < stored:
                        prefetch(cells, (indices[n + AHEAD] + bias) * width, width)
                    if x == 0.0:
                        continue
                    while j >= edges[p + 1]:
                        p += 1
                    at = j * width
                    old = Shared(*load_shared(cells, at, 1))
                    shared = old
                    if observes:
                        to = (p * rows + i) * size
                        shared, dq = observe(old, x, t, Hyper(*load_hyper(hyper, 0, 1)))
                        store_q(out, to, 1, add_q(load_q(out, to, 1), dq))
                        if shared != old:
                            store_shared(cells, at, 1, shared)
                    if aligns and (not observes or shared != old):
                        for k in range(L):
                            h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                            own = Own(*load_own(cells, at + n_shared + k, L))
                            whole = Totals(*load_totals(totals, k * n_totals, 1))
                            after = align(own, old, shared, whole, t, h)
                            store_own(cells, at + n_shared + k, L, after)
        for i in range(rows):
            t = clock + (i + 1.0)
            start = i * indptr[0] if dense else indptr[i]
            stop = start + indptr[0] if dense else indptr[i + 1]
            p = 0
            for n in range(start - bias, stop):
                j, x = entry(indices, values, n, start, bias, dense)
                if not touches and not dense and n + AHEAD < stored:
                    prefetch(cells, (indices[n + AHEAD] + bias) * width, width)
                if x == 0.0:
                    continue
                while j >= edges[p + 1]:
                    p += 1
                at = j * width
                to = (p * rows + i) * size + sums
                shared = Shared(*load_shared(cells, at, 1))
                for k in range(L):
                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                    own = Own(*load_own(cells, at + n_shared + k, L))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    if parts:
                        out[to + k] += part(own, shared, x, whole, t, h)
                    else:
                        out[to + k] += weight(own, shared, whole, t, h) * x
                    if gathers:
                        r = to + L + k * gathers
                        more = terms(own, shared, x, whole, t, h)
                        store_r(out, r, 1, add_r(load_r(out, r, 1), more))

    return sense


def make_decide(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """decide(…): sums over the partitions, in their order; then takes each row's step, in order.

    found: (partitions * rows * numbers,). moves: (rows * learners * n,), written. totals, sums,
    hyper, y, importance and margins as ``loops.make_learn`` has them.
    """
    L, classes, _, _, _ = shape
    Totals, Hyper, Move, Aim = rule.totals, rule.hyper, rule.move, loss.hyper
    n_totals, n_move, n_rule = len(rule.total_slots), len(fields(Move)), len(fields(Hyper))
    n_hyper = n_rule + len(fields(Aim))
    load_totals, store_totals = take(len(fields(Totals))), put(len(fields(Totals)))
    load_hyper, load_aim, store_move = take(n_rule), take(n_hyper - n_rule), put(n_move)
    at_q, gathers, size = rule.sums, rule.gathers, numbers_of(rule, L)
    load_q, load_r = take(rule.sums), take(gathers)
    step, clamp, clamps = rule.step, rule.clamp or nothing.clamp, rule.clamp is not None
    value, slope, mean, couple = loss.value, loss.slope, loss.mean, loss.couple or nothing.couple
    coupled, miss = loss.coupled, miss_of(shape)

    def decide(
        totals: Any,
        sums: Any,
        hyper: Any,
        clock: float,
        found: Any,
        y: Any,
        importance: Any,
        moves: Any,
        margins: Any,
    ) -> None:
        slopes = np.zeros(L)
        numbers = len(y) * size
        summed = np.empty(numbers)
        for m in range(numbers):
            summed[m] = found[m]
        for at in range(numbers, len(found), max(1, numbers)):
            for m in range(numbers):
                summed[m] += found[at + m]
        for i in range(len(y)):
            clock += 1.0
            at = i * size
            q = load_q(summed, at, 1)
            for k in range(L):
                margins[i, k] = summed[at + at_q + k]
                if clamps:
                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    margins[i, k] = clamp(margins[i, k], whole, h)
            row_loss = 0.0
            if coupled:
                row_loss = couple(margins, i, number_of_class(y[i], classes), slopes)
            for k in range(L):
                p, aim = margins[i, k], target(y[i], k, classes, L)
                goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                if coupled:
                    suffered, g = row_loss, slopes[k]
                else:
                    suffered, g = value(p, aim, goal), slope(p, aim, goal)
                    row_loss += suffered
                r = load_r(summed, at + at_q + L + k * gathers, 1)
                row = Row(p, aim, importance[i], suffered, g, q, r)
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                move, whole = step(row, whole, clock, h)
                store_totals(totals, k * n_totals, 1, whole)
                store_move(moves, (i * L + k) * n_move, 1, move)
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return decide


def make_apply(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """apply(…): updates the coordinates of each row by its step, in order."""
    L, _, width, bias, dense = shape
    Own, Shared, Hyper, Move = rule.own, rule.shared, rule.hyper, rule.move
    n_shared, n_own, n_move = len(rule.shared_slots), len(rule.own_slots), len(fields(Move))
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, store_own, load_shared = take(n_own), put(n_own), take(n_shared)
    load_hyper, load_move, update = take(n_rule), take(n_move), rule.update

    def apply(
        cells: Any,
        hyper: Any,
        clock: float,
        rows: int,
        indptr: Any,
        indices: Any,
        values: Any,
        moves: Any,
    ) -> None:
        for i in range(rows):
            clock += 1.0
            active = False
            for k in range(L):
                active = active or moves[(i * L + k) * n_move] != 0.0
            if not active:
                continue
            start = i * indptr[0] if dense else indptr[i]
            stop = start + indptr[0] if dense else indptr[i + 1]
            for n in range(start - bias, stop):
                j, x = entry(indices, values, n, start, bias, dense)
                if x == 0.0:
                    continue
                at = j * width
                shared = Shared(*load_shared(cells, at, 1))
                for k in range(L):
                    move = Move(*load_move(moves, (i * L + k) * n_move, 1))
                    if move[0] != 0.0:
                        h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                        own = Own(*load_own(cells, at + n_shared + k, L))
                        store_own(
                            cells, at + n_shared + k, L, update(own, shared, x, move, clock, h)
                        )

    return apply
