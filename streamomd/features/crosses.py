r"""Crosses: the values that columns have together in a row, hashed as one category.

The text is ``job^marital=admin.^single``. In a column's name and in a value ``^`` is written ``\^``
and a backslash ``\\``; a null is ``\N``. So values that differ have different texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.features.hashed import coded, paired, places
from streamomd.features.names import Names
from streamomd.features.plan import Plan

_BETWEEN, _NULL = b"^", b"\\N"


def cross_name(columns: Sequence[str]) -> str:
    r"""What a cross is called.

    >>> cross_name(["job", "marital"]), cross_name(["a^b", "c"])
    ('job^marital', 'a\\^b^c')
    """
    return _BETWEEN.join(_escaped(column.encode()) for column in columns).decode()


def crossed(
    columns: Sequence[str], arrays: Sequence[pa.Array], plan: Plan, names: Names | None
) -> NDArray[np.int32]:
    """Each row's coordinate (n,): hashed once for all rows that have the same values."""
    codes, texts = _values(arrays[0])
    for array in arrays[1:]:
        more, others = _values(array)
        codes, first, second = paired(codes, more, len(others))
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        texts = [texts[a] + _BETWEEN + others[b] for a, b in pairs]
    name = cross_name(columns)
    prefix = f"{name}=".encode()
    table = places((prefix + text for text in texts), len(texts), plan)
    if names is not None:
        names.note(name, table.tolist(), texts)
    found: NDArray[np.int32] = table[codes]
    return found


def _values(array: pa.Array) -> tuple[NDArray[np.int64], list[bytes]]:
    """Each row's place among the distinct values, and these, escaped."""
    found = coded(array)
    rank = np.empty(found.size, np.int64)
    rank[found.used] = np.arange(len(found.used))
    return rank[found.codes], [_escaped(text) for text in found.texts]


def _escaped(text: bytes | None) -> bytes:
    return _NULL if text is None else text.replace(b"\\", b"\\\\").replace(b"^", b"\\^")
