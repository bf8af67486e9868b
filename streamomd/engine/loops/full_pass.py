"""Passes over all coordinates: recompute sums, project weights, and merge onto common slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import number, put, take
from streamomd.engine.loops.row import Shape
from streamomd.losses import Loss
from streamomd.rules.contract import Rule, fields

LARGEST = 1e300
CANCELLED = 16.0  # a sum this far below its largest value has lost a digit: it is recomputed
OFTEN = 65536  # rows after which sums are recomputed in any case, to limit their rounding
WIDEN, HALVE = 16.0, 80  # how the bracket of mu grows, and how often it is halved at most


def make_renew(rule: Rule, loss: Loss, shape: Any) -> Callable[..., None]:
    """renew(cells, totals, hyper, clock, k): recompute learner k's Coords totals."""
    L, width = shape.learners, shape.width
    Own, Shared, Totals, Hyper = rule.state.own, rule.state.shared, rule.state.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_stored, masses = len(fields(Totals)), rule.masses
    load_own, store_own = take(n_own), put(n_own)
    load_shared, load_hyper = take(n_shared), take(len(fields(Hyper)))
    load_totals, store_totals, store_mass = take(n_stored), put(n_stored), put(masses)
    mass, peak = of(rule.sums, "mass"), of(rule.sums, "peak")
    rebase, refresh = of(rule.sums, "rebase"), of(rule.sums, "refresh")
    peaks, refreshes = has(rule.sums, "peak"), has(rule.sums, "refresh")

    def renew(cells: Any, totals: Any, hyper: Any, clock: float, k: int) -> None:
        h = Hyper(*load_hyper(hyper, k * (len(hyper) // L), 1))
        whole = Totals(*load_totals(totals, k * n_totals, 1))
        size = len(cells) // width
        # The largest value first: the rule may take its sums relative to it.
        top = -np.inf
        if peaks:
            for j in range(size):
                shared = Shared(*load_shared(cells, j * width, 1))
                own = Own(*load_own(cells, j * width + n_shared + k, L))
                top = max(top, peak(own, shared, whole, clock, h))
        whole = rebase(whole, top, clock, h)
        store_totals(totals, k * n_totals, 1, whole)
        sums, lost, more = np.zeros(masses), np.zeros(masses), np.zeros(masses)
        for j in range(size):
            shared = Shared(*load_shared(cells, j * width, 1))
            own = Own(*load_own(cells, j * width + n_shared + k, L))
            if refreshes:
                own = refresh(own, shared, whole, clock, h)
                store_own(cells, j * width + n_shared + k, L, own)
            store_mass(more, 0, 1, mass(own, shared, whole, clock, h))
            for m in range(masses):
                total = sums[m] + more[m]
                # Neumaier's sum: what each addition loses is added at the end.
                if abs(sums[m]) >= abs(more[m]):
                    lost[m] += (sums[m] - total) + more[m]
                else:
                    lost[m] += (more[m] - total) + sums[m]
                sums[m] = total
        for m in range(masses):
            totals[k * n_totals + m] = sums[m] + lost[m]
            # Its largest value since it was recomputed, from which cancellation is judged.
            totals[k * n_totals + n_stored + m] = sums[m] + lost[m]

    return renew


def make_gather(rule: Rule, loss: Loss, shape: Any) -> Callable[..., None]:
    """gather(cells, totals, hyper, clock, k, grown, last): add what the sums have grown by.

    grown: (learners * masses,), becomes 0. last: whether the row has ended. The sums are
    recomputed where that is due.
    """
    n_totals, n_stored, masses = len(rule.total_slots), len(fields(rule.state.totals)), rule.masses
    L, width, Totals, Hyper = shape.learners, shape.width, rule.state.totals, rule.hyper
    load_totals, load_hyper = take(n_stored), take(len(fields(Hyper)))
    stale = of(rule.sums, "stale")
    renew = make_renew(rule, loss, shape)

    def gather(
        cells: Any, totals: Any, hyper: Any, clock: float, k: int, grown: Any, last: bool
    ) -> None:
        # Rarely where there are many coordinates: a pass over them stays a small part of the time.
        due = last and clock % max(OFTEN, len(cells) // width // 16) == 0.0
        for m in range(masses):
            at = k * n_totals + m
            total = totals[at] + grown[k * masses + m]
            grown[k * masses + m] = 0.0
            totals[at] = total
            top = max(totals[at + n_stored], total)
            totals[at + n_stored] = top
            # NaN fails the comparison, and is recomputed, too.
            due = due or not total <= LARGEST or total * CANCELLED < top
        if not due:
            h = Hyper(*load_hyper(hyper, k * (len(hyper) // L), 1))
            due = stale(Totals(*load_totals(totals, k * n_totals, 1)), clock, h)
        if due:
            renew(cells, totals, hyper, clock, k)

    return gather


def make_restrain(rule: Rule, loss: Loss, shape: Any) -> Callable[..., None]:
    """restrain(cells, totals, hyper, clock, k): project learner k's weights."""
    L, width = shape.learners, shape.width
    Own, Shared, Totals, Hyper = rule.state.own, rule.state.shared, rule.state.totals, rule.hyper
    n_shared, n_own, n_totals = len(rule.shared_slots), len(rule.own_slots), len(rule.total_slots)
    n_stored, summed = len(fields(Totals)), rule.masses > 0
    load_own, store_own = take(n_own), put(n_own)
    load_shared, load_hyper = take(n_shared), take(len(fields(Hyper)))
    load_totals, store_totals = take(n_stored), put(n_stored)
    outside, reach = of(rule.constraint, "outside"), of(rule.constraint, "reach")
    radius, project = of(rule.constraint, "radius"), of(rule.constraint, "project")
    settle, projects = of(rule.constraint, "settle"), has(rule.constraint, "project")
    renew = make_renew(rule, loss, shape)

    def reached(cells: Any, whole: Any, h: Any, clock: float, k: int, mu: float) -> float:
        total = 0.0
        for j in range(len(cells) // width):
            shared = Shared(*load_shared(cells, j * width, 1))
            own = Own(*load_own(cells, j * width + n_shared + k, L))
            total += reach(own, shared, mu, whole, clock, h)
        return total

    def multiplier(cells: Any, whole: Any, h: Any, clock: float, k: int) -> float:
        goal = radius(h)
        high = 1.0
        # What is reached falls with mu: the bracket grows until it holds the root.
        while high < LARGEST and reached(cells, whole, h, clock, k, high) > goal:
            high *= WIDEN
        low = high / WIDEN
        while low > 1.0 / LARGEST and reached(cells, whole, h, clock, k, low) <= goal:
            high = low
            low = high / WIDEN
        for _ in range(HALVE):
            middle = 0.5 * (low + high)
            # Two neighbouring numbers: nothing lies between them.
            if middle <= low or middle >= high:
                break
            if reached(cells, whole, h, clock, k, middle) > goal:
                low = middle
            else:
                high = middle
        return high

    def restrain(cells: Any, totals: Any, hyper: Any, clock: float, k: int) -> None:
        h = Hyper(*load_hyper(hyper, k * (len(hyper) // L), 1))
        whole = Totals(*load_totals(totals, k * n_totals, 1))
        mu = 0.0
        if outside(whole, clock, h):
            mu = multiplier(cells, whole, h, clock, k)
            if projects:
                for j in range(len(cells) // width):
                    shared = Shared(*load_shared(cells, j * width, 1))
                    own = Own(*load_own(cells, j * width + n_shared + k, L))
                    own = project(own, shared, mu, whole, clock, h)
                    store_own(cells, j * width + n_shared + k, L, own)
                if summed:
                    renew(cells, totals, hyper, clock, k)
                    whole = Totals(*load_totals(totals, k * n_totals, 1))
        # Also inside the set: the rule may note that nothing was projected.
        store_totals(totals, k * n_totals, 1, settle(whole, mu, h))

    return restrain


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
