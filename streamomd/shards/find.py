"""Find the shards of a job: the files that its sources list, in order."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from posixpath import dirname
from typing import TYPE_CHECKING, Any, NamedTuple

from streamomd.checkpoint.segments import Facts
from streamomd.core.errors import (
    DataError,
    InputNotFoundError,
    StreamomdError,
    UsageError,
    refuse_rows_in_memory,
)
from streamomd.core.phases import phase
from streamomd.core.run_events import same_receivers
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import (
    ICEBERG,
    is_delta,
    is_iceberg,
    is_kafka,
    location,
    protocol,
    shown,
    userinfo,
)
from streamomd.shards.filesystem import connect, is_local
from streamomd.shards.listed import Listed, TableFiles
from streamomd.shards.order import path_key
from streamomd.shards.paths import PathPattern, look_up
from streamomd.shards.read_footers import NONE_KNOWN, open_listed
from streamomd.shards.shard import SCHEMA, ShardSet
from streamomd.shards.table_finder import FILES_OR_TABLES, TableFinder, TableOptions
from streamomd.shards.text_cache import as_shards, is_converted

if TYPE_CHECKING:
    import fsspec


ORDERS = ("sorted", "given", "shuffled")
MOST_LABEL_BOUNDS = 256
MOST_TEXTS = 3
"""Sources listed in a message."""


class Listing(NamedTuple):
    """Files in order. versions: of each table among the sources, by URL, and under the URL with
    ``SCHEMA`` the id of the schema whose names its columns have. tables: each of them."""

    fs: fsspec.AbstractFileSystem
    files: list[Listed]
    versions: dict[str, int]
    tables: tuple[TableFiles, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines on skipped commits and changed schemas after the versions of ``since``."""
        return tuple(note for table in self.tables for note in table.notes)

    @property
    def lost(self) -> tuple[str, ...]:
        """Of each table with files that cannot be read, why, and what to do."""
        return tuple(table.lost for table in self.tables if table.lost)


def find(
    shards: str | Sequence[str],
    *,
    order: str = "sorted",
    storage_options: Mapping[str, Any] | None = None,
    tables: TableOptions = FILES_OR_TABLES,
    versions: Mapping[str, int] | None = None,
    allow_duplicates: bool = False,
    check: Callable[[Sequence[str]], None] | None = None,
    statistics: Collection[str] = (),
    label: str = "",
    known: Mapping[str, Facts] = NONE_KNOWN,
) -> ShardSet:
    """The shards that one string or several name: files, directories, globs, fsspec URLs.

    ``order`` is "sorted" (bytewise by path), "given" (sorted inside a directory or glob) or
    "shuffled" (sorted here; `order.permutation` permutes each epoch). tables, versions: see
    ``list_shards``. ``check`` gets the URLs of all files before the first one is opened, and may
    raise. ``statistics``: columns of which the footers' bounds are read. ``label``: a column of
    which they are read if there are at most 256 files, as it takes a millisecond for each.
    ``known``: what a ledger records of shards, by URL: of those that did not change no footer is
    read, unless ``statistics`` are.

    Raises `InputNotFoundError` for a name without files, `DataError` for files that are
    not shards or are damaged, `UsageError` for duplicates, mixed file systems and files of a
    table, and `StorageError` for a store that does not answer.
    """
    with phase("listing files"):
        found = list_shards(
            shards,
            order=order,
            storage_options=storage_options,
            tables=tables,
            versions=versions,
            check=check,
            ledger=known,
        )
    if not found.files:  # a directory or glob without any is an error already
        of = ", ".join(f"{shown(url)} in version {at}" for url, at in found.versions.items())
        raise DataError(f"no rows: no data file is in the table {of}; append rows, or name another")
    if not allow_duplicates:
        refuse_duplicates(found.fs, found.files)
    if check is not None:
        # The text that shards were converted from was checked before it was read.
        check([file.url for file in found.files if not is_converted(file.path)])
    if label and len(found.files) <= MOST_LABEL_BOUNDS:
        statistics = [*statistics, label]
    opened = open_listed(found.fs, found.files, statistics, NONE_KNOWN if statistics else known)
    return replace(opened, table_versions=found.versions)


@no_garbage_collection()  # of a million objects that all stay: it would double the time
def list_shards(
    shards: str | Sequence[str],
    *,
    order: str = "sorted",
    storage_options: Mapping[str, Any] | None = None,
    tables: TableOptions = FILES_OR_TABLES,
    versions: Mapping[str, int] | None = None,
    since: Mapping[str, int] | None = None,
    appends_only: bool = False,
    may_be_empty: bool = False,
    may_be_gone: Callable[[str], bool] = lambda url: False,
    check: Callable[[Sequence[str]], None] | None = None,
    ledger: Mapping[str, Facts] = NONE_KNOWN,
    with_new: bool = False,
) -> Listing:
    """The files that ``find`` would open, in order, and their file system. None is opened.

    A directory that is a Delta table is read as one; its files are in the order of its commits.
    versions: of tables, by URL, whatever ``tables`` says. since: of tables, by URL: only files that
    later commits appended; of other sources all files are listed. appends_only: see
    ``delta.appended``. may_be_empty: a directory or glob without shards is not an error, as after
    all were learned and deleted; a directory that does not exist is one. may_be_gone: whether a
    source of that URL, a file, is not an error if it does not exist. check: of the paths of text
    files, before they are converted. ledger, with_new: of Kafka topics, see ``list_topic``; with
    ``since``, ledger also has the learned files of Delta tables.
    """
    if order not in ORDERS:
        raise UsageError(f"order is one of {', '.join(ORDERS)}, not {order!r}")
    texts = as_shards(source_texts(shards), check, tables.csv)
    storage_options, versions, since = storage_options or {}, versions or {}, since or {}
    # A catalog knows where the metadata of an Iceberg table is now.
    places = [_location(text) for text in texts]
    fs = _common_file_system(places, _with_types(storage_options, texts, tables))
    # Listings that were cached earlier would hide files written since.
    fs.invalidate_cache()
    finder = TableFinder(fs)
    offsets, read = dict[str, int](), dict[str, TableFiles]()
    listed: list[tuple[bytes, Listed]] = []
    known = versions.keys() | since.keys()
    sources = [PathPattern(location(place), fs, may_be_empty) for place in places]
    _refuse_credentials(sources)
    if not is_local(fs):
        tables_of = [
            one for text, one in zip(texts, sources, strict=True)
            if not (
                tables.as_files or is_delta(text) or is_iceberg(text) or is_kafka(text)
                or one.url(one.path).rstrip("/") in known
            )
        ]  # fmt: skip
        _look_up(sources, finder, tables_of)
    for text, given in zip(texts, sources, strict=True):
        path, root = given.path.rstrip("/"), given.url(given.path).rstrip("/")
        if is_kafka(text):
            # Late: few runs read topics.
            from streamomd.shards.kafka.topic_files import list_topic

            ranges, starts = list_topic(
                fs, given.text, ledger, {**versions, **since}, with_new=with_new
            )
            offsets |= starts
            listed += [(path_key(f"{path}/"), file) for file in ranges]
            continue
        if is_iceberg(text):
            source = text if protocol(text) == ICEBERG else root
            read[source] = _iceberg(
                given, source, tables, versions, since, appends_only=appends_only
            )
            # Each version has a metadata file of its own: its place is the directory above.
            place = path_key(f"{dirname(dirname(path))}/")
            listed += [(place, file) for file in read[source].files]
            continue
        try:
            is_table = _is_table(text, given, finder, tables, known=root in known)
            files = [] if is_table else given.files()
        except InputNotFoundError:
            if not may_be_gone(root):
                raise
            continue
        if not is_table:
            if not tables.as_files:
                finder.listed.update(given.listed)
                finder.refuse(given.text, (dirname(file.path) for file in files), given.url)
            listed += [(path_key(file.path), file) for file in files]
            continue
        from streamomd.shards.delta.table import list_table  # late: few runs read tables

        read[root] = list_table(
            fs,
            path,
            root,
            tables,
            pinned=versions.get(root),
            since=since.get(root),
            appends_only=appends_only,
            learned={key for key, facts in ledger.items() if "skipped" not in facts},
        )
        listed += [(path_key(f"{path}/"), file) for file in read[root].files]
    _refuse_choice(tables, texts, [*offsets, *read])
    found = offsets | _versions(read)
    if order != "given":
        listed.sort(key=lambda one: (one[0], one[1].version))
    return Listing(fs, [file for _, file in listed], found, tuple(read.values()))


def _versions(tables: Mapping[str, TableFiles]) -> dict[str, int]:
    schemas = {
        f"{url}{SCHEMA}": one.schema for url, one in tables.items() if one.schema is not None
    }
    return {url: one.version for url, one in tables.items()} | schemas


def _with_types(
    options: Mapping[str, Any], texts: Sequence[str], tables: TableOptions
) -> Mapping[str, Any]:
    """Storage options; those of Kafka topics have the types of columns."""
    if not tables.types or not any(map(is_kafka, texts)):
        return options
    return {**options, "types": dict(tables.types)}


def _location(text: str) -> str:
    """A source, or the metadata file of one that names a table of a catalog."""
    if not is_iceberg(text):
        return text
    from streamomd.shards.iceberg.catalog import metadata_location  # late: few runs read tables

    return metadata_location(text)


def _iceberg(
    given: PathPattern,
    source: str,
    tables: TableOptions,
    versions: Mapping[str, int],
    since: Mapping[str, int],
    *,
    appends_only: bool,
) -> TableFiles:
    from streamomd.shards.iceberg.iceberg_table import list_table

    key = f"{source}{SCHEMA}"
    schemas = [known[key] for known in (versions, since, tables.known) if key in known]
    return list_table(
        given.fs,
        given.path,
        given.url(given.path),
        source,
        tables,
        pinned=versions.get(source),
        since=since.get(source),
        appends_only=appends_only,
        schema=schemas[0] if schemas else None,
    )


def _look_up(
    sources: Sequence[PathPattern], finder: TableFinder, perhaps: Sequence[PathPattern]
) -> None:
    """Ask a store for the sources, and for the tables that some of them may be in, at the same
    time. Errors are raised where the answers are used."""

    def tables() -> None:
        with suppress(StreamomdError):
            # What is in a directory itself its listing says, which is requested meanwhile.
            folders = [
                dirname(one.directory) if one.is_perhaps_directory else one.directory
                for one in perhaps
            ]
            finder.look_up(folders, sources[0].url)

    with ThreadPoolExecutor(1, "streamomd-tables", **same_receivers()) as pool:
        pool.submit(tables)
        look_up(sources, listing=perhaps)
    for one in perhaps:
        finder.listed.update(one.listed)


def _is_table(
    text: str, given: PathPattern, finder: TableFinder, tables: TableOptions, *, known: bool
) -> bool:
    """Whether a source is read as a Delta table: it is marked as one, began as one, or is one."""
    if not tables.as_files:
        marked = is_delta(text) or known
        kind = finder.kind(given.path, given.url) if not marked and given.is_directory else None
        if kind == "Iceberg":  # its files are in a directory of their own
            finder.refuse(given.text, [given.path.rstrip("/")], given.url)
        return marked or kind == "Delta"
    if is_delta(text):
        raise UsageError(
            f"{shown(text)} is read as a Delta table, and as_files reads files as they are: leave "
            "out one of delta+ and --as-files (data.as_files)"
        )
    return False


def _refuse_choice(tables: TableOptions, texts: Sequence[str], found: Sequence[str]) -> None:
    """Raise UsageError for the choice of a version that no source, or more than one, has."""
    if tables.version is not None and len(found) > 1:
        raise UsageError(
            f"version {tables.version} was given for {len(found)} tables, which have their own "
            f"versions: {', '.join(map(shown, found))}; as_of chooses one for each by its time"
        )
    if not found and (tables.version is not None or tables.as_of):
        raise UsageError(
            "version and as_of choose the version of a Delta or Iceberg table, but no source is "
            f"one: {', '.join(map(shown, texts[:MOST_TEXTS]))}"
        )


def source_texts(shards: str | Sequence[str]) -> list[str]:
    """The names of sources. Raises UsageError for rows in memory, and for what is not a name."""
    refuse_rows_in_memory(shards)
    given = [shards] if isinstance(shards, str | os.PathLike) else list(shards)
    texts = [os.fspath(text) for text in given]
    if not texts:
        raise UsageError("shards is empty: name at least one file, directory, glob or URL")
    for text in texts:
        if not isinstance(text, str) or not text or "\0" in text:
            raise UsageError(f"shards holds {text!r}, which names no file")
    return texts


def _common_file_system(texts: list[str], options: Mapping[str, Any]) -> fsspec.AbstractFileSystem:
    systems: dict[str, fsspec.AbstractFileSystem] = {}
    for text in texts:
        if (root := _root(text)) not in systems:
            systems[root] = connect(location(text), options)
    first, *others = systems.items()
    for root, fs in others:
        if fs != first[1]:
            raise UsageError(
                f"shards are in more than one file system ({first[0]} and {root}): "
                "copy them to one, or run one after the other with `model.start`"
            )
    return first[1]


def _root(text: str) -> str:
    scheme = protocol(text)
    host = shown(location(text)).split("://", 1)[-1].split("/", 1)[0]
    return f"{scheme}://{host}" if scheme else "the local disk"


def _refuse_credentials(sources: Sequence[PathPattern]) -> None:
    for given in sources:
        secret = userinfo(given.text)
        if secret and secret in given.path and not protocol(given.path):
            raise UsageError(
                f"{shown(given.text)} was given with credentials, which its file system does not "
                "take from a URL: use the environment or storage_options"
            )


def refuse_duplicates(fs: fsspec.AbstractFileSystem, listed: Iterable[Listed]) -> None:
    """Raises UsageError if a file is listed twice, by two sources or as a symbolic link."""
    resolve = _real_names() if is_local(fs) else str
    seen: dict[str, str] = {}
    for file in listed:
        key = resolve(file.path)
        if key in seen:
            raise UsageError(
                f"the same file is named twice, as {shown(seen[key])} and {shown(file.url)}: name "
                "it once; train.epochs reads rows again"
            )
        seen[key] = file.url


def _real_names() -> Callable[[str], str]:
    """As ``os.path.realpath``, for many files: it resolves each directory once."""
    folders: dict[str, str] = {}

    def real_name(path: str) -> str:
        folder = path.rpartition("/")[0] or "/"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return os.path.realpath(path)
        except OSError:  # it was removed since it was listed
            pass
        real = folders.get(folder)
        if real is None:
            real = folders[folder] = os.path.realpath(folder)
        return path if real == folder else f"{real}/{path.rpartition('/')[2]}"

    return real_name
