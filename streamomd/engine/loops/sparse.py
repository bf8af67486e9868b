"""The loops over rows, for what is kept by coordinates. Made for one rule, loss and shape;
compiled by ``engine.fuse``. Uncompiled they are plain Python, and the compiled ones' oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops import defaults
from streamomd.engine.loops.cache_prefetch import prefetch
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.full_pass import make_gather, make_restrain
from streamomd.engine.loops.load_store import add, combine, gain, put, take, zeros
from streamomd.engine.loops.row import (
    Shape,
    entry,
    is_sweep,
    miss_of,
    number_of_class,
    span,
    target,
)
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields

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
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper, Move = (
        rule.state.own,
        rule.state.shared,
        rule.state.totals,
        rule.hyper,
        rule.state.move,
    )
    Aim = loss.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_stored, masses = len(fields(Totals)), rule.masses
    n_rule, n_move = len(fields(Hyper)), 1 + len(fields(Move))
    n_hyper = n_rule + len(fields(Aim))
    load_own, store_own = take(n_own), put(n_own)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_totals, store_totals = take(n_stored), put(n_stored)
    load_move, store_move = take(n_move - 1), put(n_move - 1)
    load_hyper, load_aim = take(n_rule), take(n_hyper - n_rule)
    n_q, maxima, gathers = rule.numbers
    add_q, zero_q = combine(n_q, maxima), zeros(n_q)
    load_r, store_r, add_r = take(gathers), put(gathers), add(gathers)
    grow = gain(masses)
    observe, align = of(rule.observe, "function"), of(rule, "align")
    prepare, part = of(rule.row, "prepare"), of(rule.row, "part")
    terms, mass = of(rule.row, "terms"), of(rule.sums, "mass")
    clamp, clamps = of(rule.row, "clamp"), has(rule.row, "clamp")
    stretch, along = of(rule.row, "stretch"), loss.along or defaults.along
    weight, step, update = rule.weight, rule.step, rule.update
    value, slope, mean, couple = loss.value, loss.slope, loss.mean, loss.couple or defaults.couple
    observes, aligns = rule.observe is not None, rule.align is not None
    weighted = rule.observe is not None and rule.observe.weighted
    parts, prepares = has(rule.row, "part"), has(rule.row, "prepare")
    apart = prepares or (masses > 0 and aligns)  # observing is a pass of its own
    always, catch_up = has(rule.row, "catch_up"), of(rule.row, "catch_up")
    assert not (always and apart), rule.name
    coupled, implicit = loss.coupled, bool(rule.row.implicit) and loss.along is not None
    at_implicit = fields(Hyper).index(rule.row.implicit) if implicit else 0
    bounded = rule.constraint is not None
    gather = make_gather(rule, shape)
    restrain = make_restrain(rule, shape)
    swept = is_sweep(shape, coupled)
    alone = shape._replace(learners=1) if swept else shape
    goals, miss = alone.learners, miss_of(alone)
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
        filled = np.zeros(indptr[0] + bias if dense else 0, dtype=np.uint32)
        moves = np.zeros(L * n_move)
        slopes = np.zeros(L)
        gathered = np.zeros(L * gathers)
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
            for k in range(L):
                margins[i, k] = 0.0
            gathered[:] = 0.0
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
                        store_totals(totals, k * n_totals, 1, prepare(q, whole, clock, h))
                    if masses:
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
                    if always or (aligns and moved):
                        if always:
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
                        r = add_r(load_r(gathered, k * gathers, 1), dr)
                        store_r(gathered, k * gathers, 1, r)
                    if one:  # a register instead of a cell: 2 ns a non-zero
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
            active = False
            row_loss = 0.0
            if coupled:
                row_loss = couple(margins, i, number_of_class(y[i], classes), slopes)
            for k in range(L):
                p, aim = margins[i, k], target(y[i], k, classes, goals)
                goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                if coupled:
                    suffered, g = row_loss, slopes[k]
                else:
                    suffered, g = value(p, aim, goal), slope(p, aim, goal)
                    row_loss += suffered
                r = load_r(gathered, k * gathers, 1)
                row = Row(p, aim, importance[i], suffered, g, q, r)
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                steps, move, whole = step(row, whole, clock, h)
                if implicit and steps and hyper[k * n_hyper + at_implicit] != 0.0:
                    change = 0.0
                    for m in range(entries):
                        n = filled[m] if dense else m
                        j, x = entry(indices, values, start, n, bias, dense)
                        if x == 0.0:
                            continue
                        shared = Shared(*load_shared(cells, j * width, 1))
                        own = Own(*load_own(cells, j * width + n_shared + k, L))
                        after = update(own, shared, x, move, clock, h)
                        change += x * (
                            weight(after, shared, whole, clock, h)
                            - weight(own, shared, whole, clock, h)
                        )
                    if change != 0.0:
                        move = stretch(move, along(p, aim, change, goal))
                store_totals(totals, k * n_totals, 1, whole)
                moves[k * n_move] = steps
                store_move(moves, k * n_move + 1, 1, move)
                active = active or steps
                if swept:
                    sums[3 * k] += importance[i]
                    sums[3 * k + 1] += importance[i] * suffered
                    sums[3 * k + 2] += importance[i] * miss(margins[:, k:], i, y[i], mean)
            if not swept:
                sums[0] += importance[i]
                sums[1] += importance[i] * row_loss
                sums[2] += importance[i] * miss(margins, i, y[i], mean)
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
                    restrain(cells, totals, hyper, clock, k)
        return clock

    return learn


def make_look(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """look(…): observes each row and does nothing else. Arguments as ``learn``'s, no margins."""
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
    L, classes, width, bias, dense = shape
    Own, Shared, Totals, Hyper, Aim = (
        rule.state.own,
        rule.state.shared,
        rule.state.totals,
        rule.hyper,
        loss.hyper,
    )
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_aim = len(fields(Hyper)), len(fields(Aim))
    n_hyper = n_rule + n_aim
    load_own, load_shared, load_totals = take(n_own), take(n_shared), take(len(fields(Totals)))
    load_hyper, load_aim = take(n_rule), take(n_aim)
    weight, part = rule.weight, of(rule.row, "part")
    clamp, clamps = of(rule.row, "clamp"), has(rule.row, "clamp")
    parts, coupled = has(rule.row, "part"), loss.coupled
    value, mean, couple = loss.value, loss.mean, loss.couple or defaults.couple
    miss, one = miss_of(shape), L == 1

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
        slopes = np.zeros(L)
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
            row_loss = 0.0
            if coupled:
                row_loss = couple(margins, i, number_of_class(y[i], classes), slopes)
            else:
                for k in range(L):
                    goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                    row_loss += value(margins[i, k], target(y[i], k, classes, L), goal)
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return predict
