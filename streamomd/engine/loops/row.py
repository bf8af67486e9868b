"""What every loop needs of a row: entries, targets, mistakes, and the step once sums are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streamomd.engine.loops import defaults
from streamomd.engine.loops.defaults import has, of
from streamomd.engine.loops.load_store import inlined, number, put, take
from streamomd.losses import Loss
from streamomd.rules.contract import Row, Rule, fields

# No batch has as many entries. An index that may be negative for all the compiler knows is
# checked before each use, to count it from the end: 0.3 ns a non-zero for each array. An index cut
# to 48 bits is never negative; and coordinates are uint32.
FAR = (1 << 48) - 1


class Shape(NamedTuple):
    """What a loop is made for, in addition to its rule and loss.

    learners: side by side. classes: 1 in regression, else as many as there are. width: cells of a
    coordinate, padding included. bias: 1 if coordinate 0 is one, else 0.
    """

    learners: int
    classes: int
    width: int
    bias: int
    dense: bool


def squared_error(margins: Any, i: int, y: float, mean: Any) -> Any:
    """What rmse sums."""
    r = mean(margins[i, 0]) - y
    return r * r


def mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """1 if the sign is wrong; a margin of 0 predicts the first class; NaN is always wrong."""
    if y > 0.0:
        return 0.0 if margins[i, 0] > 0.0 else 1.0
    return 0.0 if margins[i, 0] <= 0.0 else 1.0


def multiclass_mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """1 if another class has a larger margin, or an equal one before it; NaN is always wrong."""
    at = int(y)
    best = margins[i, at]
    for l in range(margins.shape[1]):
        # Written so that NaN, for which no comparison holds, is a mistake.
        if not (margins[i, l] < best or (l >= at and margins[i, l] == best)):
            return 1.0
    return 0.0


def pair_mistake(margins: Any, i: int, y: float, mean: Any) -> float:
    """What ``multiclass_mistake`` gives for two classes with a learner each, y = -1 or +1."""
    return multiclass_mistake(margins, i, 1.0 if y > 0.0 else 0.0, mean)


def miss_of(shape: Shape) -> Callable[..., float]:
    """What counts as a mistake, or as an error."""
    if shape.classes == 2:
        return mistake if shape.learners == 1 else pair_mistake
    return squared_error if shape.classes == 1 else multiclass_mistake


def is_sweep(shape: Shape, coupled: bool) -> bool:
    """Whether the learners side by side are a sweep's: each aims at y and has sums of its own.

    Otherwise two classes, or a number to predict, have one learner, unless the loss couples more.
    """
    return shape.learners > 1 and shape.classes <= 2 and not coupled


def is_group(shape: Shape) -> bool:
    """Whether the learners are some of the classes: see ``engine.divided``.

    y is then relative to the first of them, and sums, (rows * learners,), gets each one's loss of
    each row.
    """
    return shape.classes > 2 and shape.learners < shape.classes


def span(indptr: Any, i: int, bias: int, dense: bool) -> Any:
    """Where row i's values begin, and how many entries it has: the bias, then its values.

    Of a dense batch indptr = [columns].
    """
    if dense:
        return (i * indptr[0]) & FAR, indptr[0] + bias
    return indptr[i] & FAR, (indptr[i + 1] & FAR) - (indptr[i] & FAR) + bias


def entry(indices: Any, values: Any, start: int, n: int, bias: int, dense: bool) -> Any:
    """Coordinate and value of entry n, from 0, of a row whose values begin at start."""
    if n < bias:
        return 0, 1.0
    at = start + n - bias
    if dense:
        return n, number(values[at])
    return indices[at] + bias, number(values[at])


def target(y: float, learner: int, classes: int, learners: int) -> float:
    """A learner's target: y, or in one-against-all whether y is its class."""
    if classes > 2:
        return 1.0 if y == learner else -1.0
    if learners == 2:
        return y if learner == 1 else -y
    return y


def number_of_class(y: float, classes: int) -> int:
    """The class's number, of y as a batch holds it."""
    if classes > 2:
        return int(y)
    return 1 if y > 0.0 else 0


def numbers_of(rule: Rule, learners: int) -> int:
    """Numbers of a row that are summed over its coordinates: those of ``observe``, then each
    learner's margin, then what ``terms`` gathers for each learner."""
    sums, _, gathers = rule.numbers
    return sums + learners * (1 + gathers)


def move_numbers(rule: Rule) -> int:
    """Numbers of a learner's step of a row: whether it is active, 1 or 0, then its move."""
    return 1 + len(fields(rule.state.move))


def is_implicit(rule: Rule, loss: Loss) -> bool:
    """Whether a loop has implicit steps: the engine removes ``along`` where none is wanted."""
    return rule.row.implicit != "" and loss.along is not None


def make_score(rule: Rule, loss: Loss, shape: Shape, *, learns: bool) -> Callable[..., None]:
    """score(margins, m, y, importance, hyper, sums, losses, slopes): what a row adds to sums.

    margins: row m is this row's. losses, slopes: (learners,), written where ``learns``: a sweep's
    learners then have sums of their own. Without it no slope is computed. Of a group of classes
    sums get the losses alone: see ``row.is_group``.
    """
    L, classes = shape.learners, shape.classes
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    n_hyper = n_rule + len(fields(Aim))
    load_aim = take(n_hyper - n_rule)
    value, slope, mean, couple = loss.value, loss.slope, loss.mean, loss.couple or defaults.couple
    coupled, grouped = loss.coupled, is_group(shape)
    swept = learns and is_sweep(shape, coupled)
    # Each of a sweep's learners is judged as if it were alone.
    alone = shape._replace(learners=1) if swept else shape
    goals, miss = alone.learners, miss_of(alone)

    @inlined
    def score(
        margins: Any,
        m: int,
        y: float,
        importance: float,
        hyper: Any,
        sums: Any,
        losses: Any,
        slopes: Any,
    ) -> None:
        row_loss = 0.0
        if coupled:
            # One loss of all classes, whose slopes are written for each.
            row_loss = couple(margins, m, number_of_class(y, classes), slopes)
        for k in range(L):
            if coupled:
                suffered = row_loss
            else:
                p, aim = margins[m, k], target(y, k, classes, goals)
                goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                suffered = value(p, aim, goal)
                row_loss += suffered
                if learns:
                    slopes[k] = slope(p, aim, goal)
            if learns:
                losses[k] = suffered
            if grouped:
                sums[m * L + k] = suffered
            if swept:
                sums[3 * k] += importance
                sums[3 * k + 1] += importance * suffered
                sums[3 * k + 2] += importance * miss(margins[:, k:], m, y, mean)
        if not (swept or grouped):
            sums[0] += importance
            sums[1] += importance * row_loss
            sums[2] += importance * miss(margins, m, y, mean)

    return score


def make_add(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """add(sums, firsts, found, losses, y, importance, margins): what ``make_score`` adds.

    For rows whose classes were learned in groups: each row's classes are added in their order.
    firsts: each group's first class, and the number of classes. found, losses: (rows * classes,),
    margins and losses, group after group, in each row after row. margins: (rows, classes), written.
    """
    miss, mean = miss_of(shape), loss.mean

    def add(
        sums: Any, firsts: Any, found: Any, losses: Any, y: Any, importance: Any, margins: Any
    ) -> None:
        rows = len(y)
        for i in range(rows):
            row_loss = 0.0
            for group in range(len(firsts) - 1):
                first = firsts[group]
                classes = firsts[group + 1] - first
                # Of each group all rows come first.
                at = first * rows + i * classes
                for k in range(classes):
                    margins[i, first + k] = found[at + k]
                    row_loss += losses[at + k]
            sums[0] += importance[i]
            sums[1] += importance[i] * row_loss
            sums[2] += importance[i] * miss(margins, i, y[i], mean)

    return add


def make_decide_row(
    rule: Rule, loss: Loss, shape: Shape, change: Callable[..., float] = defaults.change
) -> Callable[..., bool]:
    """decide_row(…) -> whether any learner moves.

    found: the row's numbers begin at ``at``. moves: (learners * n,) from ``to``, written: see
    ``move_numbers``. losses, slopes: (learners,), written. The others, and what is added to, are
    those of ``sparse.make_learn``, i the row. For implicit steps ``change(context, row, move,
    whole, clock, h, k)`` is by how much learner k's move would change the margin.
    """
    L, classes = shape.learners, shape.classes
    Totals, Hyper, Aim = rule.state.totals, rule.hyper, loss.hyper
    n_totals, n_move, n_rule = len(rule.total_slots), move_numbers(rule), len(fields(Hyper))
    n_hyper = n_rule + len(fields(Aim))
    load_totals, store_totals = take(len(fields(Totals))), put(len(fields(Totals)))
    load_hyper, load_aim, store_move = take(n_rule), take(n_hyper - n_rule), put(n_move - 1)
    at_q, _, gathers = rule.numbers
    load_q, load_r = take(at_q), take(gathers)
    step, clamp, clamps = rule.step, of(rule.row, "clamp"), has(rule.row, "clamp")
    stretch, along = of(rule.row, "stretch"), loss.along or defaults.along
    implicit = is_implicit(rule, loss)
    # A hyper-parameter says whether; a sweep may have learners of both kinds.
    at_implicit = fields(Hyper).index(rule.row.implicit) if implicit else 0
    goals = 1 if is_sweep(shape, loss.coupled) else L
    score = make_score(rule, loss, shape, learns=True)

    @inlined
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
        losses: Any,
        slopes: Any,
        moves: Any,
        to: int,
        margins: Any,
        context: Any,
    ) -> bool:
        q = load_q(found, at, 1)
        for k in range(L):
            margins[i, k] = found[at + at_q + k]
            if clamps:
                h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
                whole = Totals(*load_totals(totals, k * n_totals, 1))
                margins[i, k] = clamp(margins[i, k], whole, h)
        # Before any step: all learners' slopes are of the same weights.
        score(margins, i, y[i], importance[i], hyper, sums, losses, slopes)
        active = False
        for k in range(L):
            p, aim = margins[i, k], target(y[i], k, classes, goals)
            r = load_r(found, at + at_q + L + k * gathers, 1)
            row = Row(p, aim, importance[i], losses[k], slopes[k], q, r)
            h = Hyper(*load_hyper(hyper, k * n_hyper, 1))
            whole = Totals(*load_totals(totals, k * n_totals, 1))
            moved, move, whole = step(row, whole, clock, h)
            if implicit and moved and hyper[k * n_hyper + at_implicit] != 0.0:
                by = change(context, row, move, whole, clock, h, k)
                if by != 0.0:
                    goal = Aim(*load_aim(hyper, k * n_hyper + n_rule, 1))
                    move = stretch(move, along(p, aim, by, goal))
            # Also of a learner that does not move: it may count rows.
            store_totals(totals, k * n_totals, 1, whole)
            moves[to + k * n_move] = moved
            store_move(moves, to + k * n_move + 1, 1, move)
            active = active or moved
        return active

    return decide_row
