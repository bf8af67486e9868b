"""Resolve the user's names to exact file names: a file, a directory or a glob."""

from __future__ import annotations

import glob
import itertools
import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial

from streamomd.core.errors import DataError, InputNotFoundError, StreamomdError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import (
    absolute,
    local_name,
    protocol,
    redact,
    shown,
    typed,
    without_userinfo,
)
from streamomd.core.wording import counted, listed, similar_path
from streamomd.shards.filesystem import (
    CONNECTIONS,
    PAGE,
    Entry,
    FileSystem,
    is_local,
    stat_entry,
    store_errors,
)
from streamomd.shards.formats.footer import SUFFIXES
from streamomd.shards.list_files import entries, is_directory, list_each, matches, tree_pages
from streamomd.shards.order import path_key
from streamomd.shards.shard import Listed
from streamomd.sources.tables import ending, text_format

DELTA_LOG, ICEBERG_METADATA = "_delta_log", "metadata"
TABLE_DIRECTORIES = (DELTA_LOG, ICEBERG_METADATA)
MOST_LISTED = 10
MOST_FOREIGN = 3
"""Files listed of a directory without shards."""
SIDE_SUFFIXES = (".crc", "._copying_", "_$folder$")
"""Checksums, files that Hadoop is still copying, and its markers of directories in a bucket."""
_WANTED = ", ".join(f"*{suffix}" for suffix in (*SUFFIXES, ".csv", ".jsonl"))


@dataclass(frozen=True)
class PathPattern:
    """One string of the user's, in the file system it names.

    may_be_empty: an existing directory or glob without files is not an error. is_no_file: a run
    learned what it names as a directory or glob, so a store is not asked for an object. listed: of
    each directory that was listed, which names a table's own directories have are in it. _started:
    the listing of the directory of this name, whose first names were requested; _below: what it
    has, if that was listed with all below it.
    """

    text: str
    fs: FileSystem
    may_be_empty: bool = False
    is_no_file: bool = False
    listed: dict[str, set[str]] = field(default_factory=dict)
    _started: list[Iterator[Entry]] = field(default_factory=list)
    _below: list[Entry] = field(default_factory=list)

    @cached_property
    def path(self) -> str:
        """The exact name it stands for inside the file system."""
        if is_local(self.fs):
            return absolute(self.text)
        path = str(self.fs._strip_protocol(self.text))
        # memory:// leaves the slash out where it sees "::" in a name.
        rootless = protocol(self.text) == "memory" and "::" in path
        return "/" + path.lstrip("/") if rootless else path

    def url(self, path: str) -> str:
        """The URL of a path that was found by way of this string."""
        if self._is_local:
            return path
        return redact(path) if protocol(path) else self._root + path

    @cached_property
    def _is_local(self) -> bool:
        return is_local(self.fs)

    @cached_property
    def _root(self) -> str:
        """What comes before a path: some file systems omit the host from their paths."""
        text = without_userinfo(self.text).rstrip("/")
        if self.path and text.endswith(self.path):
            return text[: -len(self.path)]
        return f"{protocol(self.text)}://"

    @property
    def directory(self) -> str:
        """The directory that its files are in or below, as far as its name says."""
        path = fixed_directory(self.path) if glob.has_magic(self.path) else self.path.rstrip("/")
        return posixpath.dirname(path) if is_shard_name(path) else path

    @property
    def is_marked_directory(self) -> bool:
        """Whether the name says that it is a directory of a store."""
        return (self.is_no_file or self.text.endswith("/")) and self.is_perhaps_directory

    @property
    def is_known_glob(self) -> bool:
        """Whether it is a glob, however objects are named."""
        return self.is_no_file and glob.has_magic(self.path)

    @property
    def is_perhaps_directory(self) -> bool:
        """Whether it is listed before it is known to be a directory: its name is not that of a file
        or a glob, and of a web server only a page would be read."""
        name = self.path.rstrip("/")
        is_file = is_shard_name(name) and not self.text.endswith("/")
        return not (is_file or text_format(name) or glob.has_magic(name) or self._is_web)

    @property
    def _is_web(self) -> bool:
        return protocol(self.text) in ("http", "https")

    def begin_listing(self) -> bool:
        """Request the names of the directory, or the first, whose listing continues there; False if
        it has none, or does not exist."""
        with suppress(StreamomdError):
            self._below.extend(self._tree(self.path, to_log=True))
            if self._below or self.listed:
                return True
            # A page shows whether it is a directory; the rest is listed where it is used.
            found = self._inside(self.path)
            names = [*itertools.islice(found, PAGE)]
            if names:
                self._started.append(itertools.chain(names, found))
        return bool(self._started)

    @property
    def is_directory(self) -> bool:
        """Whether a directory has exactly this name."""
        if self.is_known_glob:
            return False
        if not self._is_local:
            with suppress(StreamomdError):  # asked again, it decides whether that is one
                return self._entry.kind == "directory"
        return is_directory(self.fs, self.path, self.text)

    @cached_property
    def _entry(self) -> Entry:
        return stat_entry(self.fs, self.path, self.text)

    def files(self) -> list[Listed]:
        """Files, sorted bytewise by path. An existing name wins over its meaning as a glob."""
        if self.is_known_glob:
            return self._glob()
        try:
            entry = self._entry
        except InputNotFoundError:
            return self._glob()
        if entry.kind == "directory":
            return self._sorted(self._directory(self.path), self.path.rstrip("/") + "/")
        return [self._listed(entry, posixpath.dirname(self.path) + "/")]

    def _listed(self, entry: Entry, source: str) -> Listed:
        path, name = entry.path, entry.path.removeprefix(source)
        return Listed(path, self.url(path), name, entry.size, entry.mtime_ns, entry.etag)

    def _glob(self) -> list[Listed]:
        pattern = absolute(self.text) if is_local(self.fs) else self.path
        # What follows "?" in http:// is a query.
        pattern = redact(pattern) if protocol(pattern) else pattern
        if not glob.has_magic(pattern):
            hint = similar_path(self.text) if is_local(self.fs) else ""
            raise InputNotFoundError(f"{shown(self.text)}: no such file or directory{hint}")
        fixed, first = len(fixed_directory(pattern)), posixpath.basename(pattern)[:1]
        # As in a shell, wildcards find no hidden names.
        found = [one for one in self._matches() if not _is_hidden_below(one.path, fixed, first)]
        if not found:
            self._require_directory(fixed_directory(pattern))
        files: list[Entry] = []
        for entry in found:
            if entry.kind != "directory":
                files.append(entry)
            elif "**" not in pattern:
                files += self._directory(entry.path)
        return self._sorted(files, fixed_directory(pattern) + "/")

    def _require_directory(self, path: str) -> None:
        """Raises InputNotFoundError if the fixed part of a glob does not exist."""
        if is_local(self.fs) and stat_entry(self.fs, path or "/", self.text).kind != "directory":
            raise InputNotFoundError(f"{shown(self.url(path))} is not a directory")

    def _matches(self) -> Iterable[Entry]:
        if not self._is_local:
            return self._store_matches()
        with store_errors(self.text):
            # Relative to the current directory: its own name may hold glob characters.
            found = [absolute(path) for path in glob.glob(local_name(self.text), recursive=True)]
        return (stat_entry(self.fs, path, self.url(path)) for path in found)

    def _store_matches(self) -> Iterator[Entry]:
        folders: dict[str, set[str]] = {}
        yield from matches(self.fs, self.path, self.text, folders)
        self.listed.update({one: {*names} & {*TABLE_DIRECTORIES} for one, names in folders.items()})

    def _directory(self, path: str) -> list[Entry]:
        """What is in a directory, and in those inside it that are columns or shards themselves."""
        if path == self.path and self._below:
            return self._below
        if not self._started and (listed := self._tree(path)):
            return listed
        files: list[Entry] = []
        above: dict[str, tuple[str, ...]] = {path: ()}
        while above:
            below: dict[str, tuple[str, ...]] = {}
            for folder, inside in zip(
                above, list_each(self.fs, [*above], self._listing), strict=True
            ):
                # By its real name: a link to a directory above would be followed without end.
                real = os.path.realpath(folder) if self._is_local else folder
                if real in above[folder]:
                    raise DataError(
                        f"{shown(self.url(folder))} is a loop of symbolic links: remove it"
                    )
                for entry in inside:
                    if entry.kind != "directory":
                        files.append(entry)
                    elif is_shard_name(entry.path) or "=" in posixpath.basename(entry.path):
                        below[entry.path] = (*above[folder], real)
                    else:
                        # Not the directory of a partition: the message on foreign files names it.
                        files.append(entry._replace(path=entry.path + "/"))
            above = below
        return files

    def _tree(self, path: str, *, to_log: bool = False) -> list[Entry]:
        """What ``_directory`` returns, in one request for 1,000 objects below; nothing of a store
        without such listings, or where they end early. to_log: end where the log of a table is.
        """
        root = path.rstrip("/")
        files: dict[str, Entry] = {}
        listed: dict[str, set[str]] = {root: set()}
        for page in tree_pages(self.fs, path, self.url(path), is_shard_name):
            if not page:
                return []
            for entry in page:
                folder = root
                *above, name = entry.path[len(root) + 1 :].split("/")
                for part in above:
                    if part in TABLE_DIRECTORIES:
                        listed[folder].add(part)
                    folder = f"{folder}/{part}"
                    if is_hidden(part):
                        break
                    if not (is_shard_name(part) or "=" in part):
                        files.setdefault(f"{folder}/", Entry(f"{folder}/", "directory"))
                        break
                    listed.setdefault(folder, set())
                else:  # an object whose name ends in a slash stands for its directory
                    if name and not is_hidden(name):
                        files[entry.path] = entry
            # The log lists a table's files; those below may be millions.
            if to_log and DELTA_LOG in listed[root]:
                files.clear()
                break
        else:
            if not files:
                return []
        self.listed.update(listed)
        return [*files.values()]

    def _listing(self, folder: str) -> Iterator[Entry]:
        return (
            self._started.pop() if self._started and folder == self.path else self._inside(folder)
        )

    def _inside(self, folder: str) -> Iterator[Entry]:
        found: set[str] = set()

        def wanted(name: str) -> bool:
            if name in TABLE_DIRECTORIES:
                found.add(name)
            return not is_hidden(name)

        yield from entries(self.fs, folder, self.url(folder), wanted)
        self.listed[folder.rstrip("/")] = found

    def _sorted(self, entries: Iterable[Entry], source: str) -> list[Listed]:
        """Returns the files of entries in order; raises an error if they are not all shards."""
        # By path: overlapping patterns may list a file twice.
        by_path = {entry.path: entry for entry in entries}
        files = [self._listed(by_path[path], source) for path in sorted(by_path, key=path_key)]
        foreign = [file.url for file in files if not is_shard_name(file.path)]
        if not files:
            if self.may_be_empty:
                return []
            raise InputNotFoundError(f"{shown(self.text)} contains no data file ({_WANTED})")
        if len(foreign) == len(files):
            if all(file.path.endswith("/") for file in files):
                below = typed(f"{self.text.rstrip('/')}/*/*.parquet")
                raise InputNotFoundError(
                    f"{shown(self.text)} contains no data file ({_WANTED}), only directories "
                    f"({_listing(foreign, MOST_FOREIGN)}): name one, or what is in them as {below}"
                )
            raise InputNotFoundError(
                f"{shown(self.text)} contains no data file ({_WANTED}), only "
                f"{_listing(foreign, MOST_FOREIGN)}; convert text with `streamomd convert`"
            )
        texts = [url for url in foreign if text_format(url)]
        if foreign and len(texts) == len(foreign):
            shards = [file.url for file in files if is_shard_name(file.path)]
            kinds = [f"{typed(posixpath.dirname(one))}/*{ending(one)}"
                     for one in (shards[0], texts[0])]  # fmt: skip
            raise DataError(
                f"{shown(self.text)} contains {counted(len(texts), 'text file')} "
                f"({_listing(texts, MOST_FOREIGN)}) and {counted(len(shards), 'shard')} "
                f"({_listing(shards, MOST_FOREIGN)}), which may have the same rows: name one kind, "
                f"'{kinds[0]}' or '{kinds[1]}'; for both, `streamomd convert {kinds[1]} "
                f"-o converted/`, and name '{kinds[0]}' and converted/"
            )
        if foreign:
            raise DataError(
                f"{shown(self.text)} also contains files that are not shards: {_listing(foreign)}; "
                f"move them, or name the shards; they end in {', '.join(SUFFIXES)}"
            )
        return files


def look_up(sources: Sequence[PathPattern], listing: Collection[PathPattern] = ()) -> None:
    """Ask a store for the names of several sources at the same time, each of which then knows its
    own; errors are raised when it is asked. listing: those of which a directory is listed."""
    listed = {id(one) for one in listing}

    def entry(source: PathPattern) -> None:
        if source.is_known_glob:
            return
        if source.is_marked_directory and id(source) in listed and source.begin_listing():
            source.__dict__["_entry"] = Entry(source.path, "directory")
            return
        with suppress(StreamomdError):
            # Not through the property, whose lock is that of all sources in Python 3.11.
            entry_of_name = stat_entry(source.fs, source.path, source.text)
            source.__dict__["_entry"] = entry_of_name

    jobs: list[Callable[[], object]] = [partial(entry, source) for source in sources]
    jobs += [
        source.begin_listing
        for source in listing
        if source.is_perhaps_directory and not source.is_marked_directory
    ]
    # A thread would cost more than it saves.
    if len(jobs) == 1:
        jobs[0]()
        return
    threads = min(len(jobs), CONNECTIONS)
    with ThreadPoolExecutor(threads, "streamomd-names", **same_receivers()) as pool:
        for first in range(0, len(jobs), PAGE):
            list(pool.map(lambda job: job(), jobs[first : first + PAGE]))


def fixed_directory(pattern: str) -> str:
    """The directory above the first part of a glob that has a wildcard."""
    return glob.escape(pattern).split("[", 1)[0].rsplit("/", 1)[0]


def _is_hidden_below(path: str, fixed: int, first: str) -> bool:
    """Whether a part of a path after its fixed letters is hidden and begins with another letter
    than the pattern's last part."""
    return any(is_hidden(part) for part in path[fixed:].split("/") if part[:1] != first)


def is_hidden(name: str) -> bool:
    """Whether a name is not one of data to the programs that write Parquet directories.

    As in Spark, a partition column may start with an underscore.

    >>> [is_hidden(name) for name in ("_SUCCESS", ".a.crc", "k=1_$folder$", "_k=1")]
    [True, True, True, False]
    """
    reserved = name.startswith("_") and "=" not in name
    return reserved or name.startswith(".") or name.lower().endswith(SIDE_SUFFIXES)


def is_shard_name(path: str) -> bool:
    """Whether the name alone says it is a shard, or a directory of them."""
    return path.lower().endswith(SUFFIXES)


def _listing(urls: list[str], most: int = MOST_LISTED) -> str:
    return listed([*map(shown, urls)], most)
