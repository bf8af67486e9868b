"""List an Iceberg table: the files of a snapshot, or those appended after one, for updates.

Compaction (operation replace) adds files without new rows: they are not appended ones. A snapshot
that deletes or overwrites rows cannot be unlearned: it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import dirname
from typing import TYPE_CHECKING, Any

from streamomd.core.errors import ResumeRefusedError
from streamomd.core.urls import printable, shown
from streamomd.shards.shard import Listed
from streamomd.shards.shard import Table as OfTable
from streamomd.sources.contract import SCHEMA, Request, SourceFiles
from streamomd.sources.delta.appended import ALTERNATIVE, MOST_COMMITS
from streamomd.sources.iceberg.manifests import File, added_files, live_files
from streamomd.sources.iceberg.metadata import Table, schema_changes
from streamomd.sources.tables import ICEBERG_METADATA, check_locations, locate

if TYPE_CHECKING:
    import fsspec


APPEND, REPLACE = "append", "replace"


def appended_files(
    table: Table, since: int, version: int, *, appends_only: bool
) -> tuple[list[File], list[str]]:
    """Files that snapshots after ``since`` up to ``version`` appended, in their order; and lines to
    print.

    appends_only: skip snapshots that delete or overwrite rows, with all they add. Raises
    ResumeRefusedError for such snapshots otherwise, and for a ``since`` that is not before them.
    """
    found: list[File] = []
    changing: list[str] = []
    for one in _after(table, since, version):
        operation = _operation(one)
        if operation == APPEND:
            found += added_files(table, one)
        elif operation != REPLACE:
            changing.append(f"{one.snapshot_id} ({operation or 'unknown operation'})")
    notes = schema_changes(table, table.snapshot(since), table.snapshot(version))
    if changing:
        notes += _changed(table, changing, appends_only=appends_only)
    return found, notes


def _operation(snapshot: Any) -> str:
    operation = getattr(snapshot.summary, "operation", "")
    return printable(str(getattr(operation, "value", operation)))


def _after(table: Table, since: int, version: int) -> list[Any]:
    """The snapshots after one up to another, the oldest first."""
    passed: list[Any] = []
    at: int | None = version
    while at != since:
        one = None if at is None else table.snapshots.get(at)
        # A parent of itself would make a circle.
        if one is None or len(passed) > len(table.snapshots):
            raise ResumeRefusedError(
                f"snapshot {since} of Iceberg table {shown(table.source)}, which was learned, is "
                f"not before snapshot {version} in its metadata (it was expired, or the table was "
                f"rolled back or made again): what was appended after it is unknown. "
                f"{ALTERNATIVE[0].upper()}{ALTERNATIVE[1:]}, or learn updates more often than "
                "snapshots expire"
            )
        passed.append(one)
        at = one.parent_snapshot_id
    table.snapshot(since)
    return passed[::-1]


def _changed(table: Table, changing: list[str], *, appends_only: bool) -> list[str]:
    snapshots = ", ".join(changing[:MOST_COMMITS])
    more = len(changing) - MOST_COMMITS
    snapshots += f" and {more:,} more" * (more > 0)
    text = f"snapshots of Iceberg table {shown(table.source)} delete or overwrite rows: {snapshots}"
    if appends_only:
        return [f"{text}; they are skipped"]
    raise ResumeRefusedError(
        f"{text}. A model cannot unlearn rows: {ALTERNATIVE}, or pass --appends-only to learn the "
        "rows of the other snapshots alone"
    )


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
