"""Write shards to a temporary folder, and rename them when all are complete."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamomd.checkpoint.stores.local import remove_abandoned_outputs, temporary_name
from streamomd.core.errors import (
    OutputExistsError,
    SchemaError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.machine_errors import store_error
from streamomd.core.platform_calls import replace
from streamomd.core.urls import absolute, printable, protocol, shown
from streamomd.core.wording import counted
from streamomd.features.arrow_types import family
from streamomd.shards.filesystem import (
    FileSystem,
    connect_output,
    is_local,
    output_errors,
    store_errors,
)
from streamomd.sources.files.paths import is_shard_name
from streamomd.sources.text.output_formats import FORMS, OutputFormat

MOST_OPEN = 256
_OWN_NAME = re.compile(rf"part-\d{{5,}}\.({'|'.join(FORMS)})")
_REMOTE_BLOCK = 8 << 20


@dataclass(frozen=True)
class Target:
    """The directory that the shards are for, and a hidden one in it where they are made."""

    url: str
    root: str
    temporary: str
    fs: FileSystem
    old: tuple[str, ...] = ()
    """Paths of shards written earlier."""
    append: bool = False
    """Whether they stay, and new shards are numbered on from those that are there at the end."""

    def temporary_path(self, place: int) -> str:
        """The temporary path of a shard."""
        return f"{self.temporary}/{place}"

    @property
    def scratch(self) -> str | None:
        """A local directory for temporary files on the disk the shards go to; None: any."""
        return self.temporary if is_local(self.fs) else None

    @cached_property
    def appended_to(self) -> tuple[str, pa.Schema] | None:
        """The newest shard that others are added to, and its schema."""
        if not self.append or not self.old:
            return None
        # The newest: earlier ones were compared with each other when they were written.
        path = max(self.old, key=_number)
        with store_errors(path), self.fs.open(path, "rb") as file:
            parquet = path.endswith(".parquet")
            return path, pq.read_schema(file) if parquet else pa.ipc.open_file(file).schema

    def text_columns(self) -> pa.Schema:
        """Columns that are text in the shards that others are added to."""
        known = self.appended_to[1] if self.appended_to else []
        return pa.schema(one for one in known if one.type == pa.string())

    def refuse_other_columns(self, schema: pa.Schema) -> None:
        """Raise SchemaError if shards of this schema are appended to those of other columns, or of
        types that no model reads as one column."""
        if self.appended_to is None:
            return
        path, known = self.appended_to
        differ = [
            f"{printable(name)!r} is {_type(schema, name)}, there {_type(known, name)}"
            for name in dict.fromkeys([*known.names, *schema.names])
            if _kind(schema, name) != _kind(known, name)
        ]
        if differ:
            raise SchemaError(
                f"the rows have other columns than {shown(path)}: {'; '.join(differ[:10])}; "
                "convert them to the same ones (--type, --decimal, --date-format), or elsewhere"
            )

    def publish(self, count: int, suffix: str) -> tuple[str, ...]:
        """Replace the old shards by the new ones, or add to them; the new ones' URLs."""
        first = 0
        if self.append:  # others may have appended meanwhile
            now = _old_shards(self.fs, self.root, self.url, kept=True)
            first = 1 + max(map(_number, now), default=-1)
        numbers = range(first, first + count)
        width = max(5, len(str(numbers[-1])))
        names = [f"part-{number:0{width}d}.{suffix}" for number in numbers]
        with output_errors(self.url):
            for path in () if self.append else self.old:
                self.fs.rm_file(path)
            self._put([f"{self.root}/{name}" for name in names])
        return tuple(f"{self.url.rstrip('/')}/{name}" for name in names)

    def _put(self, paths: list[str]) -> None:
        try:
            for place, path in enumerate(paths):
                self._move(self.temporary_path(place), path)
        except BaseException:
            # Some of the shards would look like all of them.
            for path in paths:
                if self.fs.exists(path):
                    self.fs.rm_file(path)
            raise

    def _move(self, path: str, to: str) -> None:
        if is_local(self.fs):
            replace(path, to)
        else:
            # fsspec's own mv would take brackets in a name for a pattern.
            self.fs.cp_file(path, to)
            self.fs.rm_file(path)

    def clean(self) -> None:
        """Remove temporary files that were not renamed."""
        if is_local(self.fs):
            shutil.rmtree(self.temporary, ignore_errors=True)
            return
        self.fs.invalidate_cache()
        for path in self.fs.find(self.temporary):
            self.fs.rm_file(path)
        # An empty folder is all that can be left: a bucket has none, some stores cannot remove one.
        with suppress(OSError, NotImplementedError):
            self.fs.rmdir(self.temporary)


@contextmanager
def opened_target(
    to: str, options: Mapping[str, Any] | None, *, overwrite: bool = False, append: bool = False
) -> Iterator[Target]:
    """A directory to write shards for; temporary files are removed at the end, and first those that
    killed processes of this host left there.

    Raises `OutputExistsError` where shards are already, unless they are of an earlier convert and
    ``overwrite``, or ``append``; `StorageError` for a store that refuses.
    """
    url, fs, root = _place(to, options)
    with output_errors(url):
        old = _old_shards(fs, root, url, kept=overwrite or append)
        # Of killed processes alone: others may convert to this directory now.
        remove_abandoned_outputs(fs, root)
        made = not fs.exists(root)
        target = Target(url, root, f"{root}/{temporary_name()}", fs, old, append)
        fs.makedirs(target.temporary, exist_ok=True)
    try:
        with _storing(url):
            yield target
    except BaseException:
        target.clean()
        if made and is_local(fs):
            with suppress(OSError):
                fs.rmdir(root)
        raise
    else:
        target.clean()


@contextmanager
def _storing(url: str) -> Iterator[None]:
    """Report errors of the machine as the store's."""
    try:
        yield
    except StreamomdError:
        raise
    except OSError as error:
        # Not chained: the original's text and requests may hold credentials.
        text = store_error(error)
        raise StorageError(f"{shown(url)} cannot be written to: {text}") from None


def _old_shards(fs: FileSystem, root: str, url: str, *, kept: bool) -> tuple[str, ...]:
    fs.invalidate_cache()
    if not fs.exists(root):
        return ()
    if not fs.isdir(root):
        raise OutputExistsError(f"{shown(url)} is a file: name a directory for the shards")
    paths = [str(path).rstrip("/") for path in fs.ls(root, detail=False)]
    shards = [path for path in paths if is_shard_name(path)]
    foreign = [path for path in shards if not _OWN_NAME.fullmatch(path.rsplit("/", 1)[-1])]
    if foreign:
        raise OutputExistsError(
            f"{shown(url)} contains {counted(len(foreign), 'shard')} not written by convert, such "
            f"as {shown(foreign[0])}: choose another directory"
        )
    if shards and not kept:
        raise OutputExistsError(
            f"{shown(url)} already contains {counted(len(shards), 'shard')}: choose another "
            "directory, add to them (--append), or overwrite them (--overwrite)"
        )
    return tuple(shards)


def refuse_split(to: str, options: Mapping[str, Any] | None) -> None:
    """Raise OutputExistsError for a directory of shards: those of a split would be read with
    them."""
    url, fs, root = _place(to, options)
    with output_errors(url):
        found = _old_shards(fs, root, url, kept=True)
    if found:
        raise OutputExistsError(
            f"{shown(url)} contains {counted(len(found), 'shard')} of no part: split into another "
            "directory, or leave --split out"
        )


def _place(to: str, options: Mapping[str, Any] | None) -> tuple[str, Any, str]:
    """The absolute URL of a directory, its file system, and its path there."""
    url = absolute(to)
    fs = connect_output(url, options if protocol(url) else None)
    return url, fs, (str(fs._strip_protocol(url)) if protocol(url) else url).rstrip("/")


def _type(schema: pa.Schema, name: str) -> str:
    return str(schema.field(name).type) if name in schema.names else "missing"


def _kind(schema: pa.Schema, name: str) -> str:
    """What a column of all shards of a run must be: whole numbers and others are numbers."""
    found = family(schema.field(name).type) if name in schema.names else ""
    return "number" if found in ("integer", "float") else found


def _number(path: str) -> int:
    """The number in the name of a shard that convert wrote."""
    return int(path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].removeprefix("part-"))


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of the schema without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


@dataclass
class _Open:
    """A shard that is not closed yet."""

    file: Any
    writer: Any

    def close(self) -> None:
        """Writes the shard's end and closes its file."""
        self.writer.close()
        self.file.close()


@dataclass
class ShardWriter:
    """Cuts rows into shards of a form, and those into groups of as many bytes as it has at most.

    rows_of: the rows of a shard by its place. size: as for ``OutputFormat.begin``; 0: shards
    stay open until `finish`.
    """

    target: Target
    form: OutputFormat
    schema: pa.Schema
    rows_of: Callable[[int], int]
    size: int | None
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _held_bytes: int = 0
    _rows: int = 0
    _full: list[_Open] = field(default_factory=list)
    _shard: _Open | None = None
    _count: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        while batch.num_rows:
            if self._shard is None:
                self._shard = self._open(batch)
            # A batch may end one shard and begin the next.
            room = self.rows_of(self._count - 1) - self._rows
            part, batch = batch.slice(0, room), batch.slice(room)
            # Before it is added: a group is never larger, unless one part is.
            if self._held and self._held_bytes + part.nbytes > self.form.group_bytes:
                self._write_group()
            self._held.append(part)
            self._held_bytes += part.nbytes
            self._rows += part.num_rows
            if part.num_rows == room:
                self._end_shard()

    def finish(self, size: int | None) -> int:
        """Close every shard; how many there are: one at least."""
        if not self._count:
            self._shard = self._open(no_rows(self.schema))
        if self._shard is not None:
            self._end_shard()
        while self._full:
            shard = self._full.pop(0)
            assert self.form.add_size
            self.form.add_size(shard.writer, size)
            shard.close()
        return self._count

    def abandon(self) -> None:
        """Close the files, which are to be removed."""
        for shard in [*self._full, *([self._shard] if self._shard else [])]:
            with suppress(OSError, ValueError):
                shard.close()

    def _open(self, first: pa.RecordBatch) -> _Open:
        if len(self._full) == MOST_OPEN:
            raise UsageError(
                f"more than {MOST_OPEN} shards whose size is not known before the last row: "
                "pass size, or shards, or more rows_per_shard"
            )
        fs, path = self.target.fs, self.target.temporary_path(self._count)
        blocks = {} if is_local(fs) else {"block_size": _REMOTE_BLOCK}
        file = fs.open(path, "wb", **blocks)
        self._count += 1
        return _Open(file, self.form.begin(file, self.schema, first, self.size))

    def _write_group(self) -> None:
        assert self._shard is not None
        self.form.write(self._shard.writer, pa.Table.from_batches(self._held, self.schema))
        self._held, self._held_bytes = [], 0

    def _end_shard(self) -> None:
        assert self._shard is not None
        self._write_group()
        # Its schema gets the size at the end, when the largest index is known.
        if self.size == 0:
            self._full.append(self._shard)
        else:
            self._shard.close()
        self._shard, self._rows = None, 0
