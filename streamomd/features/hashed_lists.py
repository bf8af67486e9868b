"""Lists of categories: each element of a list is a coordinate, ``column=element``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamomd.features.canonical import Csr
from streamomd.features.hashed import categories
from streamomd.features.lists import elements_of, of_any_length
from streamomd.features.names import Names
from streamomd.features.plan import Plan


def listed_categories(
    array: pa.Array, column: str, plan: Plan, names: Names | None, dtype: Any
) -> Csr:
    """A coordinate for each element, in the order of the list, with the value 1.

    A null list is one null element, which is a category of its own; an empty list has none.
    """
    array = of_any_length(array)
    if array.null_count:
        array = array.fill_null(pa.scalar([None], array.type))
    begins, elements = elements_of(array)
    at = categories(elements, column, plan, names)
    return begins, at - np.int32(plan.bias), np.ones(len(at), dtype)
