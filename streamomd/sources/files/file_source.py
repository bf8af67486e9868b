"""Files, directories and globs as a source; directories that are tables are listed as such.

A file belongs to a table if its directory, or one above it, holds the table's log. Files of a table
include deleted and rewritten rows: which of them hold the current ones is in the log alone.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from posixpath import dirname
from typing import Any, Literal

from streamomd.core.errors import InputNotFoundError, StreamomdError, UsageError
from streamomd.core.run_events import same_receivers
from streamomd.core.urls import location, shown
from streamomd.shards.filesystem import CONNECTIONS, FileSystem, is_local
from streamomd.shards.list_files import children, is_directory
from streamomd.sources.contract import Request, Source, SourceFiles
from streamomd.sources.delta.delta_source import describe_version, list_root
from streamomd.sources.files.paths import (
    DELTA_LOG,
    ICEBERG_METADATA,
    TABLE_DIRECTORIES,
    PathPattern,
    look_up,
)


class FileSource(Source):
    """Names on a disk, in a store or behind http: what no other source takes."""

    name = "file"

    def takes(self, url: str) -> bool:
        """See ``Source``."""
        return True

    def list_files(self, fs: Any, urls: Sequence[str], request: Request) -> Sequence[SourceFiles]:
        """See ``Source``."""
        from streamomd.sources.text.text_cache import list_text

        return [*map(list_text, list_names(fs, urls, request), urls)]

    def watched(self, url: str) -> str:
        """See ``Source``."""
        return location(url)

    def place_of(self, url: str, path: str, row: int) -> str:
        """The file and line, where the shard was made of text."""
        from streamomd.sources.text.text_cache import place_in_text

        return place_in_text(path, row)

    def origin(self, path: str) -> str:
        """The text that a shard was made of."""
        from streamomd.sources.text.text_cache import text_of

        return text_of(path)

    def describe(self, url: str, position: int) -> str:
        """The version of a directory that is a table: files have none."""
        return describe_version(url, position)


UrlOf = Callable[[str], str]
"""The URL of a path of the file system."""
Kind = Literal["Delta", "Iceberg"]
MOST_TABLES = 3
"""Tables listed of a source that contains several."""


@dataclass(frozen=True)
class TableFinder:
    """Looks for tables in a file system; what it found of a directory is not looked up again.

    listed: of directories that were listed, which of ``TABLE_DIRECTORIES`` are in them.
    """

    fs: FileSystem
    listed: dict[str, set[str]] = field(default_factory=dict)
    _kinds: dict[str, Kind | None] = field(default_factory=dict)
    _tables: dict[str, tuple[Kind, str] | None] = field(default_factory=dict)

    def kind(self, path: str, url_of: UrlOf) -> Kind | None:
        """What a directory is the root of."""
        path = path.rstrip("/") or path
        if path not in self._kinds:
            if is_local(self.fs) or path in self.listed:
                # What a listing has shown already is not asked for again.
                names = self.listed.get(path, TABLE_DIRECTORIES)
                inside = {name for name in names if self._has(path, name, url_of)}
                self._kinds[path] = self._kind(path, inside, url_of)
            else:
                self.look_up([path], url_of)
        return self._kinds[path]

    def look_up(self, folders: Iterable[str], url_of: UrlOf) -> None:
        """Look up directories of a store and those above at the same time: one after another, each
        would be some requests that wait for their answers."""
        paths: dict[str, None] = {}
        for folder in folders:
            while folder and folder not in paths and folder not in self._kinds:
                paths[folder] = None
                folder = posixpath.dirname(folder)  # noqa: PLW2901 (the next one above)
        asked = [(path, name) for path in paths for name in TABLE_DIRECTORIES]
        if not asked:
            return
        threads = min(len(asked), CONNECTIONS)
        with ThreadPoolExecutor(threads, "streamomd-tables", **same_receivers()) as pool:
            answers = pool.map(lambda one: self._has(one[0], one[1], url_of), asked)
            inside = {one for one, answer in zip(asked, answers, strict=True) if answer}
        for path in paths:
            names = {name for name in TABLE_DIRECTORIES if (path, name) in inside}
            self._kinds[path] = self._kind(path, names, url_of)

    def trust(self, folders: Iterable[str]) -> None:
        """Do not look up the directories above these: none is a table."""
        for folder in folders:
            while folder:
                folder = posixpath.dirname(folder)  # noqa: PLW2901 (the next one above)
                self._kinds[folder] = None

    def _has(self, path: str, name: str, url_of: UrlOf) -> bool:
        inside = posixpath.join(path, name)
        return self._has_directories and is_directory(self.fs, inside, url_of(inside))

    def _kind(self, path: str, inside: Collection[str], url_of: UrlOf) -> Kind | None:
        """Returns the kind of table that a directory with some of ``TABLE_DIRECTORIES`` is."""
        if DELTA_LOG in inside:
            return "Delta"
        if ICEBERG_METADATA in inside:
            metadata = posixpath.join(path, ICEBERG_METADATA)
            # Many directories are named "metadata": only an Iceberg table has such files there.
            names = children(self.fs, metadata, url_of(metadata))
            if any(name.endswith(".metadata.json") for name in names):
                return "Iceberg"
        return None

    def above(self, folder: str, url_of: UrlOf) -> tuple[Kind, str] | None:
        """The nearest table that a directory is in, or the root of: its kind, and its root."""
        passed: list[str] = []
        while folder and folder not in self._tables:
            passed.append(folder)
            kind, parent = self.kind(folder, url_of), posixpath.dirname(folder)
            if kind or parent == folder:
                self._tables[folder] = (kind, folder) if kind else None
            else:
                folder = parent
        found = self._tables.get(folder)
        # Files of one source share the directories above them.
        self._tables.update(dict.fromkeys(passed, found))
        return found

    def refuse(self, text: str, folders: Iterable[str], url_of: UrlOf) -> None:
        """Raise UsageError if a directory with files to read is in a table; text: what the user
        gave for them."""
        folders = dict.fromkeys(folders)
        if is_local(self.fs):  # a link may lead into a table
            folders |= dict.fromkeys(map(os.path.realpath, folders))
        found = dict.fromkeys(table for folder in folders if (table := self.above(folder, url_of)))
        if found:
            raise UsageError(_refusal(text, [(kind, url_of(path)) for kind, path in found]))

    @property
    def _has_directories(self) -> bool:
        # A web server answers for any name.
        protocols = (self.fs.protocol,) if isinstance(self.fs.protocol, str) else self.fs.protocol
        return is_local(self.fs) or not {"http", "https"} & {*protocols}


def _refusal(text: str, tables: list[tuple[Kind, str]]) -> str:
    lines = [
        f"{shown(text)} names files of the {kind} table {shown(url)}"
        for kind, url in tables[:MOST_TABLES]
    ]
    lines[-1] += f", and of {len(tables) - MOST_TABLES} more" * (len(tables) > MOST_TABLES)
    deltas = [url for kind, url in tables[:MOST_TABLES] if kind == "Delta"]
    remedies = [f"name the table, {' '.join(f'delta+{shown(url)}' for url in deltas)}"] * bool(
        deltas
    )
    if len(deltas) < len(tables[:MOST_TABLES]):
        remedies.append(
            "name the table by its catalog, iceberg://catalog/namespace.table, or by its newest "
            "metadata file"
        )
    return (
        f"{'; '.join(lines)}, which may hold deleted and rewritten rows: {'; '.join(remedies)}. To "
        "read the files as they are, pass --as-files (data.as_files = true)"
    )


def list_names(fs: FileSystem, urls: Sequence[str], request: Request) -> list[SourceFiles]:
    """The files of each name. A directory that is a Delta table, or that a run learned as one, is
    listed as one unless ``request.tables`` say otherwise.

    Raises InputNotFoundError for a name without files, DataError for files that are not shards, and
    UsageError for files of a table.
    """
    finder = TableFinder(fs)
    # An update does not ask again for what the run found when it began: whether its sources are
    # objects, and whether a table is above them, which is two requests for each directory.
    again = request.with_new and not is_local(fs)
    names = [
        PathPattern(url, fs, request.may_be_empty, again and not request.may_be_gone(url))
        for url in urls
    ]
    if again:
        finder.trust(one.directory for one in names)
    known = request.versions.keys() | request.since.keys()
    if not is_local(fs):
        perhaps = [
            one
            for one in names
            if not (request.tables.as_files or one.url(one.path).rstrip("/") in known)
        ]
        _look_up(names, finder, perhaps, tables=not again)
    listings = []
    for name in names:
        root = name.url(name.path).rstrip("/")
        try:
            listings.append(_list(name, root, finder, request, known=root in known))
        except InputNotFoundError:
            if not request.may_be_gone(root):
                raise
            listings.append(SourceFiles(()))
    return listings


def _list(
    name: PathPattern, root: str, finder: TableFinder, request: Request, *, known: bool
) -> SourceFiles:
    if request.tables.as_files:
        return SourceFiles(name.files())
    if known:
        return list_root(name.fs, name.path.rstrip("/"), root, request)
    kind = finder.kind(name.path, name.url) if name.is_directory else None
    if kind == "Iceberg":  # its files are in a directory of their own
        finder.refuse(name.text, [name.path.rstrip("/")], name.url)
    if kind == "Delta":
        return list_root(name.fs, name.path.rstrip("/"), root, request)
    files = name.files()
    finder.listed.update(name.listed)
    finder.refuse(name.text, (dirname(file.path) for file in files), name.url)
    return SourceFiles(files)


def _look_up(
    names: Sequence[PathPattern],
    finder: TableFinder,
    perhaps: Sequence[PathPattern],
    *,
    tables: bool,
) -> None:
    """Ask a store for the names, and for the ``tables`` that some of them may be in, at the same
    time. Errors are raised where the answers are used."""

    def look() -> None:
        if not tables:
            return
        with suppress(StreamomdError):
            # What is in a directory itself its listing says, which is requested meanwhile.
            folders = [
                dirname(one.directory) if one.is_perhaps_directory else one.directory
                for one in perhaps
            ]
            finder.look_up(folders, names[0].url)

    with ThreadPoolExecutor(1, "streamomd-tables", **same_receivers()) as pool:
        pool.submit(look)
        look_up(names, listing=perhaps)
    for one in perhaps:
        finder.listed.update(one.listed)
