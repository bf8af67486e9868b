"""Whole numbers that another shard writes as floats, or floats that it writes as whole numbers.

A null among whole numbers makes pandas write floats. A category is the text of a value, so it must
not depend on the type: 3.0 of a column of whole numbers is "3".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamomd.core.message import PerReader
from streamomd.features.arrow_types import NUMBERS, family, plain
from streamomd.features.bad_rows import CheckedValues, shown

if TYPE_CHECKING:
    from streamomd.features.plan import Plan

KINDS = {"integer": pa.int64(), "float": pa.float64()}
EXPECTED = {"integer": "a whole number", "float": "a whole number below 2**53"}


def may_differ(plan: Plan, column: str, first: str, here: str) -> bool:
    """Whether a column of family ``first`` may be of family ``here`` in another shard."""
    if column == plan.time:  # a float has no exact time
        return False
    if column in plan.numeric and {first, here} <= {*NUMBERS, "decimal"}:
        return True
    return column in plan.categorical and {first, here} == set(NUMBERS)


def as_first(array: pa.Array, first: str, cells: CheckedValues) -> pa.Array:
    """The values with the family that the first shard had; others are noted as bad.

    >>> from streamomd.features.bad_rows import BadRows
    >>> cells = CheckedValues(BadRows(3), "k")
    >>> as_first(pa.array([3.0, None, 0.5]), "integer", cells).to_pylist(), bool(cells.flaws)
    ([3, None, 0], True)
    """
    here = family(array.type)
    if here == first or {first, here} != set(NUMBERS):
        return array
    values = array.cast(plain(array.type))
    there = values.cast(KINDS[first], safe=False)
    given, back = values.fill_null(0), there.fill_null(0).cast(values.type, safe=False)
    bad = np.flatnonzero(given.to_numpy() != back.to_numpy())
    cells.note(
        "fraction",
        bad,
        lambda row: shown(values[row].as_py()),
        EXPECTED[first],
        PerReader(
            "the first shard had another type of number: write the column with that type, or drop "
            "the row",
            "X of the first call had another type of number: pass that type, or drop the row",
        ),
    )
    return there
