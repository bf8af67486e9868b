"""A user's comparator: an array or a file of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.shards.reader import read_batches
from streamomd.sources.find import find
from streamomd.sources.table_options import TableOptions

Floats = NDArray[np.float64]


def load_comparator(source: Any, size: int, learners: int) -> Floats:
    """(size, learners) from an array, a .npy file, or a Parquet file with one column per learner.

    Raises UsageError saying what is expected, InputNotFoundError.
    """
    found = _read(source) if isinstance(source, str) else np.asarray(source)
    expected = f"{size:,} weights, in the order of coordinates (the bias first, if there is one)"
    if learners > 1:
        expected += (
            f", for each of {learners} learners: shape ({size}, {learners}), or one column each"
        )
    if found.shape == (size,) and learners == 1:
        found = found[:, None]
    if found.shape != (size, learners):
        raise UsageError(f"the comparator has shape {found.shape}; expected {expected}")
    try:
        u = np.ascontiguousarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"the comparator holds {found.dtype}; expected {expected}") from None
    if not np.isfinite(u).all():
        raise UsageError(f"the comparator holds a number that is not finite; expected {expected}")
    return u


def _read(path: str) -> Any:
    if not path.endswith(".npy"):
        return _columns(path)
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputNotFoundError(f"no file of weights {path!r}") from None
    except (OSError, ValueError):  # numpy's text suggests to load pickled objects
        raise UsageError(f"{path!r} is not a .npy file of weights: expected numbers") from None


def _columns(path: str) -> Any:
    shards = find(path, tables=TableOptions(as_files=True))
    names = list(next(iter(shards)).schema.names)

    read = [
        np.column_stack([rows.batch.column(name).to_numpy(zero_copy_only=False) for name in names])
        for rows in read_batches(shards, places=range(len(shards)), columns=names)
    ]
    return np.concatenate(read) if read else np.empty((0, len(names)))
