"""The files that were appended to a Delta table after a version, for updates of a model.

Compaction (OPTIMIZE) rewrites files without changing data (dataChange = false): its rows were
learned already or are in files that were appended, so its files are not appended ones; see
``compaction`` for those that VACUUM deleted. A commit that deletes or updates rows cannot be
unlearned: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from streamomd.core.counted import counted
from streamomd.core.errors import ResumeRefusedError
from streamomd.core.urls import printable, shown
from streamomd.sources.delta.actions import Add, Metadata
from streamomd.sources.delta.compaction import Appended, Found
from streamomd.sources.delta.log import Log
from streamomd.sources.delta.snapshot import Added, Snapshot, vectors_refusal

MOST_COMMITS = 5
ALTERNATIVE = (
    "train on the table's current version instead (streamomd train, with --start URL to begin from "
    "this model's state)"
)


class AppendedFiles(NamedTuple):
    """metadata: of the table. added: files with the rows, in order. notes: lines to print.
    lost: why the rows of some of these files cannot be read; empty: they can."""

    metadata: Metadata
    added: list[Added]
    notes: list[str]
    lost: str = ""


def appended_files(
    log: Log,
    since: int,
    version: int,
    *,
    appends_only: bool,
    existing: Callable[[Sequence[Added]], Collection[str]],
    is_learned: Callable[[Add], bool],
) -> AppendedFiles:
    """Files with the rows that commits since + 1 … version appended, in the order of commits.

    appends_only: skip commits that delete or update rows, with all they add. existing: which of
    some files exist, by path as in the log. is_learned: whether a file was learned. Raises
    ResumeRefusedError for commits that delete or update rows, unless appends_only, and for commits
    that are gone.
    """
    _refuse_gone(log, since, version)
    state = _described(log, since)
    appended = Appended(is_learned)
    changing: list[str] = []
    notes: list[str] = []
    for at, actions in log.read(range(since + 1, version + 1)):
        before = state.metadata
        state.describe(actions)
        notes += _schema_changes(log.url, at, before, actions.metadata)
        added = [((at, line), add) for line, add in actions.adds if add.changes_data]
        if any(remove.changes_data for remove in actions.removes):
            changing.append(f"{at} ({printable(actions.operation) or 'unknown operation'})")
            appended.change(at, actions.removes)
            continue
        if any(add.vector for _, add in added):
            raise vectors_refusal(log.url, sum(add.vector != "" for _, add in added))
        appended.compact(at, actions)
        appended.append(added)
    if changing:
        notes += _changed(log.url, changing, appends_only=appends_only)
    if state.protocol is None or state.metadata is None:
        state = _described(log, version)
    metadata, found = state.check(log.url, version), appended.find(existing)
    if found.replaced:
        notes.append(
            f"Delta table {shown(log.url)}: {counted(found.replaced, 'file')} appended after "
            f"version {since} no longer exist (VACUUM); their rows are read from the files that "
            "compaction wrote, which have no other rows"
        )
    return AppendedFiles(metadata, found.files, notes, _lost(log.url, since, found))


def _lost(url: str, since: int, found: Found) -> str:
    if not found.mixed_by:
        return ""
    commits = ", ".join(map(str, found.mixed_by[:MOST_COMMITS]))
    return (
        f"{counted(len(found.lost), 'file')} that Delta table {shown(url)} appended after version "
        f"{since}, which was learned, no longer exist (VACUUM), such as "
        f"{shown(found.lost[0][1].path)}. Commit {commits} wrote their rows into files with other "
        "rows, or changed them, and the log does not say which are new. Restore these files from a "
        "copy of the "
        f"table, or {ALTERNATIVE}: from this state, learned rows are learned again; without "
        "--start, each row once. Or pass --set data.on_bad_shard=skip to learn the other new rows "
        "without those. To avoid it, run update before VACUUM"
    )


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
