"""Standard errors by the Laplace approximation: P = (A + prior)^-1 is the covariance of the weights
on standardised inputs; for the square loss, in units of the noise's variance, its mean error."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamomd.core.batch import SparseBatch
from streamomd.core.errors import UnsupportedError
from streamomd.engine import Engine
from streamomd.engine.loops.rebase import AT, mean_importance, passes_held
from streamomd.engine.loops.reference import S
from streamomd.engine.state import State
from streamomd.rules.common.standardized import precision, sparse_unit
from streamomd.rules.contract import Block

Floats = NDArray[np.float64]


def has_errors(engine: Engine) -> bool:
    """Whether the rule has a covariance of its weights."""
    storage = engine.layout.rule.storage
    return isinstance(storage, Block) and storage.second


def refuse_interval(engine: Engine) -> None:
    """Raises UnsupportedError for a rule or loss without a covariance of its weights."""
    if not has_errors(engine):
        raise UnsupportedError(
            f"rule {engine.layout.rule.name!r} with loss {engine.loss.name!r} has no covariance of "
            "its weights to make intervals of: rules auto and laplace have, with loss logistic, "
            "square or softmax"
        )


class MarginErrors(NamedTuple):
    """Standard errors of rows' margins, (rows, learners), and by how much the prior has moved them
    towards 0."""

    errors: Floats
    shifts: Floats


def margin_errors(engine: Engine, state: State, batch: Any) -> MarginErrors:
    """By the curvature at the weights found.

    Shifts are 0 for the square loss, whose prior shrinks with the noise. Those of log losses are up
    to an error where the labels are nearly separable: there w is large, and few rows show it.
    """
    found = engine.spread(state, batch)
    variances, shifts = found[:, : found.shape[1] // 2], found[:, found.shape[1] // 2 :]
    errors = np.sqrt(np.maximum(variances, 0.0) * _noise(engine, state))
    return MarginErrors(errors, shifts if engine.loss.probabilistic else np.zeros_like(shifts))


def weight_errors(engine: Engine, state: State, low: int, high: int) -> Floats:
    """Standard errors of weights low … high − 1 in raw units, (high − low, learners).

    NaN for a coordinate that no row has held.
    """
    layout, totals = engine.layout, state.totals
    unit = sparse_unit(engine.loss.quadratic) * passes_held(totals[0])
    unit *= mean_importance(totals[0]) * totals[0, AT["outside"]]
    n, q = (np.asarray(state.slot(name)[low:high], np.float64) for name in ("n", "q"))
    S_i = np.asarray(state.slot("S")[low:high], np.float64)
    D = precision(S_i, q[:, np.newaxis], totals[:, AT["scale"]], engine.h.prior_sparse * unit)
    seen = (n > 0.0)[:, np.newaxis]
    variances = np.where(seen, 1.0 / np.where(seen, D, 1.0), np.nan)
    places, reference, P = (state.extra[name] for name in ("places", "reference", "P"))
    # Not the bias, which is at place 0: its error is that of a row without features.
    rows = np.flatnonzero((places > 0) & (reference[S, : len(places)] > 0.0))
    rows = rows[(places[rows] >= low) & (places[rows] < high)]
    diagonal = P[:, rows, rows % P.shape[2]] / reference[S, rows] ** 2
    constant = np.arange(1, 1 + layout.numeric)
    constant = constant[(reference[S, constant] == 0.0) & (constant >= low) & (constant < high)]
    # No row says what a constant column would do.
    variances[constant - low] = np.nan
    variances[places[rows] - low] = diagonal.T
    if low == 0:
        variances[0] = engine.spread(state, _without_features())[0, : layout.learners]
    return np.sqrt(variances * _noise(engine, state))


def sum_errors(engine: Engine, state: State, columns: NDArray[np.int64], factors: Floats) -> Floats:
    """Standard errors of sums of the weights of numeric columns in raw units, (sums, learners).

    columns: their places in the block, from 1. factors: (sums, columns). Covariances of columns in
    one group of the block count; the rule has none of columns in different groups.
    """
    P, scale = state.extra["P"], state.extra["reference"][S, columns]
    size = P.shape[2]
    # P has rows of a group only: of two groups the covariance is taken for 0.
    together = columns[:, np.newaxis] // size == columns // size
    covariance = P[:, columns[:, np.newaxis], columns % size] * together
    factors = np.divide(factors, scale, out=np.zeros_like(factors), where=scale > 0.0)
    variances = np.einsum("si,kij,sj->sk", factors, covariance, factors)
    found: Floats = np.sqrt(np.maximum(variances, 0.0) * _noise(engine, state))
    return found


def _noise(engine: Engine, state: State) -> float:
    """The variance of the noise in whose units A is: 1 for log losses.

    Of rows of importance h, sum h z z' has the covariance sum h^2 z z' times it: where h does not
    depend on z, sum h^2 / sum h as much. Rows that A holds several times are no further
    information: P is too small by as much.
    """
    totals = state.totals[0]
    one = float(totals[AT["mse"]]) if engine.loss.quadratic else 1.0
    uneven = float(totals[AT["squares"]] / totals[AT["n"]]) if totals[AT["n"]] > 0.0 else 1.0
    return one * uneven * float(passes_held(totals))


def _without_features() -> SparseBatch:
    """A row whose margin is the bias."""
    return SparseBatch(
        np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0), np.zeros(1), np.ones(1)
    )
