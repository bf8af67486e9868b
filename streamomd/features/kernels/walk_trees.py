"""Margins of boosted trees, compiled; few rows are walked in Python."""

from __future__ import annotations

import functools
from typing import Any

from streamomd.core.jit import LazyCompiled, int64, read, written
from streamomd.core.trees import walk

UNCOMPILED = 1 << 14
"""Trees of rows before ``walk`` is compiled."""


@functools.cache
def tree_walker() -> Any:
    """``walk``, which begins uncompiled."""
    nodes = [read("int32"), read("float64"), read("int32"), read("int8"), read("int64")]
    signature = [read("float64"), int64, *nodes, int64, written("float64")]
    return LazyCompiled(walk, signature, UNCOMPILED)
