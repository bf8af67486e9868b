"""How a column of an Arrow type lies in a record batch: its nodes and buffers, depth first."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

TEXTS = {pa.string(): "i4", pa.binary(): "i4", pa.large_string(): "i8", pa.large_binary(): "i8"}
"""Types of bytes, and of the offsets that say where each value ends."""


class Shape(NamedTuple):
    """How many nodes (a column, and each inside it) and buffers a column has."""

    nodes: int
    buffers: int


def shape_of(kind: pa.DataType) -> Shape:
    """The shape of a column. Raises LookupError for a type that alone does not say.

    >>> shape_of(pa.list_(pa.int32())), shape_of(pa.null())
    (Shape(nodes=2, buffers=4), Shape(nodes=1, buffers=0))
    """
    if isinstance(kind, pa.BaseExtensionType):
        return shape_of(kind.storage_type)
    if pa.types.is_struct(kind) or is_list(kind):
        inside = [shape_of(kind.field(at).type) for at in range(kind.num_fields)]
        own = 2 if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 1
        return Shape(1 + sum(one.nodes for one in inside), own + sum(one.buffers for one in inside))
    if kind in TEXTS:
        return Shape(1, 3)
    if pa.types.is_null(kind):
        return Shape(1, 0)
    if pa.types.is_primitive(kind) or pa.types.is_dictionary(kind):
        return Shape(1, 2)
    raise LookupError(str(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether it is a list of variable or fixed size (not a map, and no list view)."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(known(kind) for known in lists)
