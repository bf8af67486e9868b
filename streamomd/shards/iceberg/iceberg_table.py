"""List an Iceberg table as a source of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamomd.shards.iceberg.later_snapshots import appended_files
from streamomd.shards.iceberg.manifests import File, live_files
from streamomd.shards.iceberg.metadata import Table
from streamomd.shards.listed import Listed, TableFiles
from streamomd.shards.table_finder import TableOptions
from streamomd.shards.table_locations import ICEBERG_METADATA, check_locations, locate

if TYPE_CHECKING:
    import fsspec


def list_table(
    fs: fsspec.AbstractFileSystem,
    path: str,
    url: str,
    source: str,
    options: TableOptions,
    *,
    pinned: int | None = None,
    since: int | None = None,
    appends_only: bool = False,
    schema: int | None = None,
) -> TableFiles:
    """The files of a snapshot of a table, or those appended after ``since`` up to that snapshot.

    path, url: of its metadata file. source: what the user named. pinned: the snapshot to read,
    whatever ``options`` say. schema: id of the one whose names the columns have; None: that of
    ``since``, else of the snapshot.
    """
    table = Table.open(fs, path, url, source)
    version = table.choose(options) if pinned is None else pinned
    snapshot = table.snapshot(version)
    notes: list[str] = []
    if since is None:
        files = live_files(table, snapshot)
    else:
        files, notes = appended_files(table, since, version, appends_only=appends_only)
    if schema is None:
        schema = table.schema(snapshot if since is None else table.snapshot(since)).schema_id
    names = table.names(schema)
    return TableFiles(version, _listed(table, snapshot, files, names), tuple(notes), schema=schema)


def _listed(
    table: Table, snapshot: Any, files: Sequence[File], names: Mapping[int, str]
) -> list[Listed]:
    found = [
        locate(table.fs, table.root, table.root_url, one.path, ICEBERG_METADATA) for one in files
    ]
    check_locations(table.source, found, ICEBERG_METADATA)
    columns = {spec: table.columns(snapshot, spec, names) for spec in {one.spec for one in files}}
    return [
        Listed(
            place.path,
            place.url,
            place.name,
            one.size,
            partitions=(),  # its directories are no columns: those are in the files
            version=(one.sequence, at),
            table=table.source,
            columns=columns[one.spec],
        )
        for at, (place, one) in enumerate(zip(found, files, strict=True))
    ]
