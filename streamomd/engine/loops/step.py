"""The step of a row whose sums are known: what is suffered, and how each learner moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamomd.engine.loops import defaults
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import put, take
from streamomd.engine.loops.row import Shape, is_sweep, miss_of, number_of_class, target
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields


def numbers_of(rule: Rule, learners: int) -> int:
    """Numbers of a row that are summed over its coordinates: those of ``observe``, then each
    learner's margin, then what ``terms`` gathers for each learner."""
    sums, _, gathers = rule.numbers
    return sums + learners * (1 + gathers)


def move_numbers(rule: Rule) -> int:
    """Numbers of a learner's step of a row: whether it is active, 1 or 0, then its move."""
    return 1 + len(fields(rule.state.move))


def make_decide_row(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., bool]:
    """decide_row(…) -> whether any learner moves.

    found: the row's numbers begin at ``at``. moves: (learners * n,) from ``to``, written. slopes:
    (learners,), for what a coupled loss says. The others, and what is added to, are those of
    ``loops.make_learn``, i the row.
    """
    L, classes, _, _, _ = shape
    Totals, Hyper, Aim = rule.state.totals, rule.hyper, loss.hyper
    n_totals, n_move, n_rule = len(rule.total_slots), move_numbers(rule), len(fields(Hyper))
    n_hyper = n_rule + len(fields(Aim))
    load_totals, store_totals = take(len(fields(Totals))), put(len(fields(Totals)))
    load_hyper, load_aim, store_move = take(n_rule), take(n_hyper - n_rule), put(n_move - 1)
    at_q, _, gathers = rule.numbers
    load_q, load_r = take(at_q), take(gathers)
    step, clamp, clamps = rule.step, of(rule.row, "clamp"), has(rule.row, "clamp")
    value, slope, mean, couple = loss.value, loss.slope, loss.mean, loss.couple or defaults.couple
    coupled = loss.coupled
    swept = is_sweep(shape, coupled)
    alone = shape._replace(learners=1) if swept else shape
    goals, miss = alone.learners, miss_of(alone)

    def decide_row(
        totals: Any,
        sums: Any,
        hyper: Any,
        clock: float,
        found: Any,
        at: int,
        i: int,
        y: Any,
        importance: Any,
        slopes: Any,
        moves: Any,
        to: int,
        margins: Any,
    ) -> bool:
        q = load_q(found, at, 1)
        for k in range(L):
            margins[i, k] = found[at + at_q + k]
            if clamps:
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
            r = load_r(found, at + at_q + L + k * gathers, 1)
            row = Row(p, aim, importance[i], suffered, g, q, r)
            h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
            whole = Totals(*load_totals(totals, k * n_totals, 1))
            moves_on, move, whole = step(row, whole, clock, h)
            store_totals(totals, k * n_totals, 1, whole)
            active = active or moves_on
            moves[to + k * n_move] = moves_on
            store_move(moves, to + k * n_move + 1, 1, move)
            if swept:
                sums[3 * k] += importance[i]
                sums[3 * k + 1] += importance[i] * suffered
                sums[3 * k + 2] += importance[i] * miss(margins[:, k:], i, y[i], mean)
        if not swept:
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)
        return active

    return decide_row
