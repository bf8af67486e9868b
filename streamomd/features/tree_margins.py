"""The margins of a plan's trees, next to the numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamomd.core.trees import Growth, tree_walker
from streamomd.features.csr import Columns
from streamomd.features.numeric import Numbers
from streamomd.features.plan import Plan, number_at

Floats = NDArray[np.float64]
Gone = Sequence[NDArray[np.bool_]]
"""Where a value is missing, for each column with an indicator."""


def values_of_trees(
    plan: Plan, table: Numbers, gone: Gone = (), coordinates: Columns | None = None
) -> Floats:
    """What trees read of rows: their numbers, NaN where one is missing, and the hashed coordinates,
    from 0, of what has one category a row. coordinates: (features, rows), bias included."""
    numbers, single = known_numbers(plan, table, gone), len(plan.single)
    if coordinates is None:
        return numbers
    return np.column_stack([numbers, (coordinates[:single] - plan.hashed_offset).T])


def known_numbers(plan: Plan, table: Numbers, gone: Gone) -> Floats:
    """Numeric and vector coordinates of rows, NaN where one is missing."""
    found = table[:, : plan.given_numbers].astype(np.float64)
    if gone:
        missing_in = dict(zip(plan.indicators, gone, strict=True))
        for at in range(plan.given_numbers):
            column, _ = number_at(plan, at)
            if column in missing_in:
                found[missing_in[column], at] = np.nan
    return found


def write_margins(
    plan: Plan, table: Numbers, gone: Gone = (), coordinates: Columns | None = None,
    growths: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Write the margins of trees after the numbers and hats of a matrix of rows. growths: of each
    row, see ``Trees.growth_of``."""
    if plan.trees is None:
        return
    values = values_of_trees(plan, table, gone, coordinates)
    out = table[:, plan.numbers - plan.margins : plan.numbers]
    if growths is None:
        out[:] = _margins(plan.trees.growths[-1], values, plan.margins)
        return
    for which in np.unique(growths).tolist():
        rows = growths == which
        if which < 0:
            out[rows] = 0.0
        else:
            out[rows] = _margins(plan.trees.growths[which], values[rows], plan.margins)


def _margins(growth: Growth, values: Floats, margins: int) -> Floats:
    found = np.empty((len(values), margins))
    nodes, coded = growth[:5], growth.coded(values)
    items = len(values) * (len(growth.roots) - 1)
    tree_walker()(items, coded.reshape(-1), coded.shape[1], *nodes, margins, found.reshape(-1))
    return found
