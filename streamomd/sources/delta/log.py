"""The log of a Delta table: its commits and checkpoints, by version."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from streamomd.core.errors import DataError, InputNotFoundError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import printable, shown
from streamomd.shards.filesystem import children, stat_entry
from streamomd.shards.formats.footer import read_shard
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.shards.shard_file import read_whole
from streamomd.sources.delta.actions import INVALID, Actions, damaged, parse_lines
from streamomd.sources.files.paths import DELTA_LOG

if TYPE_CHECKING:
    import fsspec

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

    fs: fsspec.AbstractFileSystem
    path: str
    url: str
    """The URL of the table."""
    commits: frozenset[int]
    checkpoints: dict[int, tuple[str, ...]]

    @classmethod
    def open(cls, fs: fsspec.AbstractFileSystem, root: str, url: str) -> Self:
        """List the log of a table. Raises InputNotFoundError if there is none."""
        path = posixpath.join(root, DELTA_LOG)
        try:
            names = [posixpath.basename(name) for name in children(fs, path, f"{url}/{DELTA_LOG}")]
        except InputNotFoundError:
            names = []
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
            if not kind.startswith("of ") or len(files) == int(kind[3:]):
                complete.setdefault(version, tuple(files))
    return complete
