"""List the files of names, directories and globs; tables among them are found."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from posixpath import dirname
from typing import TYPE_CHECKING

from streamomd.core.errors import InputNotFoundError, StreamomdError
from streamomd.core.run_events import same_receivers
from streamomd.shards.filesystem import is_local
from streamomd.sources.contract import Request, SourceFiles
from streamomd.sources.delta.delta_source import list_root
from streamomd.sources.files.paths import PathPattern, look_up
from streamomd.sources.files.table_finder import TableFinder

if TYPE_CHECKING:
    import fsspec


def list_names(
    fs: fsspec.AbstractFileSystem, urls: Sequence[str], request: Request
) -> list[SourceFiles]:
    """The files of each name. A directory that is a Delta table, or that a run learned as one, is
    listed as one unless ``request.tables`` say otherwise.

    Raises InputNotFoundError for a name without files, DataError for files that are not shards, and
    UsageError for files of a table.
    """
    finder = TableFinder(fs)
    names = [PathPattern(url, fs, request.may_be_empty) for url in urls]
    known = request.versions.keys() | request.since.keys()
    if not is_local(fs):
        perhaps = [
            one
            for one in names
            if not (request.tables.as_files or one.url(one.path).rstrip("/") in known)
        ]
        _look_up(names, finder, perhaps)
    found = []
    for name in names:
        root = name.url(name.path).rstrip("/")
        try:
            found.append(_list(name, root, finder, request, known=root in known))
        except InputNotFoundError:
            if not request.may_be_gone(root):
                raise
            found.append(SourceFiles(()))
    return found


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
    names: Sequence[PathPattern], finder: TableFinder, perhaps: Sequence[PathPattern]
) -> None:
    """Ask a store for the names, and for the tables that some of them may be in, at the same time.
    Errors are raised where the answers are used."""

    def tables() -> None:
        with suppress(StreamomdError):
            # What is in a directory itself its listing says, which is requested meanwhile.
            folders = [
                dirname(one.directory) if one.is_perhaps_directory else one.directory
                for one in perhaps
            ]
            finder.look_up(folders, names[0].url)

    with ThreadPoolExecutor(1, "streamomd-tables", **same_receivers()) as pool:
        pool.submit(tables)
        look_up(names, listing=perhaps)
    for one in perhaps:
        finder.listed.update(one.listed)
