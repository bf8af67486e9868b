"""The files that were appended to a Delta table after a version, for updates of a model.

Compaction (OPTIMIZE) rewrites files without changing data (dataChange = false): its rows were
learned already, so its files are not appended ones. A commit that deletes or updates rows cannot be
unlearned: it is refused.
"""

from __future__ import annotations

from streamomd.core.errors import ResumeRefusedError
from streamomd.core.urls import printable, shown
from streamomd.shards.delta.actions import Metadata
from streamomd.shards.delta.features import vectors_refusal
from streamomd.shards.delta.log import Log
from streamomd.shards.delta.snapshot import Added, Snapshot

MOST_COMMITS = 5
ALTERNATIVE = (
    "train on the table's current version instead (streamomd train, with --start URL to begin from "
    "this model's state)"
)


def appended_files(
    log: Log, since: int, version: int, *, appends_only: bool
) -> tuple[Metadata, list[Added], list[str]]:
    """Files added by commits since + 1 … version, in their order; metadata and lines to print.

    appends_only: skip commits that delete or update rows, with all they add. Raises
    ResumeRefusedError for such commits otherwise, and for commits that are gone.
    """
    _refuse_gone(log, since, version)
    state = _described(log, since)
    found: list[Added] = []
    changing: list[str] = []
    notes: list[str] = []
    for at, actions in log.read(range(since + 1, version + 1)):
        before = state.metadata
        state.describe(actions)
        notes += _schema_changes(log.url, at, before, actions.metadata)
        added = [((at, line), add) for line, add in actions.adds if add.changes_data]
        if any(remove.changes_data for remove in actions.removes):
            changing.append(f"{at} ({printable(actions.operation) or 'unknown operation'})")
            continue
        if any(add.vector for _, add in added):
            raise vectors_refusal(log.url, sum(add.vector != "" for _, add in added))
        found += added
    if changing:
        notes += _changed(log.url, changing, appends_only=appends_only)
    if state.protocol is None or state.metadata is None:
        state = _described(log, version)
    return state.check(log.url, version), found, notes


def _described(log: Log, version: int) -> Snapshot:
    """Protocol and metadata of a version; empty if its commits were removed by log cleanup."""
    found, start = Snapshot(), log.start(version)
    if log.first_missing(start + 1, version) is not None:
        return found
    if start >= 0:
        found.describe(log.checkpoint(start, files=False))
    for _, actions in log.read(range(start + 1, version + 1)):
        found.describe(actions)
    return found


def _changed(url: str, changing: list[str], *, appends_only: bool) -> list[str]:
    commits = ", ".join(changing[:MOST_COMMITS])
    commits += f" and {len(changing) - MOST_COMMITS:,} more" * (len(changing) > MOST_COMMITS)
    text = f"commits of Delta table {shown(url)} delete or update rows: version {commits}"
    if appends_only:
        return [f"{text}; they are skipped"]
    raise ResumeRefusedError(
        f"{text}. A model cannot unlearn rows: {ALTERNATIVE}, or pass --appends-only to learn the "
        "rows of the other commits alone"
    )


def _refuse_gone(log: Log, since: int, version: int) -> None:
    if since > version:
        raise ResumeRefusedError(
            f"Delta table {shown(log.url)} has version {version}, older than version {since}, "
            f"which was learned: was the table made again? If so, {ALTERNATIVE}"
        )
    gone = log.first_missing(since + 1, version)
    if gone is not None:
        raise ResumeRefusedError(
            f"commit {gone} of Delta table {shown(log.url)} is gone from its log (log cleanup): "
            f"what was appended after version {since} is unknown. {ALTERNATIVE[0].upper()}"
            f"{ALTERNATIVE[1:]}, learn updates more often, or set the table's "
            "delta.logRetentionDuration to more than the time between them"
        )


def _schema_changes(
    url: str, version: int, before: Metadata | None, after: Metadata | None
) -> list[str]:
    old, new = before.columns if before else {}, after.columns if after else {}
    if not before or not after or old == new:
        return []
    changes = [f"new column {name!r}" for name in new if name not in old]
    changes += [f"column {name!r} dropped" for name in old if name not in new]
    changes += [
        f"column {name!r} is {new[name]}, was {old[name]}"
        for name in new
        if name in old and old[name] != new[name]
    ]
    text = printable(", ".join(changes) or "other order of columns")
    return [f"Delta table {shown(url)}, version {version}: {text}"]
