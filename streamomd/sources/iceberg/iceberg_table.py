"""List an Iceberg table as a source of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import dirname
from typing import TYPE_CHECKING, Any

from streamomd.shards.listed import Listed
from streamomd.shards.listed import Table as OfTable
from streamomd.sources.contract import SCHEMA, Request, SourceFiles
from streamomd.sources.iceberg.later_snapshots import appended_files
from streamomd.sources.iceberg.manifests import File, live_files
from streamomd.sources.iceberg.metadata import Table
from streamomd.sources.table_locations import ICEBERG_METADATA, check_locations, locate

if TYPE_CHECKING:
    import fsspec


MISSING = "but it does not exist: expiring snapshots deletes"


def list_table(
    fs: fsspec.AbstractFileSystem, path: str, url: str, source: str, request: Request
) -> SourceFiles:
    """The files of a snapshot of a table, or those appended after the recorded snapshot.

    path, url: of its metadata file. source: what the user named. Its columns have the names that
    they had when the run started, else those of the snapshot.
    """
    table = Table.open(fs, path, url, source)
    pinned, since = request.versions.get(source), request.since.get(source)
    version = table.choose(request.tables) if pinned is None else pinned
    snapshot = table.snapshot(version)
    notes: list[str] = []
    if since is None:
        files = live_files(table, snapshot)
    else:
        files, notes = appended_files(table, since, version, appends_only=request.appends_only)
    key = f"{source}{SCHEMA}"
    recorded = (request.versions, request.since, request.tables.known)
    schema = next((known[key] for known in recorded if key in known), None)
    if schema is None:
        schema = table.schema(snapshot if since is None else table.snapshot(since)).schema_id
    listed = _listed(table, snapshot, files, table.names(schema))
    # Each version has a metadata file of its own: its place is the directory above.
    place = f"{dirname(dirname(path))}/"
    return SourceFiles(listed, place, {key: schema, source: version}, notes)


def _listed(
    table: Table, snapshot: Any, files: Sequence[File], names: Mapping[int, str]
) -> list[Listed]:
    found = [
        locate(table.fs, table.root, table.root_url, one.path, ICEBERG_METADATA) for one in files
    ]
    check_locations(table.source, found, ICEBERG_METADATA)
    of = OfTable("Iceberg", table.source, MISSING)
    columns = {spec: table.columns(snapshot, spec, names) for spec in {one.spec for one in files}}
    return [
        Listed(
            place.path,
            place.url,
            place.name,
            one.size,
            partitions=(),  # its directories are no columns: those are in the files
            version=(one.sequence, at),
            table=of,
            columns=columns[one.spec],
        )
        for at, (place, one) in enumerate(zip(found, files, strict=True))
    ]
