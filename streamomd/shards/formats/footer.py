"""Read a shard's footer: format, rows and types."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from streamomd.core.errors import DataError, IncompleteShardError, StorageError, StreamomdError
from streamomd.core.urls import printable, shown
from streamomd.features.nested import with_fields
from streamomd.shards.filesystem import Entry, open_file, stat_entry
from streamomd.shards.formats import arrow, parquet
from streamomd.shards.formats.contract import Format, ReadAt
from streamomd.shards.formats.magic import format_of
from streamomd.shards.shard import Shard

if TYPE_CHECKING:
    import fsspec

FORMATS = [parquet.FORMAT, arrow.FORMAT]
SUFFIXES = tuple(suffix for form in FORMATS for suffix in form.suffixes)
TAIL, HEAD = 64 << 10, 4 << 10
"""Bytes read at the end in one go: nearly every footer fits; and at the beginning: the first page's
header, too."""


def format_named(name: str) -> Format:
    """The format of a `Shard`."""
    return next(form for form in FORMATS if form.name == name)


def stat_file(fs: fsspec.AbstractFileSystem, path: str, url: str) -> Entry:
    """The entry of a regular file that is not empty; `DataError` otherwise."""
    entry = stat_entry(fs, path, url)
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
    fs: fsspec.AbstractFileSystem, path: str, url: str, statistics: Collection[str] = ()
) -> Shard:
    """The metadata of a file, read before its rows; every error names the file.

    statistics: columns of which the footer's bounds are read.
    """
    entry = stat_file(fs, path, url)
    file = open_file(fs, path, url)
    try:
        form, footer, head = read_ends(file, entry.size, url)
        stored, schema, groups = _describe(form, footer, read_at(file, url), url)
    finally:
        file.close()
    return Shard(
        url=url,
        path=path,
        format=form.name,
        size=entry.size,
        rows=sum(groups),
        groups=groups,
        schema=schema,
        stored=None if schema is stored else stored,
        footer_sha256=hashlib.sha256(footer).hexdigest(),
        etag=entry.etag,
        mtime_ns=entry.mtime_ns,
        checksums=form.checksummed(head),
        statistics=form.statistics(footer, schema, statistics)
        if statistics and form.statistics
        else (),
    )


def read_footer(file: Any, size: int, url: str) -> tuple[Format, bytes]:
    """The format by the magic at both ends, and the footer's bytes."""
    return read_ends(file, size, url)[:2]


def read_ends(file: Any, size: int, url: str) -> tuple[Format, bytes, bytes]:
    """As ``read_footer``; and the file's first bytes."""
    at = read_at(file, url)
    tail = at(max(0, size - TAIL), min(size, TAIL))
    head = tail[:HEAD] if size <= TAIL else at(0, HEAD)
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

    def read(offset: int, length: int) -> bytes:
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

    return read


def _describe(form: Format, footer: bytes, at: ReadAt, url: str) -> Any:
    """The file's schema, that with the fields of structs, and the rows of each group."""
    try:
        schema, groups = form.describe(footer, at)
        # Names that are not UTF-8 are reported only when they are requested.
        all(field.name is not None and str(field.type) for field in schema)
        return schema, with_fields(schema), groups
    except StreamomdError:
        raise
    except Exception as error:
        text = printable(str(error).split("\n", 1)[0])
        raise DataError(
            f"shard {shown(url)}: its {form.name} footer cannot be read ({text}): write it again"
        ) from error
