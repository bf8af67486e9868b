"""Find the shards of a job: which source each URL is of, and the files that the sources list, in
order."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from streamomd.checkpoint.segments import Facts
from streamomd.core.errors import DataError, UsageError, refuse_rows_in_memory
from streamomd.core.installed import load_named
from streamomd.core.run_events import phase
from streamomd.core.startup import no_garbage_collection
from streamomd.core.urls import protocol, shown, userinfo
from streamomd.core.wording import SCHEMES
from streamomd.shards.filesystem import FileSystem, connect, is_local
from streamomd.shards.order import path_key
from streamomd.shards.read_footers import NONE_KNOWN, open_listed
from streamomd.shards.shard import Listed, ShardSet
from streamomd.sources.contract import ALL, SCHEMA, Request, Source, SourceFiles
from streamomd.sources.delta.delta_source import DeltaSource
from streamomd.sources.files.file_source import FileSource
from streamomd.sources.files.paths import PathPattern
from streamomd.sources.iceberg.iceberg_source import IcebergSource
from streamomd.sources.kafka.kafka_source import KafkaSource
from streamomd.sources.tables import FILES_OR_TABLES, TableOptions
from streamomd.sources.text.text_cache import as_shards, is_converted, text_notes

GROUP = "streamomd.sources"
FILES = FileSource()
BUILT_IN: tuple[Source, ...] = (KafkaSource(), IcebergSource(), DeltaSource())
"""Those that know their URLs; every other URL names files."""
CHECKED: list[Source] = []
"""Those that ``check_source`` checks now; they need not be installed."""
WITHOUT_FLAG = ("data.arrival", "data.csv.header", "data.csv.quotes")


def source_of(url: str) -> Source:
    """The source of a URL or path: a built-in one, one of an installed package, or files."""
    # A source under test may replace one that is installed.
    for source in (*CHECKED, *BUILT_IN):
        if source.takes(url):
            return source
    scheme = protocol(url)
    # The entry points of installed packages are read for schemes that no usual store has.
    if not scheme or scheme in SCHEMES:
        return FILES
    found: Source | None = load_named(GROUP, scheme)
    return FILES if found is None else found


def schemes() -> list[str]:
    """The schemes of built-in sources."""
    return [source.name for source in BUILT_IN if source.takes(f"{source.name}://")]


def by_source(urls: Iterable[str]) -> dict[Source, list[str]]:
    """The URLs of each source, in order."""
    found: dict[Source, list[str]] = {}
    for url in urls:
        found.setdefault(source_of(url), []).append(url)
    return found


def options_for(
    urls: Iterable[str], options: Mapping[str, Any], *, recorded: bool = False
) -> dict[str, Any]:
    """Storage options for URLs that the user gave, or that a checkpoint ``recorded``."""
    for source, own in by_source(urls).items():
        options = source.options(own, options, recorded=recorded)
    return dict(options)


def refuse_recorded(urls: Iterable[str], options: Mapping[str, Any]) -> None:
    """Raise UsageError for URLs that only a checkpoint names and that may not be opened with these
    options."""
    for source, own in by_source(urls).items():
        source.refuse_recorded(own, options)


def read_options(
    urls: Iterable[str], options: Mapping[str, Any], types: Mapping[str, str]
) -> Mapping[str, Any]:
    """Storage options as a reader of the URLs needs them; types: of columns."""
    for source in by_source(urls):
        options = source.read_options(options, types)
    return options


def refuse_without_effect(shards: Sequence[str], keys: Collection[str]) -> None:
    """Raise UsageError that names all of these dotted keys which have no effect, if one source has
    all of the shards."""
    if not shards:
        return
    source = source_of(shards[0])
    found = [key for key in source.without_effect if key in keys]
    if found and all(map(source.takes, shards)):
        raise UsageError(
            f"{shown(shards[0])} is {source.title}, and {source.reason}. Leave out what has no "
            f"effect on it: {', '.join(map(_with_flag, found))}"
        )


def describe_position(position: Mapping[str, int]) -> list[str]:
    """A line on each table, in the version that is read."""
    lines = [source_of(url).describe(url, number) for url, number in position.items()]
    return [line for line in lines if line]


def _with_flag(key: str) -> str:
    flag = key.rpartition(".")[2].replace("_", "-").replace("types", "type")
    return key if key in WITHOUT_FLAG else f"{key} (--{flag})"


ORDERS = ("sorted", "given", "shuffled")
MOST_LABEL_BOUNDS = 256
MOST_TEXTS = 3
"""Sources listed in a message."""


class Listing(NamedTuple):
    """Files in order. versions: the position of each source that records one, and of a table the
    id of the schema whose names its columns have. notes: lines on skipped commits and changed
    schemas. lost: of each table with files that cannot be read, why, and what to do."""

    fs: FileSystem
    files: list[Listed]
    versions: dict[str, int]
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


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
    ``Request``. ``check`` gets the URLs of all files before the first one is opened, and may
    raise. ``statistics``: columns of which the footers' bounds are read. ``label``: a column of
    which they are read if there are at most 256 files, as it takes a millisecond for each.
    ``known``: what a ledger records of shards, by URL: of those that did not change no footer is
    read, unless ``statistics`` are.

    Raises `InputNotFoundError` for a name without files, `DataError` for files that are
    not shards or are damaged, `UsageError` for duplicates, mixed file systems and files of a
    table, and `StorageError` for a store that does not answer.
    """
    with phase("listing files"):
        request = Request(
            order=order,
            storage_options=storage_options or {},
            tables=tables,
            versions=versions or {},
            check=check,
            ledger=known,
        )
        listing = list_shards(shards, request)
    if not listing.files:  # a directory or glob without any is an error already
        of = ", ".join(f"{shown(url)} in version {at}" for url, at in listing.versions.items())
        raise DataError(f"no rows: no data file is in the table {of}; append rows, or name another")
    if not allow_duplicates:
        refuse_duplicates(listing.fs, listing.files)
    if check is not None:
        # The text that shards were converted from was checked before it was read.
        check([file.url for file in listing.files if not is_converted(file.path)])
    if label and len(listing.files) <= MOST_LABEL_BOUNDS:
        statistics = [*statistics, label]
    opened = open_listed(listing.fs, listing.files, statistics, NONE_KNOWN if statistics else known)
    return replace(opened, table_versions=listing.versions)


@no_garbage_collection()  # of a million objects that all stay: it would double the time
def list_shards(shards: str | Sequence[str], request: Request = ALL) -> Listing:
    """The files that ``find`` would open, in order, and their file system. None is opened."""
    if request.order not in ORDERS:
        raise UsageError(f"order is one of {', '.join(ORDERS)}, not {request.order!r}")
    tables = request.tables
    # Text becomes Parquet in the cache here: from now on all sources list shards.
    texts = as_shards(source_texts(shards), request)
    sources = by_source(texts)
    # The file system is connected with these.
    located = {url: source.locate(url) for source, urls in sources.items() for url in urls}
    options: Mapping[str, Any] = request.storage_options
    for source in sources:
        options = source.read_options(options, tables.types)
    fs = _common_file_system([located[text] for text in texts], options)
    # Listings that were cached earlier would hide files written since.
    fs.invalidate_cache()
    _refuse_credentials(fs, located.values())
    request = replace(request, located=located)
    listings: dict[str, SourceFiles] = {}
    for source, urls in sources.items():
        listings |= zip(urls, source.list_files(fs, urls, request), strict=True)
    listed: list[tuple[bytes, Listed]] = []
    versions: dict[str, int] = {}
    for text in texts:
        files, place, position, *_ = listings[text]
        at = None if place is None else path_key(place)
        listed += [(path_key(file.path) if at is None else at, file) for file in files]
        versions |= position
    # After the listing, which shows which URLs are tables.
    _refuse_choice(tables, texts, versions)
    if request.order != "given":
        # By version within a place: rows of a table stay in the order in which they were committed.
        listed.sort(key=lambda one: (one[0], one[1].version))
    return Listing(
        fs,
        [file for _, file in listed],
        versions,
        tuple(note for one in listings.values() for note in one.notes),
        tuple(one.lost for one in listings.values() if one.lost),
    )


def _refuse_choice(tables: TableOptions, texts: Sequence[str], versions: Mapping[str, int]) -> None:
    """Raise UsageError for the choice of a version that no source, or more than one, has."""
    found = [url for url in versions if not url.endswith(SCHEMA)]
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


def describe_sources(shards: ShardSet, text_columns: Sequence[str] = ()) -> list[str]:
    """A line for each table among the sources, and on text that was converted. text_columns: are
    text to a model."""
    tables = describe_position(shards.table_versions)
    return tables + text_notes([shard.path for shard in shards], text_columns)


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


def _common_file_system(texts: list[str], options: Mapping[str, Any]) -> FileSystem:
    systems: dict[str, FileSystem] = {}
    for text in texts:
        if (root := _root(text)) not in systems:
            systems[root] = connect(text, options)
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
    host = shown(text).split("://", 1)[-1].split("/", 1)[0]
    return f"{scheme}://{host}" if scheme else "the local disk"


def _refuse_credentials(fs: FileSystem, urls: Iterable[str]) -> None:
    for url in urls:
        secret = userinfo(url)
        if not secret:
            continue
        path = PathPattern(url, fs).path
        # A file system that took the credentials out of the URL has none of them in its paths.
        if secret in path and not protocol(path):
            raise UsageError(
                f"{shown(url)} was given with credentials, which its file system does not "
                "take from a URL: use the environment or storage_options"
            )


def refuse_duplicates(fs: FileSystem, listed: Iterable[Listed]) -> None:
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
    """Returns an ``os.path.realpath`` for many files, which resolves each directory once."""
    folders: dict[str, str] = {}

    def real_name(path: str) -> str:
        folder = path.rpartition("/")[0] or "/"
        try:
            # Of a million files few are links: the others need no realpath of their own.
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return os.path.realpath(path)
        except OSError:  # it was removed since it was listed
            pass
        real = folders.get(folder)
        if real is None:
            real = folders[folder] = os.path.realpath(folder)
        return path if real == folder else f"{real}/{path.rpartition('/')[2]}"

    return real_name
