"""The loops over rows for rules with state per coordinate. Made for one rule, loss and shape;
compiled by ``engine.compile``. Uncompiled they are plain Python: the compiled ones' oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops import defaults
from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.full_pass import make_gather, make_restrain
from streamomd.engine.loops.load_store import add, combine, gain, inlined, put, take, zeros
from streamomd.engine.loops.row import (
    Shape,
    entry,
    is_implicit,
    make_decide_row,
    make_score,
    move_numbers,
    numbers_of,
    span,
)
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

# ns a non-zero at 32, 64, 96, 128, 192, 256 ahead (NAG, float64, rows of 75): 8.2 7.2 6.0 6.0 6.0
# 6.1 at 2^18 coordinates, 10.6 9.2 8.5 8.5 8.7 8.6 at 2^24; rows of 20 and of 300 end alike. The
# rare, far coordinates stand at the ends of rows: to reach beyond the next end is what helps.
AHEAD = 128


def make_learn(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock: predicts each row, then learns from it.

    cells: (d * width,), a coordinate's shared slots, then its own, slot by slot over the learners.
    totals: (learners * n,). sums: (3,) of importance, loss, and mistakes or squared errors, added
    row by row; of a sweep (learners * 3,). hyper: (learners * n,), the rule's and then the loss's.
    A sparse batch comes as CSR; a dense one as indptr = [columns] and its values row after row.
    indices: uint32. y: targets or class numbers. margins: (rows, learners), written.
    """
    L, _, width, bias, dense = shape
    Own, Shared, Totals = rule.state.own, rule.state.shared, rule.state.totals
    Hyper, Move = rule.hyper, rule.state.move
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_stored, masses, n_move = len(fields(Totals)), rule.masses, move_numbers(rule)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, store_own = take(n_own), put(n_own)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_totals, store_totals = take(n_stored), put(n_stored)
    load_hyper, load_move = take(n_rule), take(n_move - 1)
    n_q, maxima, gathers = rule.numbers
    numbers, at_r = numbers_of(rule, L), n_q + L
    add_q, zero_q, store_q = combine(n_q, maxima), zeros(n_q), put(n_q)
    load_r, store_r, add_r = take(gathers), put(gathers), add(gathers)
    grow = gain(masses)
    observe, align = of(rule.observe, "function"), of(rule, "align")
    observes, aligns = rule.observe is not None, rule.align is not None
    catch_up, catches_up = of(rule.row, "catch_up"), has(rule.row, "catch_up")
    prepare, prepares = of(rule.row, "prepare"), has(rule.row, "prepare")
    part, parts = of(rule.row, "part"), has(rule.row, "part")
    terms, mass = of(rule.row, "terms"), of(rule.sums, "mass")
    weight, update = rule.weight, rule.update
    weighted = rule.observe is not None and rule.observe.weighted
    apart = prepares or (masses > 0 and aligns)  # observing is a pass of its own
    assert not (catches_up and apart), rule.name
    bounded = rule.constraint is not None
    gather = make_gather(rule, loss, shape)
    restrain = make_restrain(rule, loss, shape)
    implicit = is_implicit(rule, loss)
    change = make_change(rule, shape) if implicit else defaults.change
    decide_row = make_decide_row(rule, loss, shape, change)
    one = L == 1

    def learn(
        cells: Any,
        totals: Any,
        sums: Any,
        hyper: Any,
        clock: float,
        indptr: Any,
        indices: Any,
        values: Any,
        y: Any,
        importance: Any,
        margins: Any,
    ) -> float:
        stored = len(indices)
        # Not read where rows are sparse; each kind of array compiles three functions more.
        filled = np.zeros(indptr[0] + bias, dtype=np.uint32) if dense else indices
        moves, found = np.zeros(L * n_move), np.zeros(numbers)
        losses, slopes = np.zeros(L), np.zeros(L)
        grown = np.zeros(L * masses)
        for i in range(len(y)):
            clock += 1.0
            start, entries = span(indptr, i, bias, dense)
            if dense:  # found once, by no branch to be guessed wrong: 6.7 ns a value were 1.6
                entries = bias
                for n in range(bias, indptr[0] + bias):
                    filled[entries] = n
                    entries += values[start + n - bias] != 0.0
            q = zero_q
            margin = 0.0
            found[:] = 0.0
            if apart:
                for m in range(entries):
                    n = filled[m] if dense else m
                    j, x = entry(indices, values, start, n, bias, dense)
                    if not dense and start + n + AHEAD < stored:
                        prefetch(cells, (indices[start + n + AHEAD] + bias) * width, width)
                    if x == 0.0:
                        continue
                    at = j * width
                    old = Shared(*load_shared(cells, at, 1))
                    if observes:
                        size = x * importance[i] if weighted else x
                        shared, dq = observe(old, size, clock, Hyper(*load_hyper(hyper, 0, 1)))
                        q = add_q(q, dq)
                        if shared != old:
                            store_shared(cells, at, 1, shared)
                            for k in range(L):
                                if aligns:
                                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                                    own = Own(*load_own(cells, at + n_shared + k, L))
                                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                                    after = align(own, old, shared, whole, clock, h)
                                    store_own(cells, at + n_shared + k, L, after)
                                    if masses:
                                        after = Own(*load_own(cells, at + n_shared + k, L))
                                        less = mass(own, old, whole, clock, h)
                                        more = mass(after, shared, whole, clock, h)
                                        grow(grown, k * masses, more, less)
                for k in range(L):
                    if prepares:
                        h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                        whole = Totals(*load_totals(totals, k * n_totals, 1))
                        # The whole row is observed: what depends on its sums is known.
                        store_totals(totals, k * n_totals, 1, prepare(q, whole, clock, h))
                    if masses:
                        # Margins need these sums, too.
                        gather(cells, totals, hyper, clock, k, grown, False)
            for m in range(entries):
                n = filled[m] if dense else m
                j, x = entry(indices, values, start, n, bias, dense)
                if not apart and not dense and start + n + AHEAD < stored:
                    prefetch(cells, (indices[start + n + AHEAD] + bias) * width, width)
                if x == 0.0:
                    continue
                at = j * width
                old = Shared(*load_shared(cells, at, 1))
                shared = old
                moved = False
                if observes and not apart:
                    size = x * importance[i] if weighted else x
                    shared, dq = observe(old, size, clock, Hyper(*load_hyper(hyper, 0, 1)))
                    q = add_q(q, dq)
                    moved = shared != old
                    if moved:
                        store_shared(cells, at, 1, shared)
                for k in range(L):
                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                    own = Own(*load_own(cells, at + n_shared + k, L))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    if catches_up or (aligns and moved):
                        if catches_up:
                            own = catch_up(own, old, shared, whole, clock, h)
                        else:
                            own = align(own, old, shared, whole, clock, h)
                        store_own(cells, at + n_shared + k, L, own)
                    if parts:
                        piece = part(own, shared, x, whole, clock, h)
                    else:
                        piece = weight(own, shared, whole, clock, h) * x
                    if gathers:
                        dr = terms(own, shared, x, whole, clock, h)
                        r = add_r(load_r(found, at_r + k * gathers, 1), dr)
                        store_r(found, at_r + k * gathers, 1, r)
                    if one:  # a register instead of a cell: 2 ns a non-zero
                        margin += piece
                    else:
                        found[n_q + k] += piece
            if one:
                found[n_q] = margin
            store_q(found, 0, 1, q)
            # An implicit step tries a move before it is made, and reads the row once more.
            context = (cells, indices, values, filled, start, entries) if implicit else ()
            active = decide_row(
                totals, sums, hyper, clock, found, 0, i, y, importance, losses, slopes,
                moves, 0, margins, context,
            )  # fmt: skip
            if active:
                move = Move(*load_move(moves, 1, 1))  # a single learner's stays in registers
                for m in range(entries):
                    n = filled[m] if dense else m
                    j, x = entry(indices, values, start, n, bias, dense)
                    if x == 0.0:
                        continue
                    at = j * width
                    shared = Shared(*load_shared(cells, at, 1))
                    for k in range(L):
                        if not one:
                            move = Move(*load_move(moves, k * n_move + 1, 1))
                        if one or moves[k * n_move] != 0.0:
                            h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                            own = Own(*load_own(cells, at + n_shared + k, L))
                            after = update(own, shared, x, move, clock, h)
                            store_own(cells, at + n_shared + k, L, after)
                            if masses:  # of what is stored, which may be float32
                                after = Own(*load_own(cells, at + n_shared + k, L))
                                whole = Totals(*load_totals(totals, k * n_totals, 1))
                                more = mass(after, shared, whole, clock, h)
                                grow(grown, k * masses, more, mass(own, shared, whole, clock, h))
            if masses:
                for k in range(L):
                    gather(cells, totals, hyper, clock, k, grown, True)
            if bounded:
                for k in range(L):
                    # After the sums: whether the weights are outside depends on them.
                    restrain(cells, totals, hyper, clock, k)
        return clock

    return learn


def make_change(rule: Rule, shape: Shape) -> Callable[..., float]:
    """change(context, …) -> by how much learner k's move would change the row's margin."""
    L, _, width, bias, dense = shape
    Own, Shared = rule.state.own, rule.state.shared
    n_shared, n_own = len(rule.shared_slots), len(rule.own_slots)
    load_own, load_shared, weight, update = take(n_own), take(n_shared), rule.weight, rule.update

    @inlined
    def change(
        context: Any, row: Any, move: Any, whole: Any, clock: float, h: Any, k: int
    ) -> float:
        cells, indices, values, filled, start, entries = context
        total = 0.0
        for m in range(entries):
            n = filled[m] if dense else m
            j, x = entry(indices, values, start, n, bias, dense)
            if x == 0.0:
                continue
            shared = Shared(*load_shared(cells, j * width, 1))
            own = Own(*load_own(cells, j * width + n_shared + k, L))
            after = update(own, shared, x, move, clock, h)
            # By the rule's own update: whatever it does to a weight is counted.
            total += x * (
                weight(after, shared, whole, clock, h) - weight(own, shared, whole, clock, h)
            )
        return total

    return change


def make_look(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """look(…): only observes each row. Arguments as ``learn``'s, no margins."""
    width, bias, dense = shape.width, shape.bias, shape.dense
    Shared, Hyper, n_shared = rule.state.shared, rule.hyper, len(rule.shared_slots)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_hyper, observe = take(len(fields(Hyper))), of(rule.observe, "function")
    weighted = rule.observe is not None and rule.observe.weighted

    def look(
        cells: Any,
        totals: Any,
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
        # Shared slots do not depend on the learner: the first one's parameters are all learners'.
        h = Hyper(*load_hyper(hyper, 0, 1))
        for i in range(len(y)):
            start, entries = span(indptr, i, bias, dense)
            for n in range(entries):
                j, x = entry(indices, values, start, n, bias, dense)
                if x != 0.0:
                    size = x * importance[i] if weighted else x
                    shared = Shared(*load_shared(cells, j * width, 1))
                    store_shared(cells, j * width, 1, observe(shared, size, clock, h)[0])

    return look


def make_predict(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """predict(…): predicts each row and adds to sums; learns nothing. Arguments as ``learn``'s."""
    L, _, width, bias, dense = shape
    Own, Shared, Totals, Hyper = rule.state.own, rule.state.shared, rule.state.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_hyper = len(fields(Hyper)), len(fields(Hyper)) + len(fields(loss.hyper))
    load_own, load_shared, load_totals = take(n_own), take(n_shared), take(len(fields(Totals)))
    load_hyper, weight = take(n_rule), rule.weight
    part, parts = of(rule.row, "part"), has(rule.row, "part")
    clamp, clamps = of(rule.row, "clamp"), has(rule.row, "clamp")
    score, one = make_score(rule, loss, shape, learns=False), L == 1

    def predict(
        cells: Any,
        totals: Any,
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
        clock += 1.0
        stored = len(indices)
        losses, slopes = np.zeros(L), np.zeros(L)
        for i in range(len(y)):
            start, entries = span(indptr, i, bias, dense)
            margin = 0.0
            for k in range(L):
                margins[i, k] = 0.0
            for n in range(entries):
                j, x = entry(indices, values, start, n, bias, dense)
                if not dense and start + n + AHEAD < stored:
                    prefetch(cells, (indices[start + n + AHEAD] + bias) * width, width)
                if x == 0.0:
                    continue
                shared = Shared(*load_shared(cells, j * width, 1))
                for k in range(L):
                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                    own = Own(*load_own(cells, j * width + n_shared + k, L))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    if parts:
                        piece = part(own, shared, x, whole, clock, h)
                    else:
                        piece = weight(own, shared, whole, clock, h) * x
                    if one:
                        margin += piece
                    else:
                        margins[i, k] += piece
            if one:
                margins[i, 0] = margin
            if clamps:
                for k in range(L):
                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    margins[i, k] = clamp(margins[i, k], whole, h)
            score(margins, i, y[i], importance[i], hyper, sums, losses, slopes)

    return predict
