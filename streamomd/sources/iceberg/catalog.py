"""The newest metadata file of an Iceberg table: its catalog knows it, or the user names it."""

from __future__ import annotations

import re
from contextlib import closing
from io import BytesIO
from typing import Any

from streamomd.core.errors import InputNotFoundError, MissingExtraError, StorageError, UsageError
from streamomd.core.programming_errors import is_mistake
from streamomd.core.urls import printable, protocol, scrub, shown

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
    try:
        from pyiceberg import catalog, exceptions, manifest
        from pyiceberg.io import pyarrow as types
        from pyiceberg.table import metadata
    except ImportError:
        raise MissingExtraError(
            "Iceberg tables need pyiceberg: pip install 'streamomd[iceberg]'"
        ) from None

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
