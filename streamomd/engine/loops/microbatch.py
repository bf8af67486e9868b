"""The loops of sharded mode: a micro-batch of rows is observed and predicted, stepped, applied.

Three loops instead of one, because between them is a sum over partition owners: each gives the
numbers of its own partitions, one of them takes the steps from the sums, and all apply these. The
numbers of a row are ``step.numbers_of``'s. Compiled by ``engine.compile``; for rules whose
``modes`` include it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import add, combine, put, take
from streamomd.engine.loops.row import Shape, entry, make_decide_row, move_numbers, numbers_of, span
from streamomd.engine.loops.sparse import AHEAD
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields


def make_sense(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """sense(…): observes all rows, then sums each partition's share of margins and the like.

    cells, totals, hyper and rows as ``loops.make_learn`` has them. edges: (partitions + 1,), the
    coordinates between partitions. out: (partitions * rows * numbers,), zeros, written. touched:
    (partitions * rows,), zeros; 1 is written where a row has an entry in a partition: other numbers
    stay 0.0. No number is -0.0, because each is added to 0.0.
    """
    L, _, width, bias, dense = shape
    Own, Shared, Totals, Hyper = rule.state.own, rule.state.shared, rule.state.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, store_own = take(n_own), put(n_own)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_totals, load_hyper = take(len(fields(Totals))), take(n_rule)
    (sums, maxima, gathers), size = rule.numbers, numbers_of(rule, L)
    load_q, store_q, add_q = take(sums), put(sums), combine(sums, maxima)
    load_r, store_r, add_r = take(gathers), put(gathers), add(gathers)
    observe, align = of(rule.observe, "function"), of(rule, "align")
    weight, part, terms = rule.weight, of(rule.row, "part"), of(rule.row, "terms")
    observes, aligns, parts = (
        rule.observe is not None,
        rule.align is not None,
        has(rule.row, "part"),
    )
    catches_up, catch_up = has(rule.row, "catch_up"), of(rule.row, "catch_up")
    touches, weighted = observes or catches_up, rule.observe is not None and rule.observe.weighted

    def sense(
        cells: Any,
        totals: Any,
        hyper: Any,
        clock: float,
        edges: Any,
        importance: Any,
        indptr: Any,
        indices: Any,
        values: Any,
        out: Any,
        touched: Any,
    ) -> None:
        stored, rows = len(indices), len(importance)
        # A pass of its own: predictions see what all rows of the micro-batch show.
        if touches:
            for i in range(rows):
                t = clock + (i + 1.0)
                start, entries = span(indptr, i, bias, dense)
                p = 0
                for n in range(entries):
                    j, x = entry(indices, values, start, n, bias, dense)
                    if not dense and start + n + AHEAD < stored:
                        prefetch(cells, (indices[start + n + AHEAD] + bias) * width, width)
                    if x == 0.0:
                        continue
                    while j >= edges[p + 1]:
                        p += 1
                    at = j * width
                    old = Shared(*load_shared(cells, at, 1))
                    shared = old
                    if observes:
                        to = (p * rows + i) * size
                        scaled = x * importance[i] if weighted else x
                        shared, dq = observe(old, scaled, t, Hyper(*load_hyper(hyper, 0, 1)))
                        store_q(out, to, 1, add_q(load_q(out, to, 1), dq))
                        if shared != old:
                            store_shared(cells, at, 1, shared)
                    if catches_up or (aligns and shared != old):
                        for k in range(L):
                            h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                            own = Own(*load_own(cells, at + n_shared + k, L))
                            whole = Totals(*load_totals(totals, k * n_totals, 1))
                            after = (
                                catch_up(own, old, shared, whole, t, h)
                                if catches_up
                                else align(own, old, shared, whole, t, h)
                            )
                            store_own(cells, at + n_shared + k, L, after)
        for i in range(rows):
            t = clock + (i + 1.0)
            start, entries = span(indptr, i, bias, dense)
            p = 0
            for n in range(entries):
                j, x = entry(indices, values, start, n, bias, dense)
                if not touches and not dense and start + n + AHEAD < stored:
                    prefetch(cells, (indices[start + n + AHEAD] + bias) * width, width)
                if x == 0.0:
                    continue
                while j >= edges[p + 1]:
                    p += 1
                at = j * width
                touched[p * rows + i] = 1
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
    L, n_move, size = shape.learners, move_numbers(rule), numbers_of(rule, shape.learners)
    decide_row = make_decide_row(rule, loss, shape)

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
        losses, slopes = np.zeros(L), np.zeros(L)
        numbers = len(y) * size
        summed = np.empty(numbers)
        for m in range(numbers):
            # Partition after partition, so that sums do not depend on how many owners there are.
            summed[m] = found[m]
        for at in range(numbers, len(found), max(1, numbers)):
            for m in range(numbers):
                summed[m] += found[at + m]
        for i in range(len(y)):
            clock += 1.0
            decide_row(
                totals, sums, hyper, clock, summed, i * size, i, y, importance, losses,
                slopes, moves, i * L * n_move, margins, (),
            )  # fmt: skip

    return decide


def make_apply(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """apply(…): updates the coordinates of each row by its step, in order."""
    L, _, width, bias, dense = shape
    Own, Shared, Hyper, Move = rule.state.own, rule.state.shared, rule.hyper, rule.state.move
    n_shared, n_own, n_move = len(rule.shared_slots), len(rule.own_slots), move_numbers(rule)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, store_own, load_shared = take(n_own), put(n_own), take(n_shared)
    load_hyper, load_move, update = take(n_rule), take(n_move - 1), rule.update

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
            start, entries = span(indptr, i, bias, dense)
            for n in range(entries):
                j, x = entry(indices, values, start, n, bias, dense)
                if x == 0.0:
                    continue
                at = j * width
                shared = Shared(*load_shared(cells, at, 1))
                for k in range(L):
                    if moves[(i * L + k) * n_move] != 0.0:
                        move = Move(*load_move(moves, (i * L + k) * n_move + 1, 1))
                        h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                        own = Own(*load_own(cells, at + n_shared + k, L))
                        store_own(
                            cells, at + n_shared + k, L, update(own, shared, x, move, clock, h)
                        )

    return apply
