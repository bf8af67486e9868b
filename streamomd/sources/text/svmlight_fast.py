"""svmlight text in one vectorised pass: right, or None where it is not sure.

Arrow's csv reader converts all tokens to numbers in one batch; the kind of a token follows from
the bytes next to it.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from streamomd.sources.text.sparse_rows import SparseRows

_SPACES = b" \t\r\x0b\x0c"
_COLON, _NEWLINE = ord(":"), ord("\n")
_TO_LINES = bytes.maketrans(_SPACES + b":", b"\n" * (len(_SPACES) + 1))
_DIGITS = b"0123456789"
# As tables for bytes.translate, which is several times faster than indexing with an array.
_SEPARATES = bytes(byte in _SPACES + b":\n" for byte in range(256))
_IS_ODD = bytes(byte not in _SPACES + b":\n" + _DIGITS for byte in range(256))
_COMMENT = re.compile(rb"#[^\n]*")
_QID = re.compile(rb"^([ \t]*[^\s:]+[ \t]+)qid:[0-9]+(?=[ \t\r\n])", re.MULTILINE)
_ONE_COLUMN = pa.csv.ReadOptions(column_names=["f0"])
# A byte that no number holds: so each line is one value.
_UNSPLIT = pa.csv.ParseOptions(delimiter="\x01", quote_char=False)
_AS_FLOAT = pa.csv.ConvertOptions(column_types={"f0": pa.float64()}, null_values=[])


def parse_fast(
    block: bytes, first: int, end: int, dtype: np.dtype[np.floating]
) -> tuple[NDArray[np.float64], SparseRows] | None:
    """Labels and rows of a block of whole lines; None unless all of it is surely legal.

    first: the index that is coordinate 0; end: one above the largest legal index.
    """
    block = b"\n" + _plain(block)
    numbers = _numbers(block)
    if numbers is None:
        return None
    bytes_ = np.frombuffer(block, np.uint8)
    apart = np.frombuffer(block.translate(_SEPARATES), np.bool_)
    edges = np.flatnonzero(apart[1:] != apart[:-1]) + 1
    starts, ends = edges[0::2], edges[1::2]
    is_index = bytes_[ends] == _COLON
    is_value = bytes_[starts - 1] == _COLON
    is_label = ~(is_index | is_value)
    if len(starts) != len(numbers) or not _is_regular(block, bytes_, starts, is_index, is_value):
        return None
    odd = np.cumsum(np.frombuffer(block.translate(_IS_ODD), np.int8), dtype=np.int32)
    indices = numbers[is_index]
    if (odd[ends[is_index] - 1] != odd[starts[is_index] - 1]).any():
        return None
    if len(indices) and not first <= indices.min() <= indices.max() < end:
        return None
    with np.errstate(over="ignore"):
        values = numbers[is_value].astype(dtype)
    labels = numbers[is_label]
    if not (np.isfinite(values).all() and np.isfinite(labels).all()):
        return None
    indptr = np.append(np.cumsum(is_index)[is_label], len(indices)).astype(np.int64)
    return labels, SparseRows(indptr, (indices - first).astype(np.int32), values)


def _plain(block: bytes) -> bytes:
    """Without comments, and without qids where they belong."""
    if b"#" in block:
        block = _COMMENT.sub(b"", block)
    return _QID.sub(rb"\1", block) if b"qid:" in block else block


def _numbers(block: bytes) -> NDArray[np.float64] | None:
    lines = block.translate(_TO_LINES)
    if not lines.strip(b"\n"):
        return np.empty(0)
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(lines),
            read_options=_ONE_COLUMN,
            parse_options=_UNSPLIT,
            convert_options=_AS_FLOAT,
        )
    except pa.ArrowInvalid:
        return None
    numbers: NDArray[np.float64] = table.column(0).to_numpy()
    return numbers


def _is_regular(
    block: bytes,
    bytes_: NDArray[np.uint8],
    starts: NDArray[np.int64],
    is_index: NDArray[np.bool_],
    is_value: NDArray[np.bool_],
) -> bool:
    """Whether colons join two tokens each, and lines are one label and then pairs."""
    colons = block.count(b":")
    if not colons == np.count_nonzero(is_index) == np.count_nonzero(is_value):
        return False
    if (is_index & is_value).any():
        return False
    after = np.searchsorted(starts, np.flatnonzero(bytes_ == _NEWLINE))
    is_first = np.zeros(len(starts), np.bool_)
    is_first[after[after < len(starts)]] = True
    return bool((is_first == ~(is_index | is_value)).all())
