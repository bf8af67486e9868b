"""Read a shard's footer: its format by its first and last bytes, rows and types."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from streamomd.core.errors import DataError, IncompleteShardError, StorageError, StreamomdError
from streamomd.core.machine_errors import PROGRAMMING
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import printable, shown
from streamomd.core.wording import workbook
from streamomd.shards.file_schema import SchemaFacts, schema_facts
from streamomd.shards.filesystem import Entry, FileSystem, is_local, stat_entry
from streamomd.shards.formats import arrow, parquet
from streamomd.shards.formats.contract import Format, ReadAt
from streamomd.shards.shard import Shard
from streamomd.shards.shard_file import open_file
from streamomd.shards.stored_object import WHOLE_BYTES, ChangedWhileReadError, ObjectFile

_KNOWN = {
    b"\x1f\x8b": "gzip (magic 1f8b): use `streamomd convert` if it is text, else decompress it",
    b"BZh": "bzip2: use `streamomd convert` if it is text, else decompress it",
    b"\x28\xb5\x2f\xfd": "zstd: decompress it",
    b"\xfd7zXZ": "xz: use `streamomd convert` if it is text, else decompress it",
    b"\x04\x22\x4d\x18": "lz4: decompress it",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"PARE": "encrypted Parquet, which is not supported",
    b"ORC": "ORC: write it as Parquet",
    b"Obj\x01": "Avro: write it as Parquet",
    b"FEA1": "Feather version 1: write it as version 2",
    b"\x89HDF": "HDF5: write it as Parquet",
    b"\x93NUMPY": "a numpy array: write it as Parquet",
    b"\xff\xff\xff\xff": "an Arrow stream: write it in the file format (pyarrow.ipc.new_file)",
}
UNKNOWN = "unknown"
SMALLEST = 12
"""Bytes of the smallest shard, two magics and a length: of fewer, any may be the first of one."""


def describe_bytes(head: bytes) -> str:
    """A few words on what a file that starts like this is, and what to do."""
    for magic, words in _KNOWN.items():
        if head.startswith(magic):
            return words
    text = head.decode("utf-8", "replace")
    if head and all(c.isprintable() or c in "\r\n\t" for c in text) and "\ufffd" not in text:
        return f'text ("{printable(text)}…"): use `streamomd convert FILE --from csv --to DIR`'
    return f"{UNKNOWN} (it starts with the bytes {head.hex(' ')})"


def format_of(head: bytes, trailer: bytes, size: int, formats: list[Format], url: str) -> Format:
    """The format whose magic stands at head and tail; raises DataError with the reason.

    IncompleteShardError without magic at the tail, unless the head is that of another file type.
    """
    for form in formats:
        # The first magic alone is at both ends of a file that has nothing else yet.
        if size >= SMALLEST and head.startswith(form.magic) and trailer.endswith(form.magic):
            return form
        if head.startswith(form.magic):
            _refuse_tail(form, trailer, size, url)
        if trailer.endswith(form.magic):
            raise DataError(
                f"shard {shown(url)}: the first bytes of this {form.name} file are damaged "
                f"(found {head[: len(form.magic)].hex(' ')}): write it again"
            )
    what = workbook(url) or describe_bytes(head)
    kind = IncompleteShardError if size < SMALLEST or what.startswith(UNKNOWN) else DataError
    raise kind(f"shard {shown(url)} is not Parquet or Arrow, but {what}")


def _refuse_tail(form: Format, trailer: bytes, size: int, url: str) -> None:
    if trailer.endswith(b"PARE"):
        raise DataError(f"shard {shown(url)}: encrypted Parquet is not supported")
    raise IncompleteShardError(
        f"shard {shown(url)}: {form.name} magic bytes not found at the end of its {size} bytes; "
        "is the file truncated? Copy or write it again"
    )


FORMATS = [parquet.FORMAT, arrow.FORMAT]
SUFFIXES = tuple(suffix for form in FORMATS for suffix in form.suffixes)
TAIL, HEAD = 64 << 10, 4 << 10
"""Bytes read at the end in one go: nearly every footer fits; and at the beginning: the first page's
header, too."""
SMALL_GAP = 64 << 10
CELL_BYTES, MOST_TAIL = 160, 8 << 20
"""Bytes of a footer for each column chunk, about, and how much of an object is read for them."""


def stat_file(fs: FileSystem, path: str, url: str) -> Entry:
    """The entry of a regular file that is not empty; `DataError` otherwise."""
    return require_rows_file(stat_entry(fs, path, url), url)


def require_rows_file(entry: Entry, url: str) -> Entry:
    """The entry, if it is of a regular file that is not empty; `DataError` otherwise."""
    if entry.kind != "file":
        raise DataError(
            f"{shown(url)} is not a regular file (a pipe, a device?): remove it from the shards"
        )
    if entry.size == 0:
        raise IncompleteShardError(
            f"shard {shown(url)} is a file of 0 bytes: remove it or write it again"
        )
    if entry.size < 0:
        raise StorageError(f"{shown(url)}: the store does not report its size: copy it elsewhere")
    return entry


def read_shard(
    fs: FileSystem,
    path: str,
    url: str,
    statistics: Collection[str] = (),
    listed: Entry | None = None,
    *,
    whole: bool = False,
    both_ends: bool = False,
) -> Shard:
    """The metadata of a file, read before its rows; every error names the file.

    statistics: columns of which the footer's bounds are read. listed: the file of a store, as it
    was just listed. whole: a small object is requested as a whole, as its rows will be read.
    both_ends: of a larger one both ends are requested at the same time.
    """
    if listed is None or listed.etag is None or listed.size < 0 or is_local(fs):
        listed = stat_entry(fs, path, url)
    entry = require_rows_file(listed, url)
    file = open_file(fs, path, url, entry)
    try:
        if whole and isinstance(file, ObjectFile) and entry.size <= WHOLE_BYTES:
            file.stored.load_tail(entry.size)
        elif both_ends and isinstance(file, ObjectFile):
            _request_ends(file)
        form, footer, head = read_ends(file, entry.size, url)
        facts, groups = describe_footer(form, footer, read_at(file, url), url)
    except ChangedWhileReadError as error:
        raise IncompleteShardError(
            f"shard {shown(url)}: {error}, or is being written: its store sent other than "
            "the bytes that were requested"
        ) from None
    finally:
        file.close()
    return Shard(
        url=url,
        path=path,
        format=form.name,
        size=entry.size,
        rows=sum(groups),
        groups=groups,
        schema=facts.fields,
        stored=None if facts.fields is facts.schema else facts.schema,
        footer_sha256=hashlib.sha256(footer).hexdigest(),
        etag=entry.etag,
        mtime_ns=entry.mtime_ns,
        checksums=form.checksummed(head),
        statistics=form.statistics(footer, facts.fields, statistics)
        if statistics and form.statistics
        else (),
    )


def _request_ends(file: ObjectFile) -> None:
    """Request the first and the last bytes at the same time."""
    if file.stored.size > TAIL:
        with ThreadPoolExecutor(1, "streamomd-heads", **same_receivers()) as pool:
            head = pool.submit(file.load, [(0, HEAD)])
            file.stored.load_tail(TAIL)
            head.result()


def read_footer(file: Any, size: int, url: str) -> tuple[Format, bytes]:
    """The format of a shard that was found, by the magic at both ends, and the footer's bytes.

    An object's first bytes are not looked at, which would be another request.
    """
    return read_ends(file, size, url, with_head=not isinstance(file, ObjectFile))[:2]


def load_footer(file: ObjectFile, shard: Shard) -> None:
    """Request the end of an object, with all of its footer as far as that can be guessed."""
    cells = len(shard.groups) * len(shard.stored_schema)
    file.stored.load_tail(min(MOST_TAIL, TAIL + CELL_BYTES * cells))


def read_ends(
    file: Any, size: int, url: str, *, with_head: bool = True
) -> tuple[Format, bytes, bytes]:
    """The format, the footer's bytes and the file's first bytes."""
    at = read_at(file, url)
    if isinstance(file, ObjectFile):
        file.stored.load_tail(TAIL)
    tail = at(max(0, size - TAIL), min(size, TAIL))
    if with_head or size <= TAIL:
        head = tail[:HEAD] if size <= TAIL else at(0, HEAD)
    else:
        head = next((form.magic for form in FORMATS if tail.endswith(form.magic)), b"")
    form = format_of(head[:16], tail, size, FORMATS, url)
    end = 4 + len(form.magic)
    length = int.from_bytes(tail[-end : 4 - end], "little")
    if length > size - end - len(form.magic):
        raise DataError(
            f"shard {shown(url)}: its footer claims {length} bytes of a file of {size}; "
            "is the file truncated? Copy or write it again"
        )
    if length + end <= len(tail):
        return form, tail[len(tail) - end - length : len(tail) - end], head
    return form, at(size - end - length, length), head


def read_at(file: Any, url: str) -> ReadAt:
    """Exact reads from a seekable file; `DataError` where it ends early."""
    return _ExactReads(file, url)


class _ExactReads:
    """See ``read_at``."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read small ranges of an object in few requests, in place of those before."""
        if isinstance(self._file, ObjectFile):
            self._file.load(ranges, SMALL_GAP)

    def __call__(self, offset: int, length: int) -> bytes:
        file, url = self._file, self._url
        try:
            file.seek(offset)
            data = bytes(file.read(length))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise StorageError(
                f"shard {shown(url)}: bytes {offset:,} to {offset + length - 1:,} cannot be read: "
                "the device failed (EIO); copy what is readable, or fetch the shard again"
            ) from None
        if len(data) != length:
            raise IncompleteShardError(
                f"shard {shown(url)}: {length} bytes were expected at {offset}, but {len(data)} "
                "came: it was truncated, or is being written"
            )
        return data


def raise_mistakes(error: Exception) -> None:
    """Raise a programming error again, for example of a library whose version does not fit: it says
    nothing about the data. pyarrow's own errors of such kinds do."""
    if isinstance(error, PROGRAMMING) and not isinstance(error, pa.ArrowException):
        raise error


def describe_footer(
    form: Format, footer: bytes, at: ReadAt, url: str
) -> tuple[SchemaFacts, tuple[int, ...]]:
    """The file's schema, and the rows of each group."""
    try:
        schema, groups = form.describe(footer, at)
        # Names that are not UTF-8 are reported only when they are requested.
        return schema_facts(schema), groups
    except StreamomdError:
        raise
    except Exception as error:
        raise_mistakes(error)
        text = printable(str(error).split("\n", 1)[0])
        raise DataError(
            f"shard {shown(url)}: its {form.name} footer cannot be read ({text}): write it again"
        ) from error
