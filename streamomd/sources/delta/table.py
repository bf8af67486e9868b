"""List a Delta table as a source of shards."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from streamomd.config.values import nanoseconds
from streamomd.core.errors import DataError, InputNotFoundError, UsageError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import shown
from streamomd.shards.filesystem import CONNECTIONS, stat_entry
from streamomd.shards.shard import Listed, Table
from streamomd.sources.contract import Request, SourceFiles
from streamomd.sources.delta.actions import Add, Metadata
from streamomd.sources.delta.appended import appended_files
from streamomd.sources.delta.log import Added, Log, snapshot_files
from streamomd.sources.files.paths import DELTA_LOG
from streamomd.sources.tables import Location, TableOptions, check_locations, locate

if TYPE_CHECKING:
    import fsspec

MISSING = "added in version {version}, but it does not exist: VACUUM deletes"


def list_table(fs: fsspec.AbstractFileSystem, root: str, url: str, request: Request) -> SourceFiles:
    """The files of a version of the table in a directory, or those appended after the recorded
    version up to that one."""
    check_locations(url, [locate(fs, root, url, DELTA_LOG)])
    log = Log.open(fs, root, url)
    pinned, since = request.versions.get(url), request.since.get(url)
    version = choose_version(log, request.tables) if pinned is None else pinned
    place, position = f"{root}/", {url: version}
    if since is None:
        metadata, added = snapshot_files(log, version)
        return SourceFiles(_listed(fs, root, url, metadata, added), place, position)
    learned = {key for key, facts in request.ledger.items() if "skipped" not in facts}
    found = appended_files(
        log,
        since,
        version,
        appends_only=request.appends_only,
        existing=partial(_existing, fs, root, url),
        is_learned=lambda add: locate(fs, root, url, add.path).url in learned,
    )
    listed = _listed(fs, root, url, found.metadata, found.added)
    return SourceFiles(listed, place, position, found.notes, found.lost)


def _existing(
    fs: fsspec.AbstractFileSystem, root: str, url: str, files: Sequence[Added]
) -> set[str]:
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
    until = nanoseconds(options.as_of)
    commits = sorted(log.commits)
    place = bisect.bisect_right(commits, until, key=log.modified)
    if not place:
        raise UsageError(
            f"Delta table {shown(log.url)} has no version as of {options.as_of}: the oldest commit "
            f"in its log, {commits[0]}, is newer"
        )
    return commits[place - 1]


def _listed(
    fs: fsspec.AbstractFileSystem, root: str, url: str, metadata: Metadata, added: Sequence[Added]
) -> list[Listed]:
    found = [locate(fs, root, url, add.path) for _, add in added]
    check_locations(url, found)
    table = Table("Delta", url, MISSING)
    return [
        Listed(
            place.path,
            place.url,
            place.name,
            add.size,
            partitions=_partitions(url, metadata, add),
            version=version,
            table=table,
        )
        for place, (version, add) in zip(found, added, strict=True)
    ]


def _partitions(url: str, metadata: Metadata, add: Add) -> tuple[tuple[str, str | None], ...]:
    missing = [name for name in metadata.partition_columns if name not in add.partitions]
    if missing:
        raise DataError(
            f"the log of Delta table {shown(url)} has no value of partition column {missing[0]!r} "
            f"for {shown(add.path)}: it is damaged"
        )
    return tuple((name, add.partitions[name]) for name in metadata.partition_columns)
