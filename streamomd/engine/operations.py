"""The operations of the engine: how the loop of each is made, and the types of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from streamomd.engine.loops import (
    block,
    block_predict,
    block_row,
    dense,
    frozen,
    full_pass,
    matrix,
    microbatch,
    rebase,
    recent_rows,
    root_matrix,
    row,
    sparse,
)
from streamomd.engine.loops.load_store import take
from streamomd.engine.loops.row import Shape, miss_of, number_of_class, target
from streamomd.losses import Loss
from streamomd.rules.common.standardized import smoothing
from streamomd.rules.contract import Rule, fields


def make_row_losses(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """row_losses(t, hyper, y, importance, margins, found): loss and mistake of each row.

    t: rows learned before; found: (rows, 2), written. A block's log loss is smoothed by t.
    """
    smooths = rule.storage.kind == "block"
    row_loss = (block_row.make_losses if smooths else _make_losses)(rule, loss, shape)
    L, miss, mean = shape.learners, miss_of(shape), loss.mean

    def row_losses(t: float, hyper: Any, y: Any, importance: Any, margins: Any, found: Any) -> None:
        slopes = np.zeros(L)
        for i in range(len(y)):
            if importance[i] > 0.0:
                t += 1.0
            found[i, 0] = row_loss(margins, i, y[i], smoothing(t), hyper, slopes)
            found[i, 1] = miss(margins, i, y[i], mean)

    return row_losses


def _make_losses(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., Any]:
    """row_loss(margins, i, y, e, hyper, slopes) -> loss of row i; e is not used."""
    L, classes = shape.learners, shape.classes
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim, value = take(len(fields(Aim))), loss.value
    couple: Any = loss.couple

    def coupled_loss(margins: Any, i: int, y: float, e: float, hyper: Any, slopes: Any) -> float:
        found: float = couple(margins, i, number_of_class(y, classes), slopes)
        return found

    def single_loss(margins: Any, i: int, y: float, e: float, hyper: Any, slopes: Any) -> float:
        aim = Aim(*load_aim(hyper, n_rule, 1))
        total = 0.0
        for k in range(L):
            total += value(margins[i, k], target(y, k, classes, L), aim)
        return total

    return coupled_loss if loss.coupled else single_loss


TARGET_N, MU, M2, TARGET_C, TARGET_S = 0, 1, 2, 3, 4
"""``target``: importance of the targets observed, their moments (Welford), and c and s."""


def make_count(rule: Rule, loss: Loss, shape: Shape) -> Callable[..., None]:
    """count(target, learns, sums, hyper, y, importance, margins): margins become c + s m, and each
    row adds to sums. Rows that are learned are observed: see ``engine.standardize``."""
    Aim, n_rule = loss.hyper, len(fields(rule.hyper))
    load_aim, value = take(len(fields(Aim))), loss.value
    miss, mean = miss_of(shape), loss.mean

    def count(
        target: Any, learns: bool, sums: Any, hyper: Any, y: Any, importance: Any, margins: Any
    ) -> None:
        aim = Aim(*load_aim(hyper, n_rule, 1))
        c, s = target[TARGET_C], target[TARGET_S]
        for i in range(len(y)):
            h = importance[i]
            margins[i, 0] = c + s * margins[i, 0]
            sums[0] += h
            sums[1] += h * value(margins[i, 0], y[i], aim)
            sums[2] += h * miss(margins, i, y[i], mean)
            if learns and h > 0.0:
                target[TARGET_N] += h
                d = y[i] - target[MU]
                target[MU] += d * (h / target[TARGET_N])
                target[M2] += h * d * (y[i] - target[MU])

    return count


LOOPS: dict[str, Any] = {
    "coordinates": sparse,
    "matrix": matrix,
    "root": root_matrix,
    "recent": recent_rows,
    "block": block,
}
"""The loops for each kind of ``Rule.storage``."""


def _array(dtype: str, ndim: int = 1, *, written: bool = False) -> Any:
    return types.Array(numba.from_dtype(np.dtype(dtype)), ndim, "C", readonly=not written)


def _all(cell: str) -> Any:
    """Argument types that passes over all coordinates begin with: cells, totals, hyper, clock."""
    totals = _array("float64", written=True)
    return _array(cell, written=True), totals, _array("float64"), types.float64


def _renew(rule: Rule, cell: str, value: str) -> Any:
    return (*_all(cell), types.int64)


def _align(rule: Rule, cell: str, value: str) -> Any:
    return (*_all(cell), _array(cell))


def _rejoin(rule: Rule, cell: str, value: str) -> Any:
    return (*_all(cell), _array("float64"), _array("float64"))


def _sense(rule: Rule, cell: str, value: str) -> Any:
    numbers = _array("float64")
    state = [_array(cell, written=True), numbers, numbers, types.float64]
    rows = [numbers, _array("int64"), _array("uint32"), _array(value)]
    written = [_array(dtype, written=True) for dtype in ("float64", "uint8")]
    return (*state, _array("int64"), *rows, *written)


def _decide(rule: Rule, cell: str, value: str) -> Any:
    numbers, written = _array("float64"), _array("float64", written=True)
    rows = [numbers, numbers, numbers, written, _array("float64", 2, written=True)]
    return (written, written, numbers, types.float64, *rows)


def _apply(rule: Rule, cell: str, value: str) -> Any:
    numbers = _array("float64")
    state = [_array(cell, written=True), numbers, types.float64, types.int64]
    return (*state, _array("int64"), _array("uint32"), _array(value), numbers)


def _rows(rule: Rule, cell: str, value: str) -> Any:
    """Argument types of a loop over rows; one exact set, so that no call compiles anything else."""
    numbers = _array("float64")
    extra = [_array("float64", 3, written=True)] if rule.storage.matrices else []
    state = [_array(cell, written=True), _array("float64", written=True), *extra]
    if rule.storage.kind == "block":
        state = [*_block(cell), types.int64]
    # hyper is only read; as one that is written it is loaded by the functions that load cells.
    moved = [_array("float64", written=True), _array("float64", written=True), types.float64]
    rows = [_array("int64"), _array("uint32"), _array(value), numbers, numbers]
    return (*state, *moved, *rows, _array("float64", 2, written=True))


def _predict(rule: Rule, cell: str, value: str) -> Any:
    """A block's also takes how its predictors are mixed."""
    mixed = [_array("float64")] if rule.storage.kind == "block" else []
    return (*_rows(rule, cell, value), *mixed)


def _score(rule: Rule, cell: str, value: str) -> Any:
    """Argument types of ``loops.frozen.make_score``."""
    numbers, copies = _array("float64"), [_array(cell), _array("float64", 3)]
    rows = [_array("int64"), _array("uint32"), _array(value), numbers, numbers]
    chain = _array("float64", written=True)
    return (_array(cell), numbers, *copies, chain, types.int64, *rows, *_scratch(2))


def _block(cell: str) -> list[Any]:
    """Argument types of the state with a block: see ``Layout.block``."""
    written = [_array("float64", ndim, written=True) for ndim in (1, 2, 3, 3, 3)]
    return [_array(cell, written=True), *written, _array("int64", written=True)]


@cache  # numba's types are slow to make
def rebase_signature(cell: str) -> Any:
    """Argument types of ``loops.rebase.rebase``."""
    return (*_block(cell), _kind(), *_scratch(3, 2))


@cache
def solve_signature(cell: str) -> Any:
    """Argument types of ``loops.block_solve.solve``."""
    rows = [_array(dtype) for dtype in ("int64", "int64", "float64", "float64", "float64")]
    given = (types.boolean, types.int64, *rows)
    return (*_block(cell), _kind(), *given, *_scratch(2, 2, 2, 3, 2))


@cache
def copy_signature(cell: str) -> Any:
    """Argument types of ``loops.frozen.copy_weights``."""
    return (_array(cell), types.int64, types.int64, types.int64, _array(cell, 3, written=True))


def _kind() -> Any:
    kinds = [types.int64] * 2 + [types.boolean] * 4 + [types.float64] * 2
    kind: Any = types.NamedTuple(kinds, rebase.Kind)  # type: ignore[no-untyped-call]
    return kind


def _scratch(*dimensions: int) -> list[Any]:
    return [_array("float64", each, written=True) for each in dimensions]


@cache
def standardise_signature() -> Any:
    """Argument types of ``loops.standardized_rows.standardise_rows``."""
    numbers = _array("float64")
    settings = [types.int64, types.boolean, types.boolean, types.int64, types.boolean]
    given = [_array("int64"), _array("uint32"), numbers, numbers]
    made = [_array(dtype, written=True) for dtype in ("int64", "int32", "float64")]
    reference = [_array("float64", ndim, written=True) for ndim in (2, 1)]
    return (*reference, *settings, *given, *made)


def _learn(rule: Rule, cell: str, value: str) -> Any:
    """Argument types of ``make_learn``; with recent rows their own."""
    if rule.storage.kind == "block":
        state = _rows(rule, cell, value)
        scratch = [_array("int64", written=True), *[_array("float64", 2, written=True)] * 3]
        table = _array("float64", 2, written=True)
        return (
            *state[:3], table, *state[4:8], types.int64, types.boolean, types.int64,
            *state[8:], *scratch
        )  # fmt: skip
    if rule.storage.kind != "recent":
        return _rows(rule, cell, value)
    numbers, written = _array("float64"), _array("float64", written=True)
    state = [_array(cell, written=True), written, _array("float64", 2, written=True), written]
    moved = [numbers, types.float64, types.int64, types.int64]
    rows = [_array("int64"), _array("int64"), numbers, numbers, numbers]
    return (*state, *moved, *rows, _array("float64", 2, written=True))


def _count(rule: Rule, cell: str, value: str) -> Any:
    numbers, written = _array("float64"), _array("float64", written=True)
    rows = [numbers, numbers, _array("float64", 2, written=True)]
    return (written, types.boolean, written, numbers, *rows)


def _row_losses(rule: Rule, cell: str, value: str) -> Any:
    numbers, written = _array("float64"), _array("float64", 2, written=True)
    return (types.float64, numbers, numbers, numbers, written, written)


def _add(rule: Rule, cell: str, value: str) -> Any:
    numbers, written = _array("float64"), _array("float64", written=True)
    rows = [numbers, numbers, _array("float64", 2, written=True)]
    return (written, _array("int64"), numbers, numbers, *rows)


class Operation(NamedTuple):
    """How the loop of an operation is made.

    make: a factory of (rule, loss, shape), or its name in the module of a rule's storage.
    signature(rule, cell, value): argument types, for cells and values of these dtypes.
    plain: the operation that is its uncompiled form, "" for itself.
    """

    make: str | Callable[..., Any]
    signature: Callable[[Rule, str, str], Any]
    plain: str = ""

    def maker(self, rule: Rule) -> Callable[..., Any]:
        """The factory for a rule."""
        if isinstance(self.make, str):
            found: Callable[..., Any] = getattr(LOOPS[rule.storage.kind], self.make)
            return found
        return self.make


OPERATIONS = {
    "learn": Operation("make_learn", _learn),
    "dense": Operation(dense.make_dense, _rows, plain="learn"),
    "look": Operation("make_look", _rows),
    "predict": Operation("make_predict", _predict),
    "score": Operation(frozen.make_score, _score),
    "spread": Operation(block_predict.make_spread, _rows),
    "count": Operation(make_count, _count),
    "row_losses": Operation(make_row_losses, _row_losses),
    "add": Operation(row.make_add, _add),
    "renew": Operation(full_pass.make_renew, _renew),
    "align": Operation(full_pass.make_align, _align),
    "rejoin": Operation(full_pass.make_rejoin, _rejoin),
    "sense": Operation(microbatch.make_sense, _sense),
    "decide": Operation(microbatch.make_decide, _decide),
    "apply": Operation(microbatch.make_apply, _apply),
}
"""Every loop of the engine."""
