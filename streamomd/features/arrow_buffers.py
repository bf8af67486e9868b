"""Arrow's strings as the bytes and offsets that compiled code takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def buffers(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of strings or binary values, large or not, and where each begins and ends."""
    _, offsets, data = values.buffers()
    large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    found = np.frombuffer(offsets or b"", np.int64 if large else np.int32)
    begins = found[values.offset :][: len(values) + 1].astype(np.int64, copy=False)
    return np.frombuffer(data or b"", np.uint8), begins
