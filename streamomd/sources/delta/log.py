"""The log of a Delta table: its commits and checkpoints, and the files of a version.

Features of a table that change what a data file's rows are, and are not supported, are refused by
name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from streamomd.core.errors import DataError, InputNotFoundError, UnsupportedError, UsageError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import printable, shown
from streamomd.shards.filesystem import FileSystem, stat_entry
from streamomd.shards.formats.footer import read_shard
from streamomd.shards.list_files import children
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.shards.shard_file import read_whole
from streamomd.sources.delta.actions import (
    INVALID,
    Actions,
    Add,
    Metadata,
    Protocol,
    damaged,
    parse_lines,
)
from streamomd.sources.files.paths import DELTA_LOG

COMMIT_BYTES = 1 << 30
COMMITS_AT_ONCE = 16
_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9A-Za-z-]{1,64})?\.(parquet|json)", re.ASCII
)
_SIDECAR = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*\.parquet", re.ASCII)


@dataclass(frozen=True)
class Log:
    """commits: versions whose file is there. checkpoints: names of the files of each."""

    fs: FileSystem
    path: str
    url: str
    """The URL of the table."""
    commits: frozenset[int]
    checkpoints: dict[int, tuple[str, ...]]

    @classmethod
    def open(cls, fs: FileSystem, root: str, url: str) -> Self:
        """List the log of a table. Raises InputNotFoundError if there is none."""
        path = posixpath.join(root, DELTA_LOG)
        try:
            names = [posixpath.basename(name) for name in children(fs, path, f"{url}/{DELTA_LOG}")]
        except InputNotFoundError:
            # A directory without a log is reported as such below, with what to do.
            names = []
        # Other names are left alone: writers put temporary files and checksums there.
        commits = frozenset(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
        if not commits:
            raise InputNotFoundError(
                f"{shown(url)} cannot be read as a Delta table: there is no commit in its "
                f"{DELTA_LOG}. Name the root of a table; a directory of files is read without "
                "delta+, and with --as-files if it has a log"
            )
        return cls(fs, path, url, commits, _checkpoints(names))

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(self.commits)

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: its checkpoint is there, or all commits."""
        return min([*self.checkpoints, *self.commits & {0}], default=self.newest + 1)

    def start(self, version: int) -> int:
        """The newest checkpoint up to a version; −1: the commits from the first on."""
        return max((one for one in self.checkpoints if one <= version), default=-1)

    def first_missing(self, first: int, last: int) -> int | None:
        """The first of these versions without a commit. A hostile name may make the last huge."""
        return next((at for at in range(first, last + 1) if at not in self.commits), None)

    def read(self, versions: Iterable[int]) -> Iterator[tuple[int, Actions]]:
        """The actions of commits, in order. Raises DataError for one that is missing or damaged."""
        wanted = list(versions)
        with ThreadPoolExecutor(COMMITS_AT_ONCE, "streamomd-delta", **same_receivers()) as pool:
            for low in range(0, len(wanted), COMMITS_AT_ONCE):
                some = wanted[low : low + COMMITS_AT_ONCE]
                yield from zip(some, pool.map(self.commit, some), strict=True)

    def commit(self, version: int) -> Actions:
        """The actions of one commit."""
        return self._json(f"{version:020d}.json")

    def checkpoint(self, version: int, *, files: bool = True) -> Actions:
        """The actions that are in effect at a checkpoint, in no order. files: False: without adds,
        which may be millions."""
        found = Actions()
        columns = ("protocol", "metaData", *(("add", "sidecar") if files else ()))
        for name in self.checkpoints[version]:
            self._add(found, name, columns)
        for name in found.sidecars if files else ():
            # A name with a slash would leave the log's directory.
            if not _SIDECAR.fullmatch(name):
                raise DataError(
                    f"checkpoint {version} of Delta table {shown(self.url)} names the file "
                    f"{printable(name)!r}, which is not in its log: restore the checkpoint"
                )
            self._add(found, f"_sidecars/{name}", columns)
        return found

    def _add(self, found: Actions, name: str, columns: Sequence[str]) -> None:
        more = self._json(name) if name.endswith(".json") else self._parquet(name, columns)
        found.adds += more.adds
        found.sidecars += more.sidecars
        found.protocol = more.protocol or found.protocol
        found.metadata = more.metadata or found.metadata

    def modified(self, version: int) -> int:
        """When a commit was made, in ns: as it says itself, else when its file was written."""
        # Its own time first: a copied log has new file times.
        committed = self.commit(version).committed
        if committed is not None:
            return committed * 1_000_000
        name = f"{version:020d}.json"
        found = stat_entry(self.fs, posixpath.join(self.path, name), self._url(name)).mtime_ns
        if found is None:
            raise DataError(
                f"{shown(self.url)}: the store has no times, so that as_of finds no version: give "
                "data.version"
            )
        return found

    def _url(self, name: str) -> str:
        return f"{self.url}/{DELTA_LOG}/{name}"

    def _json(self, name: str) -> Actions:
        path, url = posixpath.join(self.path, name), self._url(name)
        data = read_whole(self.fs, path, url, COMMIT_BYTES, "the log of a Delta table")
        return parse_lines(data, url)

    def _parquet(self, name: str, columns: Sequence[str]) -> Actions:
        """It is read as a shard is, so that a small file cannot take much memory."""
        path, url = posixpath.join(self.path, name), self._url(name)
        shard, found = read_shard(self.fs, path, url), Actions()
        columns = [column for column in columns if column in shard.schema.names]
        for rows in read_batches(ShardSet((shard,), self.fs), places=range(1), columns=columns):
            for column in columns:
                try:
                    for at, value in _values(rows.batch.column(column)):
                        found.take(rows.row + at, {column: value})
                except INVALID as error:
                    raise damaged(url, f"column {column}", error) from None
        return found


def _values(column: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the row and the value of each struct of a column that is not null."""
    for at, value in enumerate(column.to_pylist()):
        if value is not None:
            yield at, value


def _checkpoints(names: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """The files of each complete checkpoint; of several of one version, the first by name."""
    found: dict[int, dict[str, list[str]]] = {}
    for name in sorted(names):
        if match := _CHECKPOINT.fullmatch(name):
            kind = f"of {match[3]}" if match[3] else name
            found.setdefault(int(match[1]), {}).setdefault(kind, []).append(name)
    complete: dict[int, tuple[str, ...]] = {}
    for version, kinds in found.items():
        for kind, files in kinds.items():
            # Of a checkpoint in parts all have to be there: a writer may have been interrupted.
            if not kind.startswith("of ") or len(files) == int(kind[3:]):
                complete.setdefault(version, tuple(files))
    return complete


SUPPORTED = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Reader features that do not change how a data file is read."""
USED_BY_FILES = frozenset({"deletionVectors", "columnMapping"})
"""Reader features of a table whose files need not use them: each use is refused."""
REMEDIES = {
    "deletionVectors": "run REORG TABLE … APPLY (PURGE), which rewrites these files",
    "columnMapping": "write the rows to a table without it (delta.columnMapping.mode = none)",
}


def refuse_features(url: str, protocol: Protocol, metadata: Metadata) -> None:
    """Raise UnsupportedError with every reader feature of a table that is not supported."""
    # Features of a version that is not known are not looked at.
    if protocol.reader_version > 3:
        raise UnsupportedError(
            f"Delta table {shown(url)} needs reader version {protocol.reader_version}; versions "
            "1 to 3 are supported"
        )
    unknown = sorted({*protocol.features} - SUPPORTED - USED_BY_FILES)
    if unknown:
        raise UnsupportedError(
            f"Delta table {shown(url)} needs table features that are not supported: "
            f"{printable(', '.join(unknown))}; drop them (ALTER TABLE … DROP FEATURE), or write "
            "the rows to a table without them"
        )
    mode = metadata.configuration.get("delta.columnMapping.mode") or "none"
    if mode.lower() != "none":
        raise UnsupportedError(
            f"Delta table {shown(url)} uses the table feature columnMapping (mode "
            f"{printable(mode)}): its files have other column names; {REMEDIES['columnMapping']}"
        )


def vectors_refusal(url: str, files: int) -> UnsupportedError:
    """The error for a table with files whose deleted rows are listed elsewhere."""
    return UnsupportedError(
        f"Delta table {shown(url)} uses the table feature deletionVectors: {files:,} of its files "
        f"hold deleted rows; {REMEDIES['deletionVectors']}"
    )


Added = tuple[tuple[int, int], Add]
"""Version and position of the commit that added a file, and the file."""
Key = tuple[str, str]
"""Path and deletion vector: what identifies a file of a table."""


@dataclass
class Snapshot:
    """What is in effect after a commit."""

    adds: dict[Key, Add] = field(default_factory=dict)
    protocol: Protocol | None = None
    metadata: Metadata | None = None

    def apply(self, actions: Actions) -> None:
        """Apply the next commit; its actions may be in any order."""
        for remove in actions.removes:
            # Removes before adds: a commit may remove a file and add it with another vector.
            self.adds.pop((unquote(remove.path), remove.vector), None)
        for _, add in actions.adds:
            self.adds[unquote(add.path), add.vector] = add
        self.describe(actions)

    def describe(self, actions: Actions) -> None:
        """Take protocol and metadata of a commit."""
        self.protocol = actions.protocol or self.protocol
        self.metadata = actions.metadata or self.metadata

    def check(self, url: str, version: int) -> Metadata:
        """The metadata of a table that can be read. Raises UnsupportedError, DataError."""
        if self.protocol is None or self.metadata is None:
            raise DataError(
                f"the log of Delta table {shown(url)} has no protocol or no metaData up to version "
                f"{version}: it is damaged"
            )
        refuse_features(url, self.protocol, self.metadata)
        return self.metadata


def snapshot_files(log: Log, version: int) -> tuple[Metadata, list[Added]]:
    """The files of a version, ordered by the commit that added them, then by position in it.

    Files of commits whose log was cleaned up come first, as if the last of those commits had added
    them, by time and path. Raises UsageError for a version that cannot be read.
    """
    _refuse_unreadable(log, version)
    start = log.start(version)
    active = Snapshot()
    if start >= 0:
        active.apply(log.checkpoint(start))
    origins: dict[str, tuple[int, int]] = {}
    there = {one for one in log.commits if one <= version}
    missing = log.first_missing(start + 1, version)
    if missing is not None:
        raise DataError(
            f"commit {missing} of Delta table {shown(log.url)} is missing from its log: restore "
            "it, or give another data.version"
        )
    for at, actions in log.read(sorted(there)):
        _record(origins, at, actions)
        if at > start:
            active.apply(actions)
    metadata = active.check(log.url, version)
    if vectors := sum(add.vector != "" for add in active.adds.values()):
        raise vectors_refusal(log.url, vectors)
    return metadata, _ordered(active.adds, origins, min(there, default=version + 1))


def _record(origins: dict[str, tuple[int, int]], version: int, actions: Actions) -> None:
    """Note where files were added. One that is added again, as for its statistics, stays there."""
    added = {unquote(add.path) for _, add in actions.adds}
    for remove in actions.removes:
        if (path := unquote(remove.path)) not in added:
            # A path that is added once more later has its rows from then.
            origins.pop(path, None)
    for line, add in actions.adds:
        origins.setdefault(unquote(add.path), (version, line))


def _ordered(
    adds: Mapping[Key, Add], origins: Mapping[str, tuple[int, int]], first: int
) -> list[Added]:
    unknown = [add for (path, _), add in adds.items() if path not in origins]
    # Their commits are gone: time and path are all that is known, and are stable.
    unknown.sort(key=lambda add: (add.modified, add.path))
    found = [((first - 1, at), add) for at, add in enumerate(unknown)]
    found += [(origins[path], add) for (path, _), add in adds.items() if path in origins]
    return sorted(found, key=lambda one: one[0])


def _refuse_unreadable(log: Log, version: int) -> None:
    if log.oldest <= version <= log.newest:
        return
    versions = f"versions {log.oldest} to {log.newest}"
    why = "earlier ones were removed by log cleanup" if log.oldest else "there is no later one"
    raise UsageError(
        f"Delta table {shown(log.url)} has no version {version} to read: it has {versions} ({why})"
    )
