"""The file system operations used here: connect, stat, list, open."""

from __future__ import annotations

import datetime
import errno
import math
import os
import posixpath
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    InputNotFoundError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.installed import sources
from streamomd.core.machine_errors import PROGRAMMING, store_error
from streamomd.core.run_events import count_request, same_receivers
from streamomd.core.urls import protocol, refuse_ambiguous, refuse_output_url, scrub, shown
from streamomd.core.wording import SCHEMES, scheme_hint

if TYPE_CHECKING:
    import fsspec

PAGE, LISTINGS_AT_ONCE = 1000, 16
"""Names that a store gives for one request, and directories that are listed at the same time."""
CONNECTIONS = 64
"""To a store: footers that are requested at the same time. S3's client has 10 by itself."""
_Item = TypeVar("_Item")
_TAGS = ("ETag", "etag", "e_tag", "generation", "version_id", "blob_id")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class Entry(NamedTuple):
    """A file system entry; ``kind`` is file, directory or other."""

    path: str
    kind: str
    size: int = -1
    etag: str | None = None
    mtime_ns: int | None = None


@dataclass(frozen=True)
class LocalFilesystem:
    """Local file system for readers: it reads through the operating system, not through fsspec.

    Every other attribute, such as those for writing, is that of fsspec's local file system.
    """

    protocol = "file"

    def invalidate_cache(self) -> None:
        """Nothing is cached."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle looks up some that do not exist
            raise AttributeError(name)
        import fsspec

        return getattr(fsspec.filesystem("file"), name)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Convert any error of a store into one that names the URL and no secret."""
    try:
        yield
    except (StreamomdError, MemoryError):
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        cause = error.__cause__
        if _is_unreachable(cause):
            text = store_error(cause or error)
            raise StorageError(f"{shown(url)} cannot be reached: {text}") from None
        raise InputNotFoundError(f"{shown(url)}: no such file or directory") from None
    except UnicodeEncodeError as error:
        if not any("\udc80" <= letter <= "\udcff" for letter in url):
            raise StorageError(f"{shown(url)} cannot be read: {error}") from None
        raise DataError(
            f"{shown(url)}: its name is not UTF-8, which Arrow's files need: rename it"
        ) from None
    except Exception as error:
        if type(error).__name__ == "FileExpired":
            # s3fs reads with the ETag it opened with, and says so when it is gone. By its name: of
            # its errno, EBUSY, is a 503 too.
            raise ChangedDataError(f"shard {shown(url)} was replaced while it was read") from None
        # The original is not chained: its text and requests may hold credentials.
        text = store_error(error)
        raise StorageError(f"{shown(url)} cannot be read: {text}") from None


@contextmanager
def output_errors(url: str) -> Iterator[None]:
    """Converts errors as ``store_errors`` does, for an output; programming errors are raised as
    they are."""
    try:
        yield
    except (StreamomdError, MemoryError, *PROGRAMMING):
        raise
    except Exception as error:
        text = store_error(error)
        raise StorageError(f"{shown(url)} cannot be written to: {text}") from None


def _is_unreachable(cause: BaseException | None) -> bool:
    """Whether http:// said "not found" of a refused connection or a forbidden page."""
    if getattr(getattr(cause, "response", None), "status_code", None) in (404, 410):
        return False  # of what is above the file, as a repository
    if isinstance(cause, OSError):
        return not isinstance(cause, FileNotFoundError)
    return getattr(cause, "status", 404) not in (404, 410)


def connect_output(url: str, options: Mapping[str, Any] | None) -> fsspec.AbstractFileSystem:
    """Returns the file system to write to, see ``connect``.

    Raises UsageError for what is read only, and for ``::``.
    """
    refuse_output_url(url)
    source = sources().source_of(url)
    if source.name == protocol(url):
        raise UsageError(
            f"{shown(url)} is {source.title}, which is only read: write to a directory or a store"
        )
    if protocol(url) in ("http", "https"):
        raise UsageError(
            f"{shown(url)} is on a web server, which can only be read: write to a directory or to "
            "a store (s3://, gs://, abfs://)"
        )
    return connect(url, options or {})


def connect(url: str, options: Mapping[str, Any]) -> fsspec.AbstractFileSystem:
    """The file system of a URL; its options come from the URL's host and ``options``.

    Raises UsageError for a chained URL.
    """
    refuse_ambiguous(url)
    if not protocol(url) and not options:
        return LocalFilesystem()
    import fsspec

    scheme = protocol(url) or "file"
    if scheme not in SCHEMES and (own := sources().source_of(url).file_system()) is not None:
        fsspec.register_implementation(scheme, own, clobber=True)
    try:
        kind = fsspec.get_filesystem_class(scheme)
        from_url = kind._get_kwargs_from_urls(url) if protocol(url) else {}
        return fsspec.filesystem(scheme, **{**from_url, **_connecting(scheme, options)})
    except ImportError as error:
        raise UsageError(f"{scheme}:// needs another package: {scrub(str(error))}") from None
    except (ValueError, TypeError) as error:
        text = scrub(str(error))
        raise UsageError(
            f"{shown(url)}: unsupported URL or storage options: {text}"
            f"{scheme_hint(scheme, sources().schemes())}"
        ) from None
    except Exception as error:
        text = store_error(error)
        raise StorageError(f"{shown(url)} cannot be reached: {text}") from None


def _connecting(scheme: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Storage options, with as many connections of S3's client as requests are in flight."""
    given = options.get("config_kwargs", {})
    if scheme not in ("s3", "s3a") or not isinstance(given, Mapping):
        return options
    return {**options, "config_kwargs": {"max_pool_connections": CONNECTIONS, **given}}


def protocols(fs: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    """The schemes of a file system's URLs."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def is_local(fs: fsspec.AbstractFileSystem) -> bool:
    """Whether names are those of the local disk."""
    return "file" in protocols(fs)


def stat_entry(fs: fsspec.AbstractFileSystem, path: str, url: str) -> Entry:
    """Size, kind and version of an exact name, links followed, no cache used."""
    with store_errors(url):
        if is_local(fs):
            return _stat_local(path, url)
        count_request("stat")
        return _entry(fs.info(path), path)


def _stat_local(path: str, url: str) -> Entry:
    try:
        found = os.stat(path)
    except ValueError as error:
        raise UsageError(f"{shown(url)} is not a valid file name: {error}") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError(f"{shown(url)} is a loop of symbolic links: remove it") from None
        raise
    return _local_entry(path, found)


def _local_entry(path: str, found: os.stat_result) -> Entry:
    kind = "other"
    if stat.S_ISREG(found.st_mode):
        kind = "file"
    elif stat.S_ISDIR(found.st_mode):
        kind = "directory"
    return Entry(path, kind, found.st_size, None, found.st_mtime_ns)


def _entry(info: Mapping[str, Any], path: str) -> Entry:
    size = info.get("size")
    time = next((info[key] for key in _TIMES if info.get(key) is not None), None)
    kind = info["type"] if info["type"] in ("file", "directory") else "other"
    return Entry(path, kind, -1 if size is None else int(size), _tag(info), _nanoseconds(time))


def _tag(info: Mapping[str, Any]) -> str | None:
    # A listing may give it without the quotes that a single object's has.
    return next((str(info[key]).strip('"') for key in _TAGS if info.get(key) is not None), None)


def _nanoseconds(time: Any) -> int | None:
    if isinstance(time, datetime.datetime):
        time = time.timestamp()
    return int(time * 1e9) if isinstance(time, int | float) else None


def is_directory(fs: fsspec.AbstractFileSystem, path: str, url: str) -> bool:
    """Whether a directory exists; False where this process may not look."""
    if is_local(fs):
        return os.path.isdir(path)
    with store_errors(url):
        try:
            return _is_listed(fs, path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False
        except (ValueError, NotImplementedError):  # some stores have no names above a root
            return False
        except Exception as error:
            codes = {getattr(error, name, None) for name in ("code", "status", "status_code")}
            if codes & {403, 404}:
                return False
            raise


def _is_listed(fs: fsspec.AbstractFileSystem, path: str) -> bool:
    """Whether a store has a directory. Of S3 in one request, where ``info`` takes two: it looks for
    an object of this name first."""
    if not _lists_pages(fs, path):
        count_request("stat")
        return bool(fs.info(path)["type"] == "directory")
    from fsspec.asyn import sync

    bucket, key, _ = fs.split_path(path.rstrip("/"))
    count_request("list")
    return bool(sync(fs.loop, _page, fs._iterdir(bucket, prefix=f"{key}/", max_items=1)))


def _lists_pages(fs: fsspec.AbstractFileSystem, path: str) -> bool:
    """Whether a directory of S3 can be listed in parts."""
    return "s3" in protocols(fs) and hasattr(fs, "_iterdir") and bool(path.strip("/"))


def children(fs: fsspec.AbstractFileSystem, path: str, url: str) -> list[str]:
    """Exact paths of what is directly inside a directory, in no order."""
    with store_errors(url):
        if is_local(fs):
            return [os.path.join(path, name) for name in os.listdir(path)]
        count_request("list")
        names = (str(entry["name"]).rstrip("/") for entry in fs.ls(path, detail=True))
        return [name for name in names if name != path.rstrip("/")]


def entries(
    fs: fsspec.AbstractFileSystem, path: str, url: str, wanted: Callable[[str], bool]
) -> Iterator[Entry]:
    """What is directly inside a directory, links followed, in no order; of names that are wanted.

    It is one request of a store for 1,000 names, or one a file whose size the store does not list.
    """
    with store_errors(url):
        if is_local(fs):
            yield from _scan(fs, path, wanted)
            return
        for info in _infos(fs, path):
            name = str(info["name"]).rstrip("/")
            if name != path.rstrip("/") and wanted(posixpath.basename(name)):
                yield _sized(fs, _entry(info, name))


def _sized(fs: fsspec.AbstractFileSystem, entry: Entry) -> Entry:
    """The entry, with the size of a file."""
    missing = entry.kind == "file" and entry.size < 0
    return stat_entry(fs, entry.path, entry.path) if missing else entry


def _infos(fs: fsspec.AbstractFileSystem, path: str) -> Iterator[Mapping[str, Any]]:
    """What a store lists of a directory; of S3 one page after another, so that a directory of a
    million objects takes no memory but that of what is made of them."""
    is_empty = True
    if _lists_pages(fs, path):
        from fsspec.asyn import sync

        bucket, key, _ = fs.split_path(path.rstrip("/"))
        found = fs._iterdir(bucket, prefix=f"{key}/" if key else "")
        while page := sync(fs.loop, _page, found):
            count_request("list")
            yield from page
            is_empty = False
    if is_empty:  # of S3: an error, if there is no such directory
        count_request("list")
        yield from fs.ls(path, detail=True)


async def _page(found: AsyncIterator[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The next objects of a listing of S3: as many as one request gives."""
    from s3fs.errors import translate_boto_error

    page: list[Mapping[str, Any]] = []
    try:
        async for info in found:
            page.append(info)
            if len(page) == PAGE:
                break
    except Exception as error:
        explained = translate_boto_error(error)
        if explained is error:
            raise
        raise explained from error
    return page


def list_each(
    fs: fsspec.AbstractFileSystem, paths: Sequence[str], inside: Callable[[str], Iterable[_Item]]
) -> Iterator[Iterable[_Item]]:
    """``inside`` of each directory, in order; of a store for several at the same time."""
    if is_local(fs) or len(paths) == 1:
        yield from map(inside, paths)
        return
    with ThreadPoolExecutor(LISTINGS_AT_ONCE, "streamomd-lists", **same_receivers()) as pool:
        for first in range(0, len(paths), PAGE):
            yield from pool.map(lambda path: [*inside(path)], paths[first : first + PAGE])


def _scan(fs: Any, path: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
    with os.scandir(path) as items:
        for item in items:
            if not wanted(item.name):
                continue
            try:
                yield _local_entry(item.path, item.stat())
            except FileNotFoundError:
                if item.is_symlink():  # to a file that does not exist: the error names it
                    yield stat_entry(fs, item.path, item.path)
                # Otherwise it was removed since the directory was listed.
            except OSError:
                yield stat_entry(fs, item.path, item.path)


def matches(fs: fsspec.AbstractFileSystem, pattern: str, url: str) -> Iterator[Entry]:
    """Files and directories of a store that match a glob, in no order.

    fsspec's own glob skips what it cannot list: shards would be missing silently.
    """
    from fsspec.utils import glob_translate

    with store_errors(url):
        fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0] + "/"
        magic = pattern[len(fixed) :]
        depth = math.inf if "**" in magic else magic.count("/") + 1
        wanted = re.compile(glob_translate(pattern))
        for entry in _below(fs, fixed, depth):
            if wanted.match(entry.path):
                yield _sized(fs, entry)


def _below(fs: fsspec.AbstractFileSystem, folder: str, depth: float) -> Iterator[Entry]:
    folders = [folder]
    while folders and depth > 0:
        next_folders: list[str] = []
        listed = list_each(fs, folders, partial(_infos, fs))
        for above, infos in zip(folders, listed, strict=True):
            for info in infos:
                path = str(info["name"]).rstrip("/")
                if path != above.rstrip("/"):
                    yield _entry(info, path)
                    if info["type"] == "directory":
                        next_folders.append(f"{path}/")
        folders, depth = next_folders, depth - 1
