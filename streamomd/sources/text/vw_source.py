"""Vowpal Wabbit text: ``label [importance] ['tag]|namespace[:scale] name[:value] … |…``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.errors import DataError, UsageError
from streamomd.sources.text.output_formats import pair_of, required
from streamomd.sources.text.svmlight_source import NUMBER, SparseRows, shown_token, sparse_batch
from streamomd.sources.text.text_source import Text, blocks

MOST_NAMES = 1 << 20
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass
class _Rows:
    """The rows parsed from a block so far."""

    labels: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def columns(self) -> list[NDArray[np.float64]]:
        """Returns labels and weights, (rows,) each."""
        return [np.array(self.labels, np.float64), np.array(self.weights, np.float64)]

    def pairs(self) -> SparseRows:
        """Returns the rows' indices and values, in compressed sparse row form."""
        return SparseRows(
            np.array(self.counts, np.int64),
            np.array(self.indices, np.int32),
            np.array(self.values, np.float32),
        )


class VwReader:
    """VW text as columns label float64, weight float64, i list<int32>, v list<float32>.

    The index of a feature is the lowest ``bits`` bits of murmur3 x86_32, seeded by ``hash_seed``,
    of the UTF-8 text "namespace^name"; of the name alone in the namespace without a name. This is
    not VW's own hash: a number is hashed like any other name, and indices differ from VW's. Values
    are multiplied by the scale of their namespace; features of a row with equal indices are
    summed. A line without an importance has weight 1. Tags are dropped, blank lines skipped.
    """

    size_is_final = True

    def __init__(self, *, bits: int = 18, hash_seed: int = 0) -> None:
        if not 1 <= bits <= 30:
            raise UsageError(f"bits must be between 1 and 30, not {bits}")
        if not 0 <= hash_seed < 1 << 32:
            raise UsageError(f"hash_seed must be between 0 and 2^32 - 1, not {hash_seed}")
        self._mask = (1 << bits) - 1
        self._seed = hash_seed
        self._places: dict[bytes, int] = {}
        self.size: int | None = 1 << bits
        kinds = [pa.float64(), pa.float64(), *pair_of(pa.float32())]
        self.schema = required(zip(("label", "weight", "i", "v"), kinds, strict=True))

    def batches(self, text: Text) -> Iterator[pa.RecordBatch]:
        """The rows of one file; DataError names file, line and token."""
        for line, block in blocks(text):
            rows = _Rows()
            for number, content in enumerate(block.split(b"\n"), start=line):
                if content.strip():
                    self._add(content, f"{text.name}, line {number}", rows)
            if rows.labels:
                where = f"{text.name}, from line {line} on"
                yield sparse_batch(self.schema, rows.columns(), rows.pairs(), where)

    def _add(self, line: bytes, where: str, rows: _Rows) -> None:
        head, *spaces = line.split(b"|")
        label, weight = _head(head, where, bool(spaces))
        for space in spaces:
            self._add_namespace(space, where, rows)
        rows.labels.append(label)
        rows.weights.append(weight)
        rows.counts.append(len(rows.indices))

    def _add_namespace(self, text: bytes, where: str, rows: _Rows) -> None:
        tokens = text.split()
        prefix, scale = b"", 1.0
        # A space after the bar: the namespace has no name.
        if tokens and not text[:1].isspace():
            name, scale = _feature(tokens.pop(0), where)
            prefix = name + b"^"
        for token in tokens:
            name, value = _feature(token, where)
            value *= scale
            # After the scale: the product is what is stored.
            if abs(value) > LARGEST_FLOAT32:
                raise DataError(f"{where}: the value of {shown_token(token)} overflows float32")
            rows.indices.append(self._place(prefix + name))
            rows.values.append(value)

    def _place(self, text: bytes) -> int:
        place = self._places.get(text)
        if place is None:
            if len(self._places) >= MOST_NAMES:
                # Without a limit, names that are seen once would fill the memory.
                self._places.clear()
            place = int(mmh3.hash(text, self._seed, signed=False)) & self._mask
            self._places[text] = place
        return place


def _head(head: bytes, where: str, has_features: bool) -> tuple[float, float]:
    """Label and importance of what stands before the first bar."""
    tokens = head.split()
    # As in VW, a token that touches the bar is a tag.
    if tokens and (tokens[-1][:1] == b"'" or (has_features and not head[-1:].isspace())):
        tokens.pop()
    if not tokens:
        raise DataError(
            f"{where}: no label before the bar in {shown_token(head)}; a label has a space after it"
        )
    if len(tokens) > 2:
        raise DataError(
            f"{where}: expected label, importance and tag, got {shown_token(head)}; "
            "an initial prediction is not read"
        )
    numbers = [_number(token, where, head) for token in tokens]
    weight = numbers[1] if len(numbers) == 2 else 1.0
    if weight < 0:
        raise DataError(f"{where}: the importance {weight} is negative")
    return numbers[0], weight


def _feature(token: bytes, where: str) -> tuple[bytes, float]:
    name, colon, value = token.partition(b":")
    if not name:
        raise DataError(f"{where}: no name before the colon of {shown_token(token)}")
    return name, _number(value, where, token) if colon else 1.0


def _number(token: bytes, where: str, whole: bytes) -> float:
    number = float(token) if NUMBER.fullmatch(token) else math.nan
    if not math.isfinite(number):
        raise DataError(
            f"{where}: expected a finite number, got {shown_token(token)} in {shown_token(whole)}"
        )
    return number
