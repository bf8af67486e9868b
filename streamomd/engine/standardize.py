"""Columns and targets before rules that have no reference of their own: standard units, no missing
values.

A batch has NaN where a value is missing. It becomes the mean of the values in the rows before,
weighted by importance, and 0 where there are none. The sums are added row after row, so the means
do not depend on how rows are divided into batches. Rules that centre columns have means of their
own: of all rows, the replaced values included, and with one count for all columns
(``loops.reference``). These have a count for each column, and every rule learns with them.

A rule learns z_j = (x_j - c_j) / s_j in place of x_j. (c, s) are the mean and the standard
deviation of the rows so far, updated at the rows that ``rules.common.standardized.following``
gives: at a change to (c', s') each learner's weights become

    w_j' = w_j s_j' / s_j,    w_0' = w_0 + sum_j w_j (c_j' - c_j) / s_j,

so that predictions stay as they are. The rule's summed squared gradients are multiplied by
(s_j / s_j')^2, other slots by the powers in ``Slots.degrees``. The loops are the
ordinary ones: a batch is cut at the changes.

A rule learns (y - c) / s in place of y, with the loss's parameters that are differences of targets
divided by s, and predicts c + s m. (c, s) are the mean and the standard deviation of the targets of
earlier rows, updated where references of columns are: see ``standardize``. At a change to (c', s')
each learner's weights become

    w' = w s / s',    w_0' = (w_0 s + c - c') / s',

so that predictions stay as they are. Summed squared gradients are multiplied by (s / s')^(2 k), k
the degree of the loss's slope in the target's unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import Batch, DenseBatch, SparseBatch
from streamomd.engine.loops.reference import NEXT, C, N, S, T, next_reference
from streamomd.engine.operations import M2, MU, TARGET_C, TARGET_N, TARGET_S
from streamomd.engine.state import State
from streamomd.losses import Loss
from streamomd.rules.common.standardized import following
from streamomd.rules.contract import Rule, fields

Floats = NDArray[np.float64]
SUM, COUNT = 0, 1
"""Rows of ``State.means``: by column, of the values that were not missing."""


def fill_values(means: Floats, least: float = 0.0) -> Floats:
    """The mean of each column, 0 without a value. means: (2, …).

    least: the least magnitude from which a rule learns; a smaller mean is 0.

    >>> fill_values(np.array([[6.0, 0.0], [4.0, 0.0]]))
    array([1.5, 0. ])
    """
    values = np.zeros(means.shape[1:])
    with np.errstate(over="ignore"):
        np.divide(means[SUM], means[COUNT], out=values, where=means[COUNT] > 0.0)
    values[np.abs(values) < least] = 0.0
    return values


def filled(
    means: Floats, columns: NDArray[np.int64], batch: Batch, least: float, *, learns: bool
) -> Batch:
    """The batch without missing values. learns: ``means`` counts its rows, one after the other."""
    if not learns:
        if not np.isnan(batch.values).any():
            return batch
        steady = np.broadcast_to(fill_values(means, least), (len(batch), len(columns)))
        return _with_values(batch, columns, steady)
    x = _columns_of(batch, columns)
    # Zeros are values here: a sparse row has 0 where it has no entry.
    there = ~np.isnan(x)
    h = np.where(there, batch.weight[:, np.newaxis], 0.0)
    given = np.stack([np.where(there, x, 0.0) * h, h])
    # One addition after the other, in the order of the rows: accumulate does not sum pairwise.
    sums = np.add.accumulate(np.concatenate([means[:, np.newaxis], given], axis=1), axis=1)
    means[...] = sums[:, -1]
    return batch if there.all() else _with_values(batch, columns, fill_values(sums[:, :-1], least))


def _columns_of(batch: Batch, columns: NDArray[np.int64]) -> Floats:
    """Those columns of a batch, (rows, columns), with zeros."""
    if isinstance(batch, DenseBatch):
        return np.asarray(batch.values[:, columns], np.float64)
    return batch.first_columns(int(columns[-1]) + 1, len(batch))[:, columns]


def _with_values(batch: Batch, columns: NDArray[np.int64], values: Any) -> Batch:
    """The batch with ``values``, (rows, columns), where it has NaN; an entry that is 0 is none."""
    changed = batch.values.copy()
    if isinstance(batch, DenseBatch):
        row, column = np.nonzero(np.isnan(changed))
        changed[row, column] = values[row, np.searchsorted(columns, column)]
        return replace(batch, values=changed)
    at = np.flatnonzero(np.isnan(changed))
    row = np.searchsorted(batch.indptr, at, side="right") - 1
    found = values[row, np.searchsorted(columns, batch.indices[at])]
    changed[at] = found
    # Sparse rows do not store zeros.
    gone = found == 0.0
    if not gone.any():
        return replace(batch, values=changed)
    left = np.ones(len(changed), np.bool_)
    left[at[gone]] = False
    fewer = np.searchsorted(at[gone], batch.indptr, side="left")
    return SparseBatch(
        batch.indptr - fewer, batch.indices[left], changed[left], batch.y, batch.weight,
        batch.skipped,
    )  # fmt: skip


class StandardizedRows:
    """A batch's rows on standardised inputs, written as far as ``write`` has come.

    write_rows: ``loops.standardized_rows.standardise_rows``, compiled or not.
    """

    def __init__(self, write_rows: Callable[..., int], state: State, batch: Batch) -> None:
        p = state.layout.centred
        indptr, indices, values = batch.arrays
        # One compiled function serves all batches.
        source = indptr, indices, np.asarray(values, dtype=np.float64)
        self.batch: Batch
        if isinstance(batch, DenseBatch):
            z = np.empty(batch.values.shape)
            self.batch = DenseBatch(z, batch.y, batch.weight)
            target = np.empty(0, np.int64), np.empty(0, np.int32), z.reshape(-1)
        else:
            # A row may have entries for none of the columns before, and has for all of them after.
            most = len(values) + p * len(batch)
            target = np.zeros(len(batch) + 1, np.int64), np.empty(most, np.int32), np.empty(most)
            self.batch = SparseBatch(*target, batch.y, batch.weight)
        reference, schedule = state.extra["reference"], state.extra["schedule"]
        self._write = write_rows
        self._before = reference, schedule, p, isinstance(batch, DenseBatch)
        self._arrays = *source, batch.weight, *target

    def write(self, row: int, *, learns: bool, observed: bool = False) -> int:
        """Write rows from ``row`` to the next change of reference; the row at which it is due.

        Without ``learns`` none is. observed: that row has been observed already.
        """
        return self._write(*self._before, learns, row, observed, *self._arrays)


def change_reference(state: State, h: Any) -> None:
    """Update the reference and, for each learner, the slots: predictions stay as they are.

    h: hyper-parameters as the rule's functions read them.
    """
    layout, reference, schedule = state.layout, state.extra["reference"], state.extra["schedule"]
    front = Front(state, h, 1 + layout.centred)
    # Summed over columns, so that the bias is changed once.
    shift = np.zeros(layout.learners)
    for j in range(1, layout.centred + 1):
        c, s = next_reference(reference, j, float(schedule[N]))
        before = float(reference[S, j])
        if before > 0.0:  # else it was constant, and its weight is 0
            ratio = before / s
            shift += front.weights[j] * ((c - reference[C, j]) / before)
            front.rescale(j, ratio)
            for k in range(layout.learners):
                front.replace(j, k, front.weights[j, k] / ratio)
        reference[C, j], reference[S, j] = c, s
    for k in range(layout.learners):
        if shift[k] != 0.0:
            front.replace(0, k, front.weights[0, k] + shift[k])
    front.store(state)
    schedule[NEXT] = following(float(schedule[T]))


class Front:
    """The slots of the first coordinates: the bias, and numeric columns.

    weights: (coordinates, learners), on standardised inputs, as the next row would use them.
    """

    def __init__(self, state: State, h: Any, count: int) -> None:
        rule = state.layout.rule
        self._rule, self._h, self._clock = rule, h, float(state.clock)
        slots = (*rule.shared_slots, *rule.own_slots)
        self._slots = {s.name: np.array(state.slot(s.name)[:count], np.float64) for s in slots}
        self._degrees = dict(rule.state.degrees)
        if rule.state.curvature:
            self._degrees[rule.state.curvature] = 2
        make: Any = rule.state.totals
        stored = len(make._fields)
        self._totals = [make(*row[:stored]) for row in state.totals.tolist()]
        learners = range(state.layout.learners)
        self.weights = np.array([[self._weight(j, k) for k in learners] for j in range(count)])

    def rescale(self, j: int, factor: float) -> None:
        """A coordinate's slots of sizes, where its values are multiplied by a factor."""
        for name, degree in self._degrees.items():
            self._slots[name][j] *= factor**degree

    def replace(self, j: int, k: int, w: float) -> None:
        """Set a coordinate's weight for learner k."""
        # Where the weight was 0, so is the new one, and the slots it is made of may stay.
        if w == 0.0 and self.weights[j, k] == 0.0:
            return
        slots, (own, shared) = self._rule.state, self._numbers(j, k)
        if slots.rejoin is not None:
            # Weights that are made of several slots: the rule knows how.
            own = slots.rejoin(own, float(w), shared, self._totals[k], self._clock, self._h)
        else:
            own = own._replace(**{slots.weight: float(w)})
        for slot, number in zip(self._rule.own_slots, own, strict=True):
            self._slots[slot.name][j, k] = number

    def store(self, state: State) -> None:
        """Write the slots back."""
        for name, numbers in self._slots.items():
            state.slot(name)[: len(numbers)] = numbers

    def _numbers(self, j: int, k: int) -> tuple[Any, Any]:
        """Learner k's own slots of a coordinate, and the shared ones."""
        rule, slots = self._rule, self._slots
        make: tuple[Any, ...] = rule.state.own, rule.state.shared
        own = make[0](*(float(slots[slot.name][j, k]) for slot in rule.own_slots))
        return own, make[1](*(float(slots[slot.name][j]) for slot in rule.shared_slots))

    def _weight(self, j: int, k: int) -> float:
        own, shared = self._numbers(j, k)
        # As the next row would use them.
        given = own, shared, self._totals[k], self._clock + 1.0, self._h
        return float(self._rule.weight(*given))


def raw_weights(state: State, weights: Floats, low: int, front: Floats) -> Floats:
    """Weights of coordinates from ``low`` on, (coordinates, learners), in raw units.

    front: those of the bias and all numeric columns on standardised inputs.
    """
    reference = state.extra["reference"]
    c, s = reference[C][:, np.newaxis], reference[S][:, np.newaxis]
    scaled = np.divide(front, s, out=np.zeros_like(front), where=s > 0.0)
    scaled[0] = front[0] - (scaled[1:] * c[1:]).sum(axis=0)
    found = weights.copy()
    count = max(0, min(len(scaled) - low, len(found)))
    found[:count] = scaled[low : low + count]
    return found


def scaled(target: Floats, batch: Batch) -> Floats:
    """The targets of rows in standard units; 0 while there is one value only.

    The first value that is not c gives the scale: nothing has been learned until then.
    """
    c = target[TARGET_C]
    if target[TARGET_S] == 0.0 and target[TARGET_N] > 0.0:
        # A row that is not learned is not observed.
        others = np.flatnonzero((batch.y != c) & (batch.weight > 0.0))
        if len(others):
            target[TARGET_S] = abs(batch.y[others[0]] - c)
    return (batch.y - c) / target[TARGET_S] if target[TARGET_S] > 0.0 else np.zeros(len(batch))


def scaled_parameters(hyper: Floats, rule: Rule, loss: Loss, scale: float) -> Floats:
    """Hyper-parameters whose lengths of the loss are in standard units."""
    found, first = hyper.copy(), len(fields(rule.hyper))
    for name in loss.lengths if scale > 0.0 else ():
        found[first + fields(loss.hyper).index(name)] /= scale
    return found


def next_target(target: Floats) -> tuple[float, float]:
    """(c', s') of the targets observed; targets that are constant to the last digit keep s."""
    if target[TARGET_N] == 0.0:
        return float(target[TARGET_C]), float(target[TARGET_S])
    s = math.sqrt(target[M2] / target[TARGET_N])
    return float(target[MU]), s if s > 0.0 else float(target[TARGET_S])


def rescale_slots(state: State, loss: Loss, ratio: float) -> None:
    """Weights that are slots, and squared gradients, where s / s' is ``ratio``."""
    slots = state.layout.rule.state
    if slots.curvature:
        _multiply(state.slot(slots.curvature), ratio ** (2 * (loss.degree - 1)))
    if slots.rejoin is None:
        _multiply(state.slot(slots.weight), ratio)


def shift_bias(state: State, h: Any, change: float) -> None:
    """Add to each learner's weight of the bias."""
    front = Front(state, h, 1)
    for k in range(state.layout.learners):
        front.replace(0, k, front.weights[0, k] + change)
    front.store(state)


def _multiply(slot: NDArray[Any], factor: float) -> None:
    np.multiply(slot, factor, out=slot, dtype=np.float64, casting="same_kind")
