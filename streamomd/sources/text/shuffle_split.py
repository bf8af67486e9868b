"""All rows in a random order, and in parts such as train and test, in bounded memory.

The key of a row is made of the seed and the row's number only, so the order depends on
nothing else. Rows are scattered to files by the first eight bits of their key; a file that fits
in memory is sorted there, a larger one scattered by the next eight.

The part of a row depends on the rows of the sources and the split alone, not on shards or on the
shuffle. Nothing but eight bytes a row on disk is held, and those for a split by time only.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamomd.core.errors import DataError, UsageError
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.shards.order import GAMMA, mixed

CHUNK_BYTES = 24 << 20
"""Bytes sorted in memory in one batch."""
_KEY = "\0key"
_FIRST_SHIFT = 56
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """Keys of the rows ``first … first + count - 1``: distinct, SplitMix64 of seed and row.

    >>> keys(0, 0, 3).tolist()
    [16294208416658607535, 7960286522194355700, 487617019471545679]
    """
    rows = np.arange(first + 1, first + 1 + count, dtype=np.uint64)
    return mixed(mixed(np.array([seed], np.uint64)) + rows * GAMMA)


def shuffled(
    batches: Iterable[pa.RecordBatch], seed: int, scratch: str | None
) -> Iterator[pa.RecordBatch]:
    """The rows of ``batches`` in the order of (seed, row number); all are read before the first.

    scratch: the directory for temporary files, or None for the system's.
    """
    for table in _sorted(_keyed(batches, seed), _FIRST_SHIFT, scratch):
        yield from table.drop_columns([_KEY]).to_batches()


def _keyed(batches: Iterable[pa.RecordBatch], seed: int) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches:
        key = pa.array(keys(seed, row, batch.num_rows))
        yield batch.append_column(pa.field(_KEY, pa.uint64()), key)
        row += batch.num_rows


def _sorted(
    batches: Iterable[pa.RecordBatch], shift: int, scratch: str | None
) -> Iterator[pa.Table]:
    chunks = _chunks(batches)
    # One chunk, as of most files, is sorted in memory and needs no disk.
    held = list(itertools.islice(chunks, 2))
    if len(held) < 2:
        yield from held
        return
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=scratch) as directory:
        _scatter(itertools.chain(_drained(held), chunks), shift, directory)
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            yield from _sorted(_stored(path), shift - 8, scratch)
            # At the end of each: sorted rows and their files are on the disk for a short time only.
            os.remove(path)


def _drained(held: list[pa.Table]) -> Iterator[pa.Table]:
    """The batches one after the other, without references to earlier ones."""
    while held:
        yield held.pop(0)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """About `CHUNK_BYTES` of rows at a time, in the order of their keys."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > CHUNK_BYTES:
            yield _by_key(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield _by_key(held)


def _by_key(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches).combine_chunks()
    # Keys are distinct, so any sort gives one order.
    return table.take(pa.array(np.argsort(_keys_of(table))))


def _keys_of(table: pa.Table) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = table.column(_KEY).to_numpy()
    return found


def _scatter(chunks: Iterable[pa.Table], shift: int, directory: str) -> None:
    """Write the rows of each chunk to the file of their eight bits; all agree on those before."""
    with ExitStack() as opened:
        writers: dict[int, Any] = {}
        for chunk in chunks:
            # Rows of a chunk are sorted: those of one file follow each other.
            digits = (_keys_of(chunk) >> np.uint64(shift)).astype(np.uint8)
            edges = [0, *(np.flatnonzero(np.diff(digits)) + 1).tolist(), len(digits)]
            for start, stop in itertools.pairwise(edges):
                digit = int(digits[start])
                if digit not in writers:
                    path = os.path.join(directory, f"{digit:03d}")
                    file = opened.enter_context(pa.OSFile(path, "wb"))
                    stream = pa.ipc.new_stream(file, chunk.schema, options=_LZ4)
                    writers[digit] = opened.enter_context(stream)
                writers[digit].write_table(chunk.slice(start, stop - start))


def _stored(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
        yield from stream


DEFAULT_NAMES = {2: ("train", "test"), 3: ("train", "validation", "test")}
MOST_PARTS = 100
CHUNK = 1 << 20
_COLUMN = "\0part"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Split:
    """Parts by name, in order, and which rows go there.

    shares: of the rows, up to and with each part but the last. by: column whose values stay
    together; time: column whose earliest values are in the first part; neither: each row by its
    number and the seed.
    """

    names: tuple[str, ...]
    shares: tuple[Fraction, ...]
    by: str = ""
    time: str = ""
    seed: int = 0

    @property
    def bounds(self) -> Keys:
        """The least hash of each part but the first."""
        return np.array([math.floor(share * 2**64) for share in self.shares], np.uint64)

    def assigned(
        self, batches: Iterable[pa.RecordBatch], limits: Keys | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows with their part's number in a column. limits: those of ``TimeKeys``."""
        # Values repeat: of a user with many rows one is hashed.
        row, hashes = 0, functools.lru_cache(1 << 16)(self._hash)
        for batch in batches:
            if limits is not None:
                found = np.searchsorted(limits, time_keys(batch, self.time, row), side="left")
            elif self.by:
                found = np.searchsorted(self.bounds, _hashed(batch, self.by, hashes), side="right")
            else:
                own = keys(self.seed, row, batch.num_rows)
                found = np.searchsorted(self.bounds, own, side="right")
            part = pa.array(found.astype(np.uint8))
            yield batch.append_column(pa.field(_COLUMN, pa.uint8(), nullable=False), part)
            row += batch.num_rows

    def _hash(self, value: str | bytes | None) -> int:
        low, _ = mmh3.hash64(b"\0" if value is None else value, self.seed, signed=False)
        return low

    def refuse_empty(self, rows: Sequence[int]) -> None:
        """Raises DataError for a part without rows."""
        for name, count in zip(self.names, rows, strict=True):
            if not count:
                raise DataError(
                    f"part {name!r} gets none of the {counted(sum(rows), 'row')}: choose other "
                    "shares, another --split-seed, or another column"
                )


def make_split(
    shares: Mapping[str, float] | None, *, by: str, time: str, seed: int
) -> Split | None:
    """The split of these parts; None without any. Raises UsageError."""
    if not shares:
        if by or time:
            raise UsageError("split_by and split_time need shares: pass --split 80,20 (split) too")
        return None
    if by and time:
        raise UsageError("--split-by and --split-time are both given: pass one")
    if not 0 <= seed < 1 << 32:
        raise UsageError(f"split_seed must be between 0 and 2^32 - 1, not {seed}")
    if not 2 <= len(shares) <= MOST_PARTS:
        raise UsageError(f"split has {counted(len(shares), 'part')}: expected 2 to {MOST_PARTS}")
    for name, share in shares.items():
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"split: {printable(name)!r} cannot be a directory's name here: use letters, "
                "digits, dots and dashes"
            )
        if not (share > 0 and math.isfinite(share)):
            raise UsageError(f"split: the share of {name!r} is {share}: expected a positive number")
    # Exact: sums of floats could leave the last row without a part.
    parts = [Fraction(share) for share in shares.values()]
    sums = [part / sum(parts) for part in itertools.accumulate(parts)]
    return Split(tuple(shares), tuple(sums[:-1]), by, time, seed)


def parse_shares(text: str) -> dict[str, float]:
    """The shares of ``--split``. Raises ValueError.

    >>> parse_shares("80,20"), parse_shares("fit=9,check=1")
    ({'train': 80.0, 'test': 20.0}, {'fit': 9.0, 'check': 1.0})
    """
    words = [word.strip() for word in text.split(",")]
    if all("=" in word for word in words):
        names, values = zip(*(word.split("=", 1) for word in words), strict=True)
    elif len(words) in DEFAULT_NAMES:
        names, values = DEFAULT_NAMES[len(words)], tuple(words)
    else:
        raise ValueError("expected 2 or 3 shares, such as 80,20, or named ones, train=80,test=20")
    if len(set(names)) < len(names):
        raise ValueError("two parts have one name")
    try:
        return dict(zip(names, map(float, values), strict=True))
    except ValueError:
        raise ValueError("expected numbers, such as 80,20 or train=80,test=20") from None


class TimeKeys:
    """The values of a column, on disk, and the largest of each part."""

    def __init__(self, split: Split, scratch: str | None) -> None:
        self._split, self._rows = split, 0
        self._file: Any = tempfile.TemporaryFile(prefix=".tmp-", dir=scratch)  # noqa: SIM115

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        self._file.write(time_keys(batch, self._split.time, self._rows).tobytes())
        self._rows += batch.num_rows

    def limits(self) -> Keys:
        """Return the largest key of each part but the last, by the parts' shares of the rows."""
        ranks = [math.ceil(share * self._rows) for share in self._split.shares]
        return np.array([self._smallest(rank) for rank in ranks], np.uint64)

    def _smallest(self, rank: int) -> int:
        """The value of that rank, from 1: found 16 bits at a time, in bounded memory."""
        prefix = 0
        for shift in (48, 32, 16, 0):
            counts = np.zeros(1 << 16, np.int64)
            for chunk in self._chunks():
                high = np.uint64(shift + 16)
                same = chunk if shift == 48 else chunk[chunk >> high == np.uint64(prefix)]
                digits = (same >> np.uint64(shift)).astype(np.uint16)
                counts += np.bincount(digits, minlength=1 << 16)
            digit = int(np.searchsorted(np.cumsum(counts), rank))
            rank -= int(counts[:digit].sum())
            prefix = prefix << 16 | digit
        return prefix

    def _chunks(self) -> Iterator[Keys]:
        self._file.seek(0)
        while data := self._file.read(8 * CHUNK):
            yield np.frombuffer(data, np.uint64)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


def time_keys(batch: pa.RecordBatch, column: str, row: int) -> Keys:
    """Numbers in the order of a column's values. row: of the batch's first row, for errors."""
    values = _column(batch, column, "split-time")
    kind = values.type
    if pa.types.is_uint64(kind):
        numbers: Any = values.view(pa.int64())  # the same bits; the order is that of the bits
    elif pa.types.is_temporal(kind) or pa.types.is_integer(kind):
        narrow = pa.types.is_date32(kind) or pa.types.is_time32(kind)  # no cast to int64
        numbers = (values.cast(pa.int32()) if narrow else values).cast(pa.int64())
    elif pa.types.is_floating(kind):
        numbers = values.cast(pa.float64())
    else:
        raise DataError(
            f"--split-time {printable(column)}: the column is {kind}, and a split by time needs "
            "dates, times or numbers: pass --date-format, or --type "
            f"{printable(column)}=timestamp[s]"
        )
    bad = np.flatnonzero(numbers.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
    if len(bad):
        raise DataError(
            f"--split-time {printable(column)}: row {row + int(bad[0])} has no value there; fill "
            "it, remove the row, or split by a hash"
        )
    array, top = numbers.to_numpy(), np.uint64(1 << 63)
    if array.dtype == np.int64:
        ordered: Keys = array.view(np.uint64)
        return ordered if pa.types.is_uint64(kind) else ordered ^ top
    bits: Keys = (array + 0.0).view(np.uint64)  # -0.0 is 0.0
    return np.where(bits >= top, ~bits, bits | top)


def _hashed(batch: pa.RecordBatch, column: str, hash_of: Callable[[Any], int]) -> Keys:
    """A hash of each row's value, the same whatever the type of the column."""
    coded = _column(batch, column, "split-by").dictionary_encode(null_encoding="encode")
    words = coded.dictionary
    if not pa.types.is_string(words.type) and not pa.types.is_binary(words.type):
        # As text: 7 and "7" are one value, in whichever type a file has them.
        words = words.cast(pa.string())
    each = np.array([hash_of(one) for one in words.to_pylist()], np.uint64)
    found: Keys = each[coded.indices.to_numpy()]
    return found


def _column(batch: pa.RecordBatch, column: str, option: str) -> pa.Array:
    names = batch.schema.names
    if column not in names:
        shown = ", ".join(map(repr, map(printable, names[:20])))
        raise UsageError(f"--{option} {printable(column)}: no such column; there are: {shown}")
    return batch.column(column)


def part_of(batch: pa.RecordBatch, part: int) -> pa.RecordBatch:
    """The rows of a part, of a batch that ``assigned`` returned."""
    rows = batch.filter(pa.array(batch.column(_COLUMN).to_numpy() == part))
    return rows.drop_columns([_COLUMN])
