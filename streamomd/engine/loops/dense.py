"""The loop over dense rows, with columns side by side, so that SIMD instructions apply.

Cells are rearranged for the duration of a call: blocks of columns, in a block a line for each
number, the columns side by side. Branch-free loops over a line's columns process a row, and the
compiler vectorizes them; sums have a loop of their own, column after column. So rules' functions
are called as ``engine.loops`` calls them, and the result is bit-identical. They are also called for
zeros, and those results are ignored: plain Python would raise on a division by zero, so the
uncompiled engine processes row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import add, choose, combine, put, put_as, take, zeros
from streamomd.engine.loops.row import Shape, make_decide_row, move_numbers, numbers_of
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

BLOCK = 64  # columns; lines this far apart cannot overlap, which the compiler needs to know
LANES = 8  # numbers of a vector; the columns of a row are filled up with zeros to a multiple
MOST = 1 << 14  # coordinates × learners whose second layout stays in the processor's cache
SAMPLE = 16  # rows
# Of the values; Covertype's 0.22, most of it in the same columns, are no slower by rows.
LEAST = 0.3


def fits(rule: Rule, params: Mapping[str, Any], size: int) -> bool:
    """Whether this is the loop for a rule, size being its coordinates times its learners.

    A rule must need nothing but these steps: no sums over all coordinates, no set, nothing
    between observing and weighing, no implicit steps; and nothing that moves with the clock alone,
    because powers and logarithms are not vectorized.
    """
    whole = rule.masses > 0 or rule.constraint is not None or has(rule.row, "prepare")
    clocked = has(rule.row, "catch_up")
    beyond = whole or clocked or rule.is_implicit(params)
    return rule.storage.kind == "coordinates" and not beyond and size <= MOST


def filled(values: Any) -> bool:
    """Whether enough of the first rows' values are not 0: here a zero costs what others do.

    values: (rows, columns). The result is bit-identical either way.
    """
    first = values[:SAMPLE]
    return bool(np.count_nonzero(first) >= LEAST * first.size)


def make_dense(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., float]:
    """learn(…) -> clock, as ``loops.make_learn`` makes it, for dense rows of a rule that fits.

    In a block stand the shared slots, x, what is summed for the margin, the other sums, and the own
    slots, learner by learner. All are float64, rounded where a cell would round them.
    """
    L, _, width, bias, _ = shape
    Own, Shared, Totals, Hyper, Move = (
        rule.state.own,
        rule.state.shared,
        rule.state.totals,
        rule.hyper,
        rule.state.move,
    )
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_rule, n_move = len(fields(Hyper)), move_numbers(rule)
    n_hyper = n_rule + len(fields(loss.hyper))
    n_q, maxima, n_r = rule.numbers
    load_own, store_own, own_of = take(n_own), put_as(n_own), choose(n_own)
    load_shared, store_shared, shared_of = take(n_shared), put_as(n_shared), choose(n_shared)
    load_totals, load_hyper, load_move = take(len(fields(Totals))), take(n_rule), take(n_move - 1)
    load_q, store_q, q_of, add_q, no_q = (
        take(n_q), put(n_q), choose(n_q), combine(n_q, maxima), zeros(n_q),
    )  # fmt: skip
    load_r, store_r, r_of, add_r, no_r = take(n_r), put(n_r), choose(n_r), add(n_r), zeros(n_r)
    observe, align = of(rule.observe, "function"), of(rule, "align")
    part, terms = of(rule.row, "part"), of(rule.row, "terms")
    weight, update = rule.weight, rule.update
    observes, aligns, parts = (
        rule.observe is not None,
        rule.align is not None,
        has(rule.row, "part"),
    )
    decide_row, numbers = make_decide_row(rule, loss, shape), numbers_of(rule, L)
    weighted = rule.observe is not None and rule.observe.weighted
    X, PIECE = n_shared * BLOCK, (n_shared + 1) * BLOCK
    Q, R = PIECE + BLOCK, PIECE + (1 + n_q) * BLOCK
    OWN, NEXT = R + n_r * BLOCK, n_own * BLOCK  # the first learner's; to the next one's

    def lay(cells: Any, table: Any, d: int) -> None:
        for j in range(d):
            b, c = j // BLOCK, j % BLOCK
            for m in range(n_shared):
                table[b, m * BLOCK + c] = cells[j * width + m]
            for m in range(n_own):
                for k in range(L):
                    at = OWN + k * NEXT + m * BLOCK
                    table[b, at + c] = cells[j * width + n_shared + m * L + k]

    def lay_back(cells: Any, table: Any, d: int) -> None:
        for j in range(d):
            b, c = j // BLOCK, j % BLOCK
            for m in range(n_shared):
                cells[j * width + m] = table[b, m * BLOCK + c]
            for m in range(n_own):
                for k in range(L):
                    at = OWN + k * NEXT + m * BLOCK
                    cells[j * width + n_shared + m * L + k] = table[b, at + c]

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
        columns = indptr[0]
        d = columns + bias
        blocks = (d + BLOCK - 1) // BLOCK
        table = np.zeros((blocks, OWN + L * NEXT))
        lay(cells, table, d)
        if bias:
            table[0, X] = 1.0
        found, moves = np.zeros(numbers), np.zeros(L * n_move)
        losses, slopes = np.zeros(L), np.zeros(L)
        # For shared slots, which do not depend on the learner.
        h_all = Hyper(*load_hyper(hyper, 0, 1))
        for i in range(len(y)):
            clock += 1.0
            found[:] = 0.0
            entries = values[i * columns : (i + 1) * columns]
            for b in range(blocks):
                block = table[b]
                here = min(BLOCK, d - b * BLOCK)
                size = min(BLOCK, (here + LANES - 1) // LANES * LANES)
                skip = bias if b == 0 else 0
                given = entries[b * BLOCK + skip - bias : b * BLOCK + here - bias]
                # Behind the bias, whose x stays 1.
                line = block[X + skip :]
                for c in range(len(given)):
                    line[c] = given[c]
                for k in range(L):
                    mine = OWN + k * NEXT
                    h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    for c in range(size):
                        x = block[X + c]
                        old = Shared(*load_shared(block, c, BLOCK))
                        own = Own(*load_own(block, mine + c, BLOCK))
                        shared = old
                        if observes:
                            scaled = x * importance[i] if weighted else x
                            shared, dq = observe(old, scaled, clock, h_all)
                            moved = x != 0.0 and shared != old
                            if k == 0:
                                store_q(block, Q + c, BLOCK, q_of(x != 0.0, dq, no_q))
                            if aligns:
                                after = align(own, old, shared, whole, clock, h)
                                own = Own(*own_of(moved, after, own))
                                store_own(block, mine + c, BLOCK, own, cells)
                            if k == L - 1:
                                store_shared(block, c, BLOCK, shared_of(moved, shared, old), cells)
                        if parts:
                            piece = part(own, shared, x, whole, clock, h)
                        else:
                            piece = weight(own, shared, whole, clock, h) * x
                        block[PIECE + c] = piece if x != 0.0 else 0.0
                        dr = terms(own, shared, x, whole, clock, h)
                        store_r(block, R + c, BLOCK, r_of(x != 0.0, dr, no_r))
                    at_r = n_q + L + k * n_r
                    q, margin, r = load_q(found, 0, 1), found[n_q + k], load_r(found, at_r, 1)
                    # Sums one after the other, as in the loop over rows: their bits are the same.
                    for c in range(here):
                        if k == 0:
                            q = add_q(q, load_q(block, Q + c, BLOCK))
                        margin += block[PIECE + c]
                        r = add_r(r, load_r(block, R + c, BLOCK))
                    store_q(found, 0, 1, q)
                    found[n_q + k] = margin
                    store_r(found, at_r, 1, r)
            decide_row(
                totals, sums, hyper, clock, found, 0, i, y, importance, losses, slopes,
                moves, 0, margins, (),
            )  # fmt: skip
            for k in range(L):
                if moves[k * n_move] == 0.0:
                    continue
                move = Move(*load_move(moves, k * n_move + 1, 1))
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                for b in range(blocks):
                    block, mine = table[b], OWN + k * NEXT
                    here = min(BLOCK, d - b * BLOCK)
                    for c in range(min(BLOCK, (here + LANES - 1) // LANES * LANES)):
                        x = block[X + c]
                        shared = Shared(*load_shared(block, c, BLOCK))
                        own = Own(*load_own(block, mine + c, BLOCK))
                        after = update(own, shared, x, move, clock, h)
                        store_own(block, mine + c, BLOCK, own_of(x != 0.0, after, own), cells)
        lay_back(cells, table, d)
        return clock

    return learn
