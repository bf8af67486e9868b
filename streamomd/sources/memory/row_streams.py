"""Rows in Python: read once, or written as shards, which can be read again.

A DataFrame, a polars LazyFrame, a pyarrow Dataset or RecordBatchReader, what has Arrow's C stream,
or an iterable of record batches. Of a stream at no time are all rows in memory.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamomd.core.errors import DataError, StreamomdError, UsageError
from streamomd.core.urls import scrub
from streamomd.core.wording import counted
from streamomd.sources.memory.frames import arrow_of, names_of
from streamomd.sources.user_cache import cache_root

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
            found = plain(batch, schema)
        yield found
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
