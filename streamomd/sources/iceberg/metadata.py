"""The metadata of an Iceberg table: its snapshots, and the columns of one."""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any, Self

from streamomd.config.values import nanoseconds
from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.installed import needs_extra
from streamomd.core.machine_errors import is_mistake
from streamomd.core.urls import printable, protocol, scrub, shown
from streamomd.shards.file_schema import Inside, TableColumn, TableColumns
from streamomd.shards.filesystem import FileSystem
from streamomd.shards.shard_file import read_whole
from streamomd.sources.tables import ICEBERG_METADATA, TableOptions, check_locations, locate

ICEBERG = "iceberg://"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]*):(.*)", re.DOTALL)


def metadata_location(text: str) -> str:
    """The URL of the metadata file of a source: as its catalog has it, or the source itself.

    Raises UsageError for a catalog that is not configured, InputNotFoundError for a table that it
    does not have, StorageError for one that does not answer.
    """
    if protocol(text) != "iceberg":
        return text
    catalog, _, table = text[len(ICEBERG) :].partition("/")
    namespace, _, name = table.rpartition(".")
    # The name is also part of an environment variable's.
    if not _NAME.fullmatch(catalog) or not namespace or not name or "/" in table:
        raise UsageError(
            f"{shown(text)} names no Iceberg table: expected iceberg://catalog/namespace.table, "
            "with a catalog of pyiceberg's configuration"
        )
    return _plain(_ask(text, catalog, table))


def _ask(text: str, name: str, table: str) -> str:
    """Returns the URL of a table's newest metadata file."""
    pyiceberg = require_pyiceberg()
    try:
        # To read makes no tables in the database of a catalog.
        catalog = pyiceberg.load_catalog(name, init_catalog_tables="false")
    except Exception as error:  # of the libraries of any catalog
        if is_mistake(error):
            raise
        raise UsageError(
            f"{shown(text)}: catalog {name!r} cannot be used ({_line(error)}): configure it in "
            f".pyiceberg.yaml or by PYICEBERG_CATALOG__{name.upper()}__URI"
        ) from None
    # It would take its FileIO, and that one's endpoint, from the properties of the table.
    catalog._load_file_io = _no_files(catalog)
    try:
        with closing(catalog):
            return str(catalog.load_table(table).metadata_location)
    except (pyiceberg.NoSuchTableError, pyiceberg.NoSuchNamespaceError):
        raise InputNotFoundError(
            f"{shown(text)}: catalog {name!r} has no table {printable(table)!r}"
        ) from None
    except Exception as error:
        if is_mistake(error):
            raise
        raise StorageError(f"{shown(text)}: catalog {name!r} failed: {_line(error)}") from None


def _no_files(catalog: Any) -> Any:
    """A catalog's ``_load_file_io`` that takes no property of a table or of a server."""

    def load(properties: Any = None, location: str | None = None) -> Any:
        from pyiceberg.io import load_file_io

        # The server of a REST catalog sends properties of the catalog, and the metadata too.
        if hasattr(catalog, "_fetch_config"):
            return None

        return load_file_io(catalog.properties, location)

    return load


def require_pyiceberg() -> Any:
    """What is used of pyiceberg. Raises MissingExtraError without it."""
    with needs_extra("Iceberg tables need pyiceberg", "iceberg"):
        from pyiceberg import catalog, exceptions, manifest
        from pyiceberg.io import pyarrow as types
        from pyiceberg.table import metadata

    class Names:
        load_catalog = staticmethod(catalog.load_catalog)
        NoSuchTableError = exceptions.NoSuchTableError
        NoSuchNamespaceError = exceptions.NoSuchNamespaceError
        read_manifest_list = staticmethod(manifest.read_manifest_list)
        schema_to_pyarrow = staticmethod(types.schema_to_pyarrow)
        parse_metadata = staticmethod(metadata.TableMetadataUtil.parse_raw)

    return Names


def _plain(location: str) -> str:
    """A location as fsspec knows it: s3a:// is s3://, file:/a is /a.

    >>> _plain("s3a://b/k"), _plain("file:/a"), _plain("file:///a"), _plain("/a")
    ('s3://b/k', '/a', '/a', '/a')
    """
    match = _SCHEME.fullmatch(location)
    if match is None:
        return location
    scheme = match[1].lower()
    if scheme == "file":
        return "/" + match[2].lstrip("/")
    return f"{_SCHEMES.get(scheme, scheme)}:{match[2]}"


def _line(error: Exception) -> str:
    return scrub(str(error).split("\n", 1)[0])[:300] or type(error).__name__


class MemoryFiles:
    """What pyiceberg reads manifests from: bytes that were read before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def new_input(self, location: str) -> MemoryFiles:
        """The bytes, whatever the location."""
        return self

    def open(self, seekable: bool = True) -> BytesIO:
        """The bytes as a file."""
        return BytesIO(self._data)


METADATA_BYTES, MANIFEST_BYTES = 1 << 28, 1 << 28
MOST_SHOWN = 3
WHAT = "the metadata of an Iceberg table"


@dataclass(frozen=True)
class Table:
    """A table as one metadata file describes it.

    root, root_url: its location, the directory above ``metadata``. source: what the user named.
    """

    fs: FileSystem
    root: str
    root_url: str
    source: str
    metadata: Any

    @classmethod
    def open(cls, fs: FileSystem, path: str, url: str, source: str) -> Self:
        """Read a metadata file. Raises DataError for one that is damaged, UsageError for one
        outside an allow-list."""
        require_pyiceberg()
        root, root_url = _above(path), _above(url)
        found = locate(fs, root, root_url, path[len(root) :].lstrip("/"), ICEBERG_METADATA)
        check_locations(source, [found], ICEBERG_METADATA)
        data = read_whole(fs, path, url, METADATA_BYTES, WHAT)
        # By its first bytes: some writers compress files without .gz in their names.
        if data[:2] == b"\x1f\x8b":
            data = _unpacked(data, url)
        try:
            metadata = require_pyiceberg().parse_metadata(data.decode())
        except Exception as error:
            raise damaged(url, error) from None
        return cls(fs, root, root_url, source, metadata)

    @cached_property
    def snapshots(self) -> dict[int, Any]:
        """The snapshots that can be read, by id."""
        return {one.snapshot_id: one for one in self.metadata.snapshots}

    def snapshot(self, number: int) -> Any:
        """A snapshot by its id. Raises UsageError for one that is not there."""
        if number not in self.snapshots:
            some = [str(one.snapshot_id) for one in self.metadata.snapshots[-MOST_SHOWN:]]
            raise UsageError(
                f"Iceberg table {shown(self.source)} has no snapshot {number} to read (was it "
                f"expired?): the newest of its {len(self.snapshots):,} are {', '.join(some)}"
            )
        return self.snapshots[number]

    def choose(self, options: TableOptions) -> int:
        """The id of the snapshot that was chosen by id or time; the current one otherwise."""
        if options.version is not None:
            return options.version
        if options.as_of:
            return self._as_of(options.as_of)
        current = self.metadata.current_snapshot_id
        # -1 in tables of version 1 without a snapshot.
        if current is None or current < 0:
            raise DataError(
                f"no rows: Iceberg table {shown(self.source)} has no snapshot, so nothing was "
                "written to it yet"
            )
        return int(current)

    def _as_of(self, text: str) -> int:
        until = nanoseconds(text) // 1_000_000
        # The log, not the times of snapshots: a table that was rolled back has an older one again.
        log = [one for one in self.metadata.snapshot_log if one.timestamp_ms <= until]
        if not log:
            raise UsageError(
                f"Iceberg table {shown(self.source)} has no snapshot as of {text}: all that its "
                "metadata lists are newer"
            )
        return int(log[-1].snapshot_id)

    def columns(self, snapshot: Any, spec_id: int, names: Mapping[int, str]) -> TableColumns:
        """The columns of a snapshot, for files of one of the table's partition specs.

        names: by field id, of columns that the reader knows; another column of such a name is none
        of the rows.
        """
        schema = self.schema(snapshot)
        try:
            arrow = require_pyiceberg().schema_to_pyarrow(schema, include_field_ids=False)
        except Exception as error:  # a type that Arrow lacks
            raise damaged(self.source, error) from None
        spec = next((one for one in self.metadata.partition_specs if one.spec_id == spec_id), None)
        fields = spec.fields if spec is not None else ()
        # Such columns may be missing in the files: the partition has their value.
        identity = {one.source_id for one in fields if str(one.transform) == "identity"}
        taken = {*names.values()}
        known = tuple(
            TableColumn(
                one.field_id,
                names.get(one.field_id, one.name),
                arrow.field(at).type,
                _inside(one.field_type),
                one.field_id in identity or getattr(one, "initial_default", None) is not None,
            )
            for at, one in enumerate(schema.fields)
            if one.field_id in names or one.name not in taken
        )
        return TableColumns(known, self._names)

    @cached_property
    def _names(self) -> dict[str, int]:
        mapping = self.metadata.name_mapping()
        fields = mapping.root if mapping is not None else ()
        return {
            name: one.field_id for one in fields if one.field_id is not None for name in one.names
        }

    def schema(self, snapshot: Any) -> Any:
        """The schema that a snapshot was written with; the current one where it has none."""
        wanted = self.metadata.current_schema_id if snapshot.schema_id is None else (
            snapshot.schema_id)  # fmt: skip
        found = self._schemas.get(wanted)
        if found is None:
            raise damaged(self.source, ValueError(f"it has no schema {wanted}"))
        return found

    @property
    def _schemas(self) -> dict[int, Any]:
        return {one.schema_id: one for one in self.metadata.schemas}

    def names(self, schema: int) -> dict[int, str]:
        """The names of the columns of a schema, by field id. Raises DataError if it is gone."""
        if schema not in self._schemas:
            raise DataError(
                f"Iceberg table {shown(self.source)} no longer has schema {schema}, by whose names "
                "the model knows the columns: train from the model's state instead (streamomd "
                "train, with --start URL)"
            )
        return {one.field_id: one.name for one in self._schemas[schema].fields}

    def read(self, text: str) -> bytes:
        """A file of the table's metadata, by its location."""
        place = locate(self.fs, self.root, self.root_url, text, ICEBERG_METADATA)
        # Before it is opened: metadata may be anyone's, and name any file.
        check_locations(self.source, [place], ICEBERG_METADATA)
        try:
            return read_whole(self.fs, place.path, place.url, MANIFEST_BYTES, WHAT)
        except InputNotFoundError:
            raise DataError(
                f"{WHAT}, {shown(place.url)}: it does not exist; read a newer snapshot"
            ) from None


def schema_changes(table: Table, before: Any, after: Any) -> list[str]:
    """A line if the columns of two snapshots differ."""
    old = {one.field_id: one for one in table.schema(before).fields}
    new = {one.field_id: one for one in table.schema(after).fields}
    changes = [f"new column {one.name!r}" for key, one in new.items() if key not in old]
    changes += [f"column {one.name!r} dropped" for key, one in old.items() if key not in new]
    both = [(old[key], one) for key, one in new.items() if key in old]
    changes += [f"column {was.name!r} is {one.name!r} now, and read by its field id"
                for was, one in both if was.name != one.name]  # fmt: skip
    changes += [f"column {one.name!r} is {one.field_type}, was {was.field_type}"
                for was, one in both if was.field_type != one.field_type]  # fmt: skip
    text = printable(", ".join(changes))
    where = f"Iceberg table {shown(table.source)}, snapshot {after.snapshot_id}"
    return [f"{where}: {text}"] if changes else []


def damaged(url: str, error: Exception) -> DataError:
    """The error for metadata that is not as the specification says."""
    if isinstance(error, StreamomdError) or is_mistake(error, "pyiceberg"):
        raise error
    text = printable(str(error) or type(error).__name__)[:200]
    return DataError(f"{WHAT}, {shown(url)}, cannot be read: {text}; restore the file")


def _above(path: str) -> str:
    """The location of a table by its metadata file."""
    folder = posixpath.dirname(path)
    return posixpath.dirname(folder) if posixpath.basename(folder) == "metadata" else folder


def _unpacked(data: bytes, url: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(data, METADATA_BYTES)
    except zlib.error as error:
        raise damaged(url, error) from None
    # Not unpacked whole: what is over the limit was never in memory.
    if not unpacker.eof:
        raise damaged(url, ValueError(f"unpacked it has more than {METADATA_BYTES:,} bytes"))
    return found


def _inside(kind: Any) -> Inside:
    """Names and ids of the fields of structs, as ``file_schema.inside_of`` has them of a file."""
    return tuple(_walk(kind))


def _walk(kind: Any) -> Iterator[tuple[str, int, Inside]]:
    if hasattr(kind, "element_type"):
        yield from _walk(kind.element_type)
    elif hasattr(kind, "key_type"):
        yield from _walk(kind.key_type)
        yield from _walk(kind.value_type)
    else:
        for one in getattr(kind, "fields", ()):
            yield one.name, one.field_id, _inside(one.field_type)
