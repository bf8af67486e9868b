"""svmlight text: ``label [qid:n] index:value … [# comment]``.

Parsed in one vectorised pass; a block that the pass is not sure of is parsed line by line, which
alone decides what is legal and says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import printable
from streamomd.features.csr import canonical
from streamomd.sources.text.output_formats import pair_of, required
from streamomd.sources.text.text_source import Text, blocks

LARGEST_SIZE = 2**31 - 1
"""Most coordinates: the largest index is one below."""


class SparseRows(NamedTuple):
    """CSR rows: indptr (n + 1,) from 0."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any]


def sparse_batch(
    schema: pa.Schema, columns: Sequence[NDArray[Any]], rows: SparseRows, where: str
) -> pa.RecordBatch:
    """A batch of plain ``columns``, then the canonical rows as a list of indices and of values."""
    indptr, indices, values = canonical(*rows)
    if not np.isfinite(values).all():
        raise DataError(
            f"{where}: the values of an index that a row has more than once overflow {values.dtype}"
        )
    offsets = pa.array(indptr.astype(np.int32))
    lists = [
        pa.ListArray.from_arrays(offsets, pa.array(flat), type=kind)
        for kind, flat in zip(schema.types[-2:], (indices, values), strict=True)
    ]
    plain = [pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays([*plain, *lists], schema=schema)


_SPACES = b" \t\r\x0b\x0c"
_COLON, _NEWLINE = ord(":"), ord("\n")
_TO_LINES = bytes.maketrans(_SPACES + b":", b"\n" * (len(_SPACES) + 1))
_DIGITS = b"0123456789"
# As tables for bytes.translate, which is several times faster than indexing with an array.
_SEPARATES = bytes(byte in _SPACES + b":\n" for byte in range(256))
_IS_ODD = bytes(byte not in _SPACES + b":\n" + _DIGITS for byte in range(256))
_COMMENT = re.compile(rb"#[^\n]*")
_QID_LINES = re.compile(rb"^([ \t]*[^\s:]+[ \t]+)qid:[0-9]+(?=[ \t\r\n])", re.MULTILINE)
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
    # A newline first, so that every token has a byte before it.
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
    # An index has digits alone: the parser of numbers would also take 1e3.
    if (odd[ends[is_index] - 1] != odd[starts[is_index] - 1]).any():
        return None
    if len(indices) and not first <= indices.min() <= indices.max() < end:
        return None
    # What overflows becomes infinite, and is found below.
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
    return _QID_LINES.sub(rb"\1", block) if b"qid:" in block else block


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
    # Such as in 1:2:3.
    if (is_index & is_value).any():
        return False
    after = np.searchsorted(starts, np.flatnonzero(bytes_ == _NEWLINE))
    is_first = np.zeros(len(starts), np.bool_)
    is_first[after[after < len(starts)]] = True
    return bool((is_first == ~(is_index | is_value)).all())


NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}
_QID = re.compile(rb"qid:[0-9]+")


@dataclass(frozen=True)
class Indices:
    """Which indices are legal: ``first`` is coordinate 0, and all are below ``end``."""

    first: int
    end: int


class SvmlightReader:
    """svmlight text as columns label float64, indices list<int32>, values list<value_type>.

    zero_based: "auto" and True take indices as coordinates as they are, so that in a file that
    counts from one coordinate 0 is never seen; False subtracts one, and refuses index 0.
    value_type: "float64" or "float32". size: coordinates, if known; a larger index is refused.
    Rows are canonical: ascending distinct indices, equal ones summed in order of appearance.
    A qid is checked and dropped; comments and blank lines are skipped.
    """

    def __init__(
        self,
        *,
        zero_based: bool | str = "auto",
        value_type: str = "float64",
        size: int | None = None,
    ) -> None:
        if zero_based not in ("auto", True, False):
            raise UsageError(f'zero_based must be "auto", True or False, not {zero_based!r}')
        if value_type not in ("float64", "float32"):
            raise UsageError(f'value_type must be "float64" or "float32", not {value_type!r}')
        if size is not None and not 0 < size <= LARGEST_SIZE:
            raise UsageError(f"size must be between 1 and {LARGEST_SIZE}, not {size}")
        first = int(zero_based is False)
        self._legal = Indices(first, first + (size or LARGEST_SIZE))
        self.size_is_final = size is not None
        self._dtype = np.dtype(value_type)
        self.size: int | None = size or 1
        kinds = [pa.float64(), *pair_of(pa.from_numpy_dtype(self._dtype))]
        self.schema = required(zip(("label", "indices", "values"), kinds, strict=True))

    def batches(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows of one file; DataError names file, line and token."""
        for line, block in blocks(text):
            rows = parse_fast(block, self._legal.first, self._legal.end, self._dtype)
            if rows is None:
                rows = parse_strict(block, line, text.name, self._legal, self._dtype)
            labels, pairs = rows
            if not len(labels):
                continue
            if not self.size_is_final and len(pairs.indices):
                self.size = max(self.size or 1, int(pairs.indices.max()) + 1)
            yield sparse_batch(self.schema, [labels], pairs, f"{text.name}, from line {line} on")


def parse_strict(
    block: bytes, line: int, name: str, legal: Indices, dtype: np.dtype[np.floating]
) -> tuple[NDArray[np.float64], SparseRows]:
    """Labels and rows of a block whose first line has the number ``line``."""
    labels: list[float] = []
    counts, indices, values = [0], [], []
    for number, text in enumerate(block.split(b"\n"), start=line):
        tokens = text.split(b"#", 1)[0].split()
        if not tokens:
            continue
        where = f"{name}, line {number}"
        # Labels are float64 in any case: classes may be large numbers.
        labels.append(_number(tokens[0], where, "label", np.dtype(np.float64)))
        for token in tokens[_pairs_from(tokens) :]:
            index, value = _pair(token, where, legal, dtype)
            indices.append(index)
            values.append(value)
        counts.append(len(indices))
    rows = SparseRows(
        np.array(counts, np.int64), np.array(indices, np.int32), np.array(values, dtype)
    )
    return np.array(labels, np.float64), rows


def _pairs_from(tokens: list[bytes]) -> int:
    return 2 if len(tokens) > 1 and _QID.fullmatch(tokens[1]) else 1


def _pair(
    token: bytes, where: str, legal: Indices, dtype: np.dtype[np.floating]
) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    if not colon:
        raise DataError(
            f"{where}: expected index:value, got {shown_token(token)}, which has no colon"
        )
    if not (index.isdigit() and len(index) < 19):
        raise DataError(
            f"{where}: expected a whole number before the colon of {shown_token(token)}"
        )
    if not legal.first <= int(index) < legal.end:
        raise DataError(
            f"{where}: index {int(index)} of {shown_token(token)} is not in "
            f"{legal.first}..{legal.end - 1}; see zero_based and size"
        )
    return int(index) - legal.first, _number(value, where, f"value in {shown_token(token)}", dtype)


def _number(token: bytes, where: str, what: str, dtype: np.dtype[np.floating]) -> float:
    if not NUMBER.fullmatch(token):
        raise DataError(f"{where}: expected a finite number as {what}, got {shown_token(token)}")
    number = float(token)
    if abs(number) > _LARGEST[dtype]:
        raise DataError(f"{where}: {what}, {shown_token(token)}, overflows {dtype}")
    return number


def shown_token(token: bytes) -> str:
    """A token for messages."""
    return repr(printable(token[:60].decode(errors="backslashreplace")))
