r"""Crosses: the values that columns have together in a row, hashed as one category.

The text is ``job^marital=admin.^single``. In a column's name and in a value ``^`` is written ``\^``
and a backslash ``\\``; a null is ``\N``. So values that differ have different texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.hashed import Codes, as_bytes, coded, paired, places, side_by_side
from streamomd.features.names import Names
from streamomd.features.plan import Plan

_BETWEEN, _NULL = "^", pa.scalar(b"\\N", pa.large_binary())


def cross_name(columns: Sequence[str]) -> str:
    r"""The name of a cross.

    >>> cross_name(["job", "marital"]), cross_name(["a^b", "c"])
    ('job^marital', 'a\\^b^c')
    """
    return _BETWEEN.join(name.replace("\\", "\\\\").replace("^", "\\^") for name in columns)


def crossed(
    columns: Sequence[str], arrays: Sequence[pa.Array], plan: Plan, names: Names | None
) -> NDArray[np.int32]:
    """Each row's coordinate (n,): hashed once for all rows that have the same values."""
    codes, texts = _values(arrays[0])
    for array in arrays[1:]:
        more, others = _values(array)
        codes, first, second = paired(codes, more, len(others))
        texts = side_by_side(texts.take(first), others.take(second), _BETWEEN)
    return places(texts, cross_name(columns), plan, names, codes)


def _values(array: pa.Array) -> tuple[Codes, pa.Array]:
    """Each row's place among the distinct values of all rows, and these, escaped."""
    codes, values = coded(array)
    used = np.flatnonzero(np.bincount(codes, minlength=1))
    rank = np.empty(len(values) + 1, np.int32)
    rank[used] = np.arange(len(used))
    texts = as_bytes(values).take(pa.array(used, mask=used == len(values)))
    import pyarrow.compute as pc  # late: it writes 300 docstrings first

    for special in (b"\\", b"^"):
        texts = pc.replace_substring(texts, special, b"\\" + special)
    return rank[codes], texts.fill_null(_NULL)
