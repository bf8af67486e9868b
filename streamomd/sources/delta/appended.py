"""The files of a version of a Delta table, or those that were appended after one, for updates.

Compaction (OPTIMIZE) rewrites files without changing data (dataChange = false): its rows were
learned already or are in files that were appended, so its files are not appended ones. Files that
were appended are read while they exist. Once VACUUM deleted them, the compacted files are read in
their place, if the log shows that these have no other rows. A commit that deletes or updates rows
cannot be unlearned: it is refused.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

from streamomd.config.values import nanoseconds
from streamomd.core.errors import DataError, InputNotFoundError, ResumeRefusedError, UsageError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import printable, shown
from streamomd.core.wording import counted, listed
from streamomd.shards.filesystem import CONNECTIONS, FileSystem, stat_entry
from streamomd.shards.shard import Listed, Table
from streamomd.sources.contract import Request, SourceFiles
from streamomd.sources.delta.actions import Actions, Add, Metadata, Remove
from streamomd.sources.delta.log import Added, Key, Log, Snapshot, snapshot_files, vectors_refusal
from streamomd.sources.files.paths import DELTA_LOG
from streamomd.sources.tables import Location, TableOptions, check_locations, locate

Partition = frozenset[tuple[str, str | None]]


@dataclass(eq=False)
class Block:
    """Rows that were appended, and the files that had exactly these rows after a commit.

    parts: blocks with the same rows before that commit. mixed_by: the later commit that wrote these
    rows into files with others, −1: none.
    """

    files: tuple[Added, ...]
    parts: tuple[Block, ...] = ()
    mixed_by: int = -1


class Found(NamedTuple):
    """files: to read, in order. replaced: appended files whose rows compacted ones of these have.
    lost: appended files that do not exist, whose rows no others are known to have; of mixed_by."""

    files: list[Added]
    replaced: int
    lost: list[Added]
    mixed_by: Sequence[int]


@dataclass
class Appended:
    """What was appended after a version, as commits are applied one after another.

    is_learned: whether a file was learned: an update need not take all files of a version. live:
    blocks by the files of the table that have their rows now.
    """

    is_learned: Callable[[Add], bool]
    _blocks: list[Block] = field(default_factory=list)
    _live: dict[Key, Block] = field(default_factory=dict)

    def append(self, files: Iterable[Added]) -> None:
        """Files with new rows."""
        for one in files:
            self._add(Block((one,)))

    def change(self, version: int, removes: Iterable[Remove]) -> None:
        """A commit that deleted or updated rows: files after it do not have the rows before."""
        for key in map(_key, removes):
            if (block := self._live.get(key)) is not None:
                block.mixed_by = version
                self._forget(block)

    def compact(self, version: int, actions: Actions) -> None:
        """A commit that wrote the rows of some files into others (dataChange = false)."""
        removed = [_key(one) for one in actions.removes]
        if not any(key in self._live for key in removed):
            return
        # A file that is added again, as for its statistics, is not a compacted one.
        added = [((version, at), add) for at, add in actions.adds if _key(add) not in self._live]
        for partition in _partitions(actions):
            of = [
                _key(one) for one in actions.removes
                if partition is None or _partition(one) == partition
            ]  # fmt: skip
            to = [one for one in added if partition is None or _partition(one[1]) == partition]
            self._compact(version, of, to)

    def _compact(self, version: int, removed: Sequence[Key], added: Sequence[Added]) -> None:
        parts = [*dict.fromkeys(self._live[key] for key in removed if key in self._live)]
        files = {_key(one[1]): one for part in parts for one in part.files}
        new = [files.pop(key) for key in removed if key in self._live]
        before = [add.rows for _, add in new if not self.is_learned(add)]
        after = [add.rows for _, add in added]
        if not before:  # of learned rows alone
            for key in removed:
                self._live.pop(key, None)
            return
        for part in parts:
            self._forget(part)
        if len(before) == len(removed) and None not in (*before, *after) and (
            _sum(before) == _sum(after)
        ):  # fmt: skip
            self._add(Block((*files.values(), *added), tuple(parts)))
            return
        for part in parts:
            part.mixed_by = version

    def _add(self, block: Block) -> None:
        self._blocks.append(block)
        self._live |= {_key(add): block for _, add in block.files}

    def _forget(self, block: Block) -> None:
        for _, add in block.files:
            self._live.pop(_key(add), None)

    def find(self, existing: Callable[[Sequence[Added]], Collection[str]]) -> Found:
        """The files to read. existing: which of some files exist, by path as in the log."""
        asked = {add.path: (at, add) for block in self._blocks
                 if block.parts or block.mixed_by >= 0
                 for part in (block, *block.parts) for at, add in part.files}  # fmt: skip
        there = existing([*asked.values()]) if asked else ()
        # The files of a block, and those that do not exist. Parts come before their blocks.
        best: dict[Block, tuple[tuple[Added, ...], list[Added]]] = {}
        inner: set[Block] = set()
        replaced = 0
        for block in self._blocks:
            learned = [self.is_learned(add) for _, add in block.files]
            gone = [
                one for one, known in zip(block.files, learned, strict=True)
                if not known and one[1].path in asked and one[1].path not in there
            ]  # fmt: skip
            if block.parts:
                files = tuple(one for part in block.parts for one in best[part][0])
                lost = [one for part in block.parts for one in best[part][1]]
                inner.update(block.parts)
                if not any(learned) and (not lost or gone):
                    best[block] = files, lost
                    continue
                replaced += len(lost)
            best[block] = block.files, gone
        tops = [block for block in self._blocks if block not in inner]
        found = sorted((one for block in tops for one in best[block][0]), key=lambda one: one[0])
        lost = [one for block in tops for one in best[block][1]]
        mixed_by = sorted({block.mixed_by for block in tops if best[block][1]} - {-1})
        return Found(found, replaced, lost, mixed_by)


def _partitions(actions: Actions) -> list[Partition | None]:
    """The partitions that a commit compacts, each by itself; None: all, as the log lacks some."""
    if any(one.partitions is None for one in actions.removes):
        return [None]
    return [*dict.fromkeys(map(_partition, actions.removes))]


def _partition(file: Add | Remove) -> Partition:
    return frozenset((file.partitions or {}).items())


def _key(file: Add | Remove) -> Key:
    return unquote(file.path), file.vector


def _sum(rows: Iterable[int | None]) -> int:
    return sum(one or 0 for one in rows)


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
        # Before the commit's new rows, which it did not compact.
        appended.compact(at, actions)
        appended.append(added)
    text = f"commits of Delta table {shown(log.url)} delete or update rows: version "
    notes += changed_notes(text, changing, "commits", appends_only=appends_only)
    if state.protocol is None or state.metadata is None:
        # Commits before them are gone from the log; a later checkpoint has both.
        state = _described(log, version)
    metadata, new = state.check(log.url, version), appended.find(existing)
    if new.replaced:
        notes.append(
            f"Delta table {shown(log.url)}: {counted(new.replaced, 'file')} appended after "
            f"version {since} no longer exist (VACUUM); their rows are read from the files that "
            "compaction wrote, which have no other rows"
        )
    return AppendedFiles(metadata, new.files, notes, _lost(log.url, since, new))


def _lost(url: str, since: int, found: Found) -> str:
    if not found.mixed_by:
        return ""
    commits = ", ".join(map(str, found.mixed_by[:MOST_COMMITS]))
    return (
        f"{counted(len(found.lost), 'file')} that Delta table {shown(url)} appended after version "
        f"{since}, which was learned, no longer exist (VACUUM), such as "
        f"{shown(found.lost[0][1].path)}. Commit {commits} wrote their rows into files with other "
        "rows, or changed them, and the log does not say which are new. Restore these files from a "
        f"copy of the table, or {ALTERNATIVE}: from this state, learned rows are learned again; "
        "without --start, each row once. Or pass --set data.on_bad_shard=skip to learn the other "
        "new rows without those. To avoid it, run update before VACUUM"
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


def changed_notes(
    text: str, changing: Sequence[str], unit: str, *, appends_only: bool
) -> list[str]:
    """A line on the commits that change rows, if there are any and they are to be skipped; else
    raises ResumeRefusedError."""
    text += listed(changing, MOST_COMMITS)
    if changing and not appends_only:
        raise ResumeRefusedError(
            f"{text}. A model cannot unlearn rows: {ALTERNATIVE}, or pass --appends-only to learn "
            f"the rows of the other {unit} alone"
        )
    return [f"{text}; they are skipped"] if changing else []


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
    other = [name for name in new if name in old and old[name] != new[name]]
    changes += [f"column {name!r} is {new[name]}, was {old[name]}" for name in other]
    text = printable(", ".join(changes) or "other order of columns")
    return [f"Delta table {shown(url)}, version {version}: {text}"]


MISSING = "added in version {version}, but it does not exist: VACUUM deletes"


def list_table(fs: FileSystem, root: str, url: str, request: Request) -> SourceFiles:
    """The files of a version of the table in a directory, or those appended after the recorded
    version up to that one."""
    # The log itself has to be in the allow-list.
    check_locations(url, [locate(fs, root, url, DELTA_LOG)])
    log = Log.open(fs, root, url)
    pinned, since = request.versions.get(url), request.since.get(url)
    version = choose_version(log, request.tables) if pinned is None else pinned
    place, position = f"{root}/", {url: version}
    if since is None:
        metadata, added = snapshot_files(log, version)
        return SourceFiles(_listed(fs, root, url, metadata, added), place, position)
    learned = {key for key, facts in request.ledger.items() if "skipped" not in facts}
    new = appended_files(
        log,
        since,
        version,
        appends_only=request.appends_only,
        existing=partial(_existing, fs, root, url),
        is_learned=lambda add: locate(fs, root, url, add.path).url in learned,
    )
    files = _listed(fs, root, url, new.metadata, new.added)
    return SourceFiles(files, place, position, new.notes, new.lost)


def _existing(fs: FileSystem, root: str, url: str, files: Sequence[Added]) -> set[str]:
    """Which files of a table exist, by path as in the log."""
    places = [locate(fs, root, url, add.path) for _, add in files]
    check_locations(url, places)

    def exists(place: Location) -> bool:
        try:
            stat_entry(fs, place.path, place.url)
        except InputNotFoundError:
            return False
        return True

    with ThreadPoolExecutor(CONNECTIONS, "streamomd-delta", **same_receivers()) as pool:
        found = pool.map(exists, places)
        return {add.path for (_, add), there in zip(files, found, strict=True) if there}


def choose_version(log: Log, options: TableOptions) -> int:
    """The version that was chosen by number or time; the newest otherwise."""
    if options.version is not None:
        return options.version
    if not options.as_of:
        return log.newest
    # A search by halves: the time of each commit is a request.
    until = nanoseconds(options.as_of)
    commits = sorted(log.commits)
    if place := bisect.bisect_right(commits, until, key=log.modified):
        return commits[place - 1]
    raise UsageError(
        f"Delta table {shown(log.url)} has no version as of {options.as_of}: the oldest commit "
        f"in its log, {commits[0]}, is newer"
    )


def _listed(
    fs: FileSystem, root: str, url: str, metadata: Metadata, added: Sequence[Added]
) -> list[Listed]:
    found = [locate(fs, root, url, add.path) for _, add in added]
    check_locations(url, found)
    table = Table("Delta", url, MISSING)
    return [
        Listed(
            place.path, place.url, place.name, add.size, version=version, table=table,
            partitions=_values_of(url, metadata, add),
        )
        for place, (version, add) in zip(found, added, strict=True)
    ]  # fmt: skip


def _values_of(url: str, metadata: Metadata, add: Add) -> tuple[tuple[str, str | None], ...]:
    missing = [name for name in metadata.partition_columns if name not in add.partitions]
    if missing:
        raise DataError(
            f"the log of Delta table {shown(url)} has no value of partition column {missing[0]!r} "
            f"for {shown(add.path)}: it is damaged"
        )
    return tuple((name, add.partitions[name]) for name in metadata.partition_columns)
