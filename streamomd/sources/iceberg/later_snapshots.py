"""The files that were appended to an Iceberg table after a snapshot, for updates of a model.

Compaction (operation replace) adds files without new rows: they are not appended ones. A snapshot
that deletes or overwrites rows cannot be unlearned: it is refused.
"""

from __future__ import annotations

from typing import Any

from streamomd.core.errors import ResumeRefusedError
from streamomd.core.urls import printable, shown
from streamomd.sources.delta.appended import ALTERNATIVE, MOST_COMMITS
from streamomd.sources.iceberg.manifests import File, added_files
from streamomd.sources.iceberg.metadata import Table, schema_changes

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
