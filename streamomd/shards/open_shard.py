"""A shard opened for reading, after checking that it is still the file that was found."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    InputNotFoundError,
    StorageError,
    StreamomdError,
)
from streamomd.core.urls import scrub, shown
from streamomd.shards.directory_columns import read_columns, stored_columns
from streamomd.shards.file_schema import same_columns
from streamomd.shards.filesystem import Entry, FileSystem, is_local
from streamomd.shards.formats.contract import Format, Groups, ReadAt, ReadRequest
from streamomd.shards.formats.footer import (
    describe_footer,
    load_footer,
    raise_mistakes,
    read_at,
    read_footer,
    stat_file,
)
from streamomd.shards.renames import require_columns
from streamomd.shards.shard import Digests, Shard
from streamomd.shards.shard_file import identity, open_file, version
from streamomd.shards.stored_object import (
    WHOLE_BYTES,
    ChangedWhileReadError,
    ObjectFile,
    Span,
    StoredObject,
    stored_object,
)

MOST_LOADED = 128 << 20
"""Bytes of an object's row group that are read before any is decoded; a larger one is read in
steps."""


def _stored(shard: Shard, wanted: ReadRequest) -> ReadRequest:
    """What is read of the file, where the shard has other columns or a filter."""
    columns = read_columns(shard, wanted.columns)
    require_columns(shard, columns)
    # A text that is compared for each of its values costs less.
    texts = [*wanted.dictionary, *(name for name in columns if name not in wanted.columns)]
    dictionary = [shard.stored_name(name) for name in texts]
    return wanted._replace(columns=stored_columns(shard, columns), dictionary=tuple(dictionary))


class OpenShard:
    """An open shard; ``read(group)`` gives the group's stored rows in slices. Close it.

    ``versions``: of local shards by path, as this process first saw them. ``version``,
    ``identity``: see `store.version`, `store.identity`. ``digests``: to record and to verify those
    of the row groups that are read. ``stored``: the shard's object, if it is known. ``whole``: rows
    will be read, so that a small object is requested as a whole.
    """

    def __init__(
        self,
        fs: FileSystem,
        shard: Shard,
        wanted: ReadRequest,
        versions: dict[str, object] | None = None,
        digests: Digests | None = None,
        stored: StoredObject | None = None,
        *,
        whole: bool = False,
    ) -> None:
        require_columns(shard, wanted.columns)
        if shard.is_view:
            wanted = _stored(shard, wanted)
        self.shard = shard
        self._check = None if digests is None else partial(digests.check, shard)
        self._local, self._fs = is_local(fs), fs
        # A file that this process never opened may be on a disk that it does not see.
        seen = bool(versions and shard.path in versions)
        self._file: Any
        if self._local:
            _stat(fs, shard, seen=seen)
            self._file = open_file(fs, shard.path, shard.url)
        else:
            self._file = ObjectFile(stored or shard_object(fs, shard))
        try:
            if whole and not self._local:
                self._load_whole()
            self.version, self.identity = version(self._file), identity(self._file)
            first = {} if versions is None else versions
            # A store's is the same for all; a file's time is not that of its copy elsewhere.
            was = first.setdefault(shard.path, self.version) if self._local else shard.etag
            if None not in (was, self.version) and was != self.version:
                raise _replaced(self.shard, "it was written again")
            self._groups: Groups = self._open_groups(wanted)
        except BaseException as error:
            self._file.close()
            if isinstance(error, ChangedWhileReadError):
                raise _replaced(shard, f"it was being opened: {error}") from None
            raise

    def _open_groups(self, wanted: ReadRequest) -> Groups:
        try:
            if isinstance(self._file, ObjectFile):
                load_footer(self._file, self.shard)
            form, footer = read_footer(self._file, self.shard.size, self.shard.url)
        except ChangedDataError:
            _stat(self._fs, self.shard, seen=False)  # which may say how it changed
            raise
        except DataError:  # it could be read when the shard was found
            raise _replaced(self.shard, "its first bytes or its footer are damaged now") from None
        if not hashlib.sha256(footer).hexdigest().startswith(self.shard.footer_sha256):
            raise _replaced(self.shard, "it has another footer")
        try:
            at = read_at(self._file, self.shard.url)
            if self.shard.is_recorded:
                self._compare_footer(form, footer, at)
            return form.open_groups(self._file, footer, at, wanted, self._check)
        except Exception as error:
            if self._local and version(self._file) != self.version:
                raise _replaced(self.shard, "it was written to as it was opened") from None
            if isinstance(error, (StreamomdError, ChangedWhileReadError)):
                raise
            raise explain(error, self.shard, 0, self.shard.rows) from error

    def _compare_footer(self, form: Format, footer: bytes, at: ReadAt) -> None:
        """Raise ChangedDataError unless a footer says what the ledger records of it."""
        facts, groups = describe_footer(form, footer, at, self.shard.url)
        same = same_columns(facts.schema, self.shard.stored_schema)
        if form.name != self.shard.format or groups != self.shard.groups or not same:
            raise ChangedDataError(
                f"shard {shown(self.shard.url)}: its row groups or columns are not those that the "
                "ledger of the run records for this footer; start a new run"
            )

    def _refuse_written(self, group: int, first: int, last: int) -> None:
        """ChangedDataError if the open file was written to. A store refuses to read on by itself;
        a local file that is written to gives other rows, or ends too early."""
        if self._local and version(self._file) != self.version:
            raise _replaced(
                self.shard,
                f"it was written to as rows {first} to {last - 1} (row group or record batch "
                f"{group}) were read",
            )

    @property
    def stored(self) -> StoredObject | None:
        """The shard's object in a store."""
        return self._file.stored if isinstance(self._file, ObjectFile) else None

    def give(self, spans: Sequence[Span]) -> None:
        """Bytes of the group that is read next, which were requested ahead."""
        if isinstance(self._file, ObjectFile):
            self._file.spans = spans

    @property
    def spans(self) -> Sequence[Span]:
        """Bytes of an object that are in memory."""
        return self._file.spans if isinstance(self._file, ObjectFile) else ()

    def missing(self, group: int) -> list[tuple[int, int]]:
        """Returns those of an object's ``ranges`` that are not in memory."""
        return [one for one in self.ranges(group) if not self._file.is_held([one])]

    def ranges(self, group: int) -> list[tuple[int, int]]:
        """Offset and length of the bytes that are read for a group."""
        return self._groups.ranges(group)

    def read(self, group: int) -> Generator[pa.RecordBatch, None, None]:
        """The rows of one group, in order.

        Raises ChangedDataError if the shard is no longer the one that was found, DataError for rows
        that cannot be decoded, StorageError.
        """
        first = done = sum(self.shard.groups[:group])
        last = first + self.shard.groups[group]
        try:
            self._load(group)
            for batch in self._groups(group):
                self._refuse_written(group, done, done + batch.num_rows)
                done += batch.num_rows
                yield batch
                del batch
        except ChangedDataError:
            raise
        except ChangedWhileReadError as error:
            raise _replaced(self.shard, f"row group {group} was being read: {error}") from None
        except Exception as error:
            # Of a file that was truncated or written to, what cannot be decoded is a consequence.
            self._refuse_written(group, done, last)
            if isinstance(error, StorageError):
                raise
            if not self._local:
                _stat(self._fs, self.shard, seen=True)
            if isinstance(error, StreamomdError):
                raise
            raise explain(error, self.shard, done, last) from error
        finally:
            self.give(())
            self._groups.release()
        if done != last:
            self._refuse_written(group, done, last)
            raise DataError(
                f"shard {shown(self.shard.url)}: group {group} has {done - first} rows, but its "
                f"footer says {last - first}: write it again"
            )

    def _load(self, group: int) -> None:
        """Read the group's bytes into memory in few requests, where that is a store's."""
        if not isinstance(self._file, ObjectFile) or self._load_whole():
            return
        ranges = self.ranges(group)
        if sum(length for _, length in ranges) <= MOST_LOADED:
            self._file.load(ranges)

    def _load_whole(self) -> bool:
        """Read an object in one request, if it is small enough."""
        if self.shard.size <= WHOLE_BYTES:
            self._file.stored.load_tail(self.shard.size)
        return self.shard.size <= WHOLE_BYTES

    def close(self) -> None:
        """Close the file; what was read stays valid."""
        self._file.close()


def shard_object(fs: FileSystem, shard: Shard) -> StoredObject:
    """The object of a shard in a store. Raises ChangedDataError where another one is there now."""
    entry = Entry(shard.path, "file", shard.size, shard.etag, shard.mtime_ns)
    stat = partial(_stat, fs, shard, seen=False)
    return stored_object(fs, shard.path, shard.url, entry, stat)


def _stat(fs: FileSystem, shard: Shard, *, seen: bool) -> Entry:
    """The shard's file as it is now. Raises ChangedDataError where it is another or no file.

    seen: this process has read it before, so that a missing file was removed.
    """
    if not is_local(fs):
        # A store's cached listing would return the old size of a file that was replaced.
        fs.invalidate_cache()
    try:
        entry = stat_file(fs, shard.path, shard.url)
    except InputNotFoundError:
        if seen:
            raise _replaced(shard, "it was removed") from None
        raise
    except ChangedDataError:  # messages of a Kafka topic were deleted
        raise
    except DataError:  # a file of 0 bytes, a pipe
        raise _replaced(shard, "it is empty now") from None
    if entry.size != shard.size:
        raise _replaced(shard, f"it had {shard.size} bytes and now has {entry.size}")
    return entry


def _replaced(shard: Shard, how: str) -> ChangedDataError:
    since = "since this run recorded it" if shard.is_recorded else "while it was in use"
    return ChangedDataError(
        f"shard {shown(shard.url)} was replaced {since}: {how}. "
        "Restore the old file and resume, or start a new run"
    )


def explain(error: Exception, shard: Shard, first: int, last: int) -> StreamomdError:
    """The error to raise for one of pyarrow's that came while these rows were decoded."""
    raise_mistakes(error)
    where = f"shard {shown(shard.url)}, rows {first} to {last - 1}"
    text = scrub(str(error).split("\n", 1)[0]) or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        return StorageError(f"{where}: {text}")
    return DataError(f"{where} cannot be decoded ({text}): write the shard again, or leave it out")
