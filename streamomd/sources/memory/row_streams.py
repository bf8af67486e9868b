"""Rows in Python: read once, or written as shards, which can be read again.

A DataFrame, a polars LazyFrame, a pyarrow Dataset or RecordBatchReader, what has Arrow's C stream,
or an iterable of record batches. Of a stream at no time are all rows in memory.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from streamomd.core.batch import Batch, SparseBatch
from streamomd.core.errors import DataError, StreamomdError, UsageError
from streamomd.core.urls import scrub
from streamomd.core.wording import counted
from streamomd.features import Names, Plan, encode
from streamomd.features.arrow_types import table_with_fields
from streamomd.features.lists import elements_of
from streamomd.shards.cache.folder import cache_root
from streamomd.shards.prefetch import Release, return_freed_memory
from streamomd.sources.memory.frames import arrow_of, names_of

ROWS_PER_SHARD = 1_000_000


def is_row_stream(given: Any) -> bool:
    """Whether something is a frame or a stream of rows, and no list of names.

    >>> is_row_stream(iter([])), is_row_stream(["a.parquet"]), is_row_stream("a.parquet")
    (True, False, False)
    """
    if given is None or hasattr(given, "__dask_graph__"):
        return False
    if hasattr(given, "shape"):  # a frame or an array; not a column, which has Arrow's stream too
        return hasattr(given, "__arrow_c_stream__") and len(given.shape) == 2
    if isinstance(given, list | tuple):
        return bool(given) and all(isinstance(one, pa.RecordBatch) for one in given)
    if _is_lazy(given) or _is_dataset(given) or hasattr(given, "__arrow_c_stream__"):
        return True
    return isinstance(given, Iterator)


def batches_of(rows: Any, where: str) -> Iterator[pa.RecordBatch]:
    """The record batches of a stream, one after another: none is held.

    Raises UsageError for what is not a record batch, DataError for a stream that fails.
    """
    name = type(rows).__name__
    for batch in _read(rows, f"{name} given as {where}"):
        if not isinstance(batch, pa.RecordBatch):
            raise UsageError(
                f"{where} is a {name} of {type(batch).__name__}: expected Arrow record batches"
            )
        yield batch


def table_of_batches(rows: Any, where: str) -> pa.Table:
    """All rows of a stream. Raises as ``batches_of``, and DataError for one without a batch."""
    found = [*batches_of(rows, where)]
    if not found:
        raise DataError(f"{where} has no rows, expected 1 or more")
    return pa.Table.from_batches(found)


class RowFolder:
    """The folder that rows are written to. It is removed unless ``retain`` is called."""

    def __init__(self, rows: Any) -> None:
        self.path = cache_root() / "rows" / uuid.uuid4().hex
        self._retained = False
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            self.rows = write_rows(rows, self.path)
        except BaseException:
            self.remove()
            raise

    @property
    def note(self) -> str:
        """What to print."""
        return f"wrote {counted(self.rows, 'row')} to {self.path}, from where they are read"

    def retain(self) -> None:
        """A checkpoint names the folder, so that a run can resume."""
        self._retained = True

    def remove(self) -> None:
        """Remove the folder, unless it is retained."""
        if not self._retained:
            shutil.rmtree(self.path, ignore_errors=True)


def write_rows(rows: Any, folder: Path) -> int:
    """Write a stream to Parquet files in a folder; the number of rows. Raises what ``plain_rows``
    raises, and DataError for what Parquet cannot store."""
    # Few runs write rows.
    from streamomd.sources.text.output_formats import FORMS
    from streamomd.sources.text.shard_writer import ShardWriter, opened_target

    name, count = stream_name(rows), 0
    with _refused(name, "written"):
        schema, batches = plain_rows(rows)
        with opened_target(str(folder), None) as target:
            per_shard = lambda place: ROWS_PER_SHARD  # noqa: E731
            writer = ShardWriter(target, FORMS["parquet"], schema, per_shard, None)
            try:
                for batch in batches:
                    writer.add(batch)
                    count += batch.num_rows
                target.publish(writer.finish(None), "parquet")
            except BaseException:
                writer.abandon()
                raise
    return count


def stream_name(rows: Any) -> str:
    """What messages and jobs call a stream."""
    return "iterator" if isinstance(rows, chain) else type(rows).__name__


def plain_rows(rows: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a stream and its batches, with the types that they have in shards.

    Raises DataError for what is not a record batch, batches of other columns, no rows, and a stream
    that fails.
    """
    from streamomd.sources.text.arrow_source import plain_schema

    name = stream_name(rows)
    with _refused(name, "read"):
        batches = _read(rows, f"{name} given as shards")
        first = next(batches, None)
        if first is None:
            raise DataError(f"no rows: the {name} given as shards is empty")
        if not isinstance(first, pa.RecordBatch):
            raise UsageError(
                f"shards is a {name} of {type(first).__name__}: expected Arrow record batches, or "
                "a list of names"
            )
        schema = plain_schema(first.schema, f"the {name} given as shards")
    return schema, _plain(chain([first], batches), schema, name)


def _plain(batches: Iterator[Any], schema: pa.Schema, name: str) -> Iterator[pa.RecordBatch]:
    from streamomd.sources.text.arrow_source import plain, plain_schema

    count, known = 0, None
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise UsageError(
                f"the {name} given as shards, after {count:,} rows: found a "
                f"{type(batch).__name__}, expected an Arrow record batch"
            )
        if batch.schema != known:  # mostly the same object
            known = batch.schema
            if plain_schema(known, name) != schema:
                raise DataError(
                    f"the {name} given as shards, after {count:,} rows: other columns than "
                    f"before ({', '.join(schema.names[:10])})"
                )
        with _refused(name, "read"):
            rows = plain(batch, schema)
        yield rows
        count += batch.num_rows
    if not count:
        raise DataError(f"no rows: the {name} given as shards has empty batches only")


@contextmanager
def _refused(name: str, what: str) -> Iterator[None]:
    """Arrow's own errors as DataError that names the stream."""
    try:
        yield
    except StreamomdError:
        raise
    except (pa.ArrowException, TypeError) as error:
        text = scrub(str(error).split("\n")[0])[:300]
        raise DataError(f"the {name} given as shards cannot be {what}: {text}") from error


def _read(rows: Any, name: str) -> Iterator[Any]:
    """What a stream has. Its own errors, of any type, name it: one of a file that it reads must not
    look like one of the folder that is written."""
    count = 0
    try:
        for batch in _batches(rows):
            yield batch
            count += getattr(batch, "num_rows", 0)
    except (StreamomdError, MemoryError):
        raise
    except Exception as error:
        text = scrub(str(error).split("\n")[0])[:300] or type(error).__name__
        raise DataError(f"the {name} failed after {count:,} rows: {text}") from error


def _batches(rows: Any) -> Iterator[Any]:
    if _is_lazy(rows):
        # In the order of the query, and not all at the same time.
        return (one for frame in rows.collect_batches() for one in frame.to_arrow().to_batches())
    if _is_dataset(rows):
        found: Iterator[Any] = rows.to_batches()
        return found
    if isinstance(rows, list | tuple | Iterator):
        return iter(rows)
    if hasattr(rows, "shape"):
        if names_of(rows) is None:
            raise UsageError("its column names are not all text")
        return iter(arrow_of(rows, "the frame given as shards").to_batches())
    return iter(pa.RecordBatchReader.from_stream(rows))


def _is_lazy(given: Any) -> bool:
    return type(given).__module__.startswith("polars") and hasattr(given, "collect_batches")


def _is_dataset(given: Any) -> bool:
    return type(given).__module__.startswith("pyarrow") and hasattr(given, "to_batches")


def _listed(given: Any) -> Any:
    """An iterator of names as a list; anything else as it is, an iterator with its first value."""
    if not isinstance(given, Iterator):
        return given
    first = list(islice(given, 1))
    if first and isinstance(first[0], str | os.PathLike):
        return [os.fspath(name) for name in chain(first, given)]
    return chain(first, given)


def split_rows_given(
    job: Any, flags: Mapping[str, Any], place: Callable[[Any], str]
) -> tuple[Any, dict[str, Any], Any]:
    """The job and flags with a name in the place of a stream of rows, and the stream if there is
    one. place: gives the name."""
    job, flags = _listed(job), dict(flags)
    tables = dict(job) if isinstance(job, Mapping) else {}
    data = dict(tables.get("data") or {})
    for table in (flags, data):
        if "shards" in table:
            table["shards"] = _listed(table["shards"])
    if data:
        job = tables = {**tables, "data": data}
    streams = [one for one in (flags.get("shards"), job, data.get("shards")) if is_row_stream(one)]
    if not streams:
        return job, flags, None
    if len(streams) > 1 or (streams[0] is job and flags.get("shards")):
        raise UsageError("shards are given twice: once is enough")
    name = place(streams[0])
    if streams[0] is job:
        job = name
    elif streams[0] is flags.get("shards"):
        flags["shards"] = name
    else:
        job = {**tables, "data": {**data, "shards": name}}
    return job, flags, streams[0]


HEAD_ROWS, HEAD_BYTES = 1 << 17, 64 << 20
"""The first rows, which say how wide a row is and which labels there are."""
LEAST_ROWS, MOST_ROWS = 256, 1 << 16
"""Of a block."""


class Block(NamedTuple):
    """Rows of a stream: the number of the block, its first row, and the rows."""

    number: int
    row: int
    rows: Any

    @property
    def end(self) -> int:
        """The row after the last."""
        return self.row + int(self.rows.num_rows)

    @property
    def span(self) -> str:
        """For messages."""
        return f"rows {self.row:,} to {self.end - 1:,}"


class RowBlocks:
    """The blocks of a stream, which can be read once, and its first rows: all, of what is in
    memory. nbytes: of a block, about.

    Raises what ``plain_rows`` raises.
    """

    def __init__(self, given: Any, nbytes: int) -> None:
        return_freed_memory()
        self.stored, self._rest = plain_rows(given)
        self.schema = table_with_fields(self.stored.empty_table()).schema
        whole = hasattr(given, "shape") or isinstance(given, list | tuple)
        self._head = _first(self._rest, whole=whole)
        self.size = block_rows(self._head, nbytes)

    def longest(self, column: str) -> int:
        """The length of the longest list of the first rows."""
        found = 0
        for chunk in self.first_chunks(column):
            begins, _ = elements_of(chunk)
            found = max(found, int((begins[1:] - begins[:-1]).max(initial=0)))
        return found

    def first_chunks(self, column: str) -> Iterator[Any]:
        """A column of the first rows."""
        for batch in self._head:
            yield from table_with_fields(pa.Table.from_batches([batch]))[column].chunks

    def read(self, columns: Sequence[str]) -> Iterator[Block]:
        """All rows; the last block may have fewer. The first rows are no longer held."""
        number, waiting, count = 0, list[pa.RecordBatch](), 0
        head, self._head = self._head, []
        release = Release()
        for batch in chain(_drained(head), self._rest):
            taken = 0
            while count + batch.num_rows - taken >= self.size:
                some = batch.slice(taken, self.size - count)
                rows = self._joined([*waiting, some], columns)
                yield Block(number, number * self.size, rows)
                release.passed(rows.nbytes)
                taken += some.num_rows
                number, waiting, count = number + 1, [], 0
            if taken < batch.num_rows:
                waiting.append(batch.slice(taken))
                count += batch.num_rows - taken
        if waiting:
            yield Block(number, number * self.size, self._joined(waiting, columns))

    def _joined(self, batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
        rows = table_with_fields(pa.Table.from_batches(batches, self.stored))
        found = rows.select([*columns]).combine_chunks().to_batches()
        if len(found) > 1:  # the offsets of string and list count to 2 GiB
            raise DataError(
                f"{len(rows):,} rows of the stream have more than 2 GiB in a column: cast it to "
                "large_string, large_binary or large_list"
            )
        return found[0]


def block_rows(head: Sequence[pa.RecordBatch], nbytes: int) -> int:
    """The rows that have about ``nbytes``, within bounds."""
    rows, held = (sum(getattr(one, name) for one in head) for name in ("num_rows", "nbytes"))
    return int(max(LEAST_ROWS, min(MOST_ROWS, nbytes * rows // max(1, held))))


def _first(batches: Iterator[pa.RecordBatch], *, whole: bool) -> list[pa.RecordBatch]:
    """The first batches, or all."""
    found, rows, nbytes = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        found.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if not whole and (rows >= HEAD_ROWS or nbytes >= HEAD_BYTES):
            break
    return found


def _drained(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch is released when its rows were read."""
    batches.reverse()
    while batches:
        yield batches.pop()


def encode_block(
    plan: Plan, names: Names, url: str, begin: int, block: Block
) -> tuple[Block, Batch, bytes]:
    """A block as rows for the engine, those from row ``begin`` of the stream on, and the digest of
    the whole. Raises what ``encode`` raises; url: the stream's name there."""
    given: dict[str, Any] = {"shard": url, "names": names}
    try:
        batch = encode(plan, block.rows, row=block.row, **given)
        digest = digest_of(batch)
        if block.row < begin < block.end:
            batch = encode(plan, block.rows.slice(begin - block.row), row=begin, **given)
    except pa.ArrowException as error:
        text = scrub(str(error).split("\n")[0])[:300]
        raise DataError(f"{url}, {block.span}: {text}") from error
    return block, batch, digest


def digest_of(batch: Batch) -> bytes:
    """XXH3-128 of what is learned of rows, and of the places of those that are skipped."""
    found = xxhash.xxh3_128()
    sparse = (batch.indptr, batch.indices) if isinstance(batch, SparseBatch) else ()
    for array in (batch.values, batch.y, batch.weight, batch.skipped.places, *sparse):
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
