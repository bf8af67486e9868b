"""Check that a model's numbers are finite: after each batch, and in each part of a state.

A diverged model has NaN or infinities, which spread with every row. Losses and totals are checked
after every batch, the last predictions of a batch every few thousand rows. No row may use an
overflowed slot for a long time, so all slots are checked too: when enough values were learned to
make that cheap, and when a part of a commit is packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import DivergedError
from streamomd.core.urls import shown

Place = tuple[str, int]
"""URL of a shard, and the number of a row in it."""
Arrays = Mapping[str, NDArray[Any]]
BLOCK = 1 << 16  # numbers checked at a time: intermediate results stay in the CPU cache
RATIO = 32  # values learned per checked number of the state: under 1 % of the time
LEAST = 1 << 20  # values learned between two checks of a small state, each about 10 µs
ROWS = 1 << 12  # rows between two checks of predictions, which cost more than those of the sums
LAST = 1 << 8  # predictions of a batch to check: they are still in the CPU cache
FEW = 64
NOT_FINITE = "it is not finite: "
"""Prefix of the reason why a commit is rejected."""
STATE = ("slot.", "extra.", "totals")
"""Arrays of a part that must be finite. Metrics need not be: a hold-out loss may be inf."""


def is_finite(numbers: NDArray[Any]) -> bool:
    """Whether no number is NaN or infinite. Integer arrays are always finite.

    >>> is_finite(np.array([1e308, 1e308])), is_finite(np.array([np.inf, -np.inf]))
    (True, False)
    """
    if numbers.dtype.kind != "f":
        return True
    flat = numbers.reshape(-1)
    blocks = range(0, len(flat), BLOCK)
    return all(np.isfinite(flat[low : low + BLOCK]).all() for low in blocks)


def part_problem(low: int, arrays: Arrays) -> str:
    """Which number of a state's part is not finite; "" if all are. low: its first coordinate."""
    for name, array in sorted(arrays.items()):
        if name.startswith(STATE) and not is_finite(array):
            at = np.argwhere(~np.isfinite(array))[0]
            value = array[tuple(at)]
            if name.startswith("slot."):
                return f"slot {name[5:]!r} of coordinate {low + int(at[0]):,} is {value}"
            return f"a number of its {name.removeprefix('extra.')} is {value}"
    return ""


def batch_problem(
    sums: NDArray[np.float64], totals: NDArray[np.float64], margins: NDArray[np.float64]
) -> str:
    """What is not finite after a batch of one learner or one model; "" if nothing is.

    sums: importance, loss, mistakes or squared errors; these may overflow and are not
    checked. totals: of the state. margins: (rows, learners), predictions before learning.
    """
    if is_finite(sums[:2]) and is_finite(totals) and is_finite(margins):
        return ""
    if not is_finite(margins):
        return f"a prediction is {margins[~np.isfinite(margins)][0]}"
    for name, number in (("loss", sums[1]), ("sum of importance weights", sums[0])):
        if not isfinite(number):
            return f"the {name} is {number}"
    return f"a total of the rule is {totals[~np.isfinite(totals)][0]}"


def _totals_finite(totals: NDArray[np.float64]) -> bool:
    """Without numpy: these are few numbers, and after a batch numpy's code is not in the CPU
    cache."""
    if totals.size <= 1:
        return not totals.size or isfinite(totals.item())
    few = totals.size <= FEW
    return all(map(isfinite, totals.reshape(-1).tolist())) if few else is_finite(totals)


def refuse_diverged(problem: str) -> None:
    """Raises DivergedError if there is a problem."""
    if problem:
        raise DivergedError(f"the model diverged: {problem}")


def finite_parts(parts: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, Any]]:
    """The parts of a commit, each checked when it is yielded. Raises DivergedError."""
    for low, high, arrays in parts:
        refuse_diverged(part_problem(low, arrays))
        yield low, high, arrays


class FiniteCheck:
    """Checks one learner's numbers while it learns.

    ``always``: check every slot after every batch, regardless of cost. ``exact``: whether the rows
    of the raised error are the first batch after which a number was not finite.
    """

    def __init__(self, *, always: bool = False) -> None:
        self.exact = False
        self._always, self._values, self._rows = always, 0, 0
        self._enough = 0 if always else LEAST  # values until the next check of the slots
        self._since: Place | None = None
        self._end: Place | None = None

    def after(
        self,
        state: Any,
        sums: NDArray[np.float64],
        margins: NDArray[np.float64],
        values: int,
        rows: tuple[Place, Place],
    ) -> None:
        """Check the state after a batch of ``values`` feature values, and its predictions once in
        ``ROWS`` rows. rows: its first row and its end.

        Raises DivergedError that names the rows of the batch; for a slot, the rows since the last
        check of all slots.
        """
        if self._since is None:
            self._since = rows[0]
        self._end = rows[1]
        self._rows += len(margins)
        self._values += values
        few = self._rows < ROWS and self._values < self._enough
        if few and isfinite(sums[1]) and _totals_finite(state.totals):
            return
        self._rows, last = 0, margins if self._always else margins[-LAST:]
        problem = batch_problem(sums, state.totals, last)
        exact = self._since == rows[0]  # else a slot may have overflowed before these rows
        if problem:
            self.exact = exact
            raise DivergedError(f"the model diverged: {problem} after {between(*rows)}")
        if self._values >= self._enough:
            self._enough = 0 if self._always else max(LEAST, RATIO * state.nbytes // 8)
            if self._always or self._values >= self._enough:
                self.exact = exact
                self.check_state(state, rows[1])

    def predicted(
        self, sums: NDArray[np.float64], margins: NDArray[np.float64], rows: tuple[Place, Place]
    ) -> None:
        """Check a batch of rows that are learned later, by their loss and their predictions.

        Raises DivergedError that names the rows. ``exact`` only with ``always``: else a slot may
        have overflowed in rows that were learned before.
        """
        last = margins if self._always else margins[-LAST:]
        if not (isfinite(sums[1]) and is_finite(last)):
            self.exact = self._always
            problem = batch_problem(sums, np.zeros(0), last)
            raise DivergedError(f"the model diverged: {problem} after {between(*rows)}")

    def finish(self, state: Any) -> None:
        """Check every number after the last batch. Raises DivergedError as ``check_state``."""
        if self._end is None:
            refuse_diverged(state.problem())
        else:
            self.check_state(state, self._end)

    def check_state(self, state: Any, end: Place) -> None:
        """Check every number of the state, which has learned the rows up to ``end``."""
        problem = state.problem()
        if problem:
            rows = between(self._since or end, end)
            raise DivergedError(f"the model diverged: {problem} after {rows}")
        self._values, self._since, self.exact = 0, end, False


def between(begin: Place, end: Place) -> str:
    """Text for the rows from ``begin`` to before ``end``.

    >>> between(("a.parquet", 0), ("a.parquet", 4096))
    'rows 0 to 4,095 of a.parquet'
    >>> between(("a.parquet", 90), ("b.parquet", 10))
    'row 90 of a.parquet to row 9 of b.parquet'
    >>> between(("a.parquet", 7), ("a.parquet", 8))
    'row 7 of a.parquet'
    """
    (first, low), (last, high) = begin, end
    high = max(high - 1, 0)
    if (first, low) == (last, high):
        return f"row {low:,} of {shown(first)}"
    if first == last:
        return f"rows {low:,} to {high:,} of {shown(first)}"
    return f"row {low:,} of {shown(first)} to row {high:,} of {shown(last)}"


def finite_or_none(number: float) -> float | None:
    """The number, or None for NaN and infinities: JSON has no word for them."""
    return number if isfinite(number) else None
