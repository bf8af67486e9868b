"""Passes over all coordinates for a merge: onto common shared slots, and from mean weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamomd.engine.loops.defaults import of
from streamomd.engine.loops.load_store import number, put, take
from streamomd.engine.loops.row import Shape
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields


def make_align(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """align(cells, totals, hyper, clock, common): where a coordinate's shared slots are not the
    common ones, its own slots are carried to those, which then stand for its own.

    common: (d * shared slots,), of the cells' dtype.
    """
    L, width = shape.learners, shape.width
    Own, Shared, Totals, Hyper = rule.state.own, rule.state.shared, rule.state.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    load_own, store_own = take(n_own), put(n_own)
    load_shared, store_shared = take(n_shared), put(n_shared)
    load_totals, load_hyper = take(len(fields(Totals))), take(len(fields(Hyper)))
    carry = of(rule, "align")

    def align(cells: Any, totals: Any, hyper: Any, clock: float, common: Any) -> None:
        for j in range(len(cells) // width):
            at = j * width
            old = Shared(*load_shared(cells, at, 1))
            new = Shared(*load_shared(common, j * n_shared, 1))
            if new != old:
                for k in range(L):
                    h = Hyper(*load_hyper(hyper, k * (len(hyper) // L), 1))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    own = Own(*load_own(cells, at + n_shared + k, L))
                    after = carry(own, old, new, whole, clock, h)
                    store_own(cells, at + n_shared + k, L, after)
                store_shared(cells, at, 1, new)

    return align


def make_rejoin(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """rejoin(cells, totals, hyper, clock, starts, mean): own slots made from the mean weights, of
    the coordinates that anything has happened to.

    starts: what each used cell of a coordinate starts as. mean: (d * learners,).
    """
    L, width = shape.learners, shape.width
    Own, Shared, Totals, Hyper = rule.state.own, rule.state.shared, rule.state.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    load_own, store_own, load_shared = take(n_own), put(n_own), take(n_shared)
    load_totals, load_hyper = take(len(fields(Totals))), take(len(fields(Hyper)))
    remake = of(rule.state, "rejoin")

    def rejoin(cells: Any, totals: Any, hyper: Any, clock: float, starts: Any, mean: Any) -> None:
        for j in range(len(cells) // width):
            at = j * width
            used = False
            for c in range(len(starts)):
                used = used or number(cells[at + c]) != starts[c]
            if used:
                shared = Shared(*load_shared(cells, at, 1))
                for k in range(L):
                    h = Hyper(*load_hyper(hyper, k * (len(hyper) // L), 1))
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
                    own = Own(*load_own(cells, at + n_shared + k, L))
                    w = number(mean[j * L + k])
                    after = remake(own, w, shared, whole, clock, h)
                    store_own(cells, at + n_shared + k, L, after)

    return rejoin
