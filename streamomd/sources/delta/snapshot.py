"""The files of one version of a Delta table, in the order in which commits added them.

Features of a table that change what a data file's rows are, and are not supported, are refused by
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from streamomd.core.errors import DataError, UnsupportedError, UsageError
from streamomd.core.urls import printable, shown
from streamomd.sources.delta.actions import Actions, Add, Metadata, Protocol
from streamomd.sources.delta.log import Log

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
            origins.pop(path, None)
    for line, add in actions.adds:
        origins.setdefault(unquote(add.path), (version, line))


def _ordered(
    adds: Mapping[Key, Add], origins: Mapping[str, tuple[int, int]], first: int
) -> list[Added]:
    unknown = [add for (path, _), add in adds.items() if path not in origins]
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
