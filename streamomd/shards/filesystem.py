"""The file system operations used here: connect, stat, list, open."""

from __future__ import annotations

import datetime
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

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
from streamomd.core.run_events import count_request
from streamomd.core.urls import protocol, refuse_ambiguous, refuse_output_url, scrub, shown
from streamomd.core.wording import SCHEMES, extra_hint, scheme_hint

if TYPE_CHECKING:
    import fsspec

FileSystem: TypeAlias = "fsspec.AbstractFileSystem"
"""fsspec's, which is imported when a store is opened."""

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


def connect_output(url: str, options: Mapping[str, Any] | None) -> FileSystem:
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


def connect(url: str, options: Mapping[str, Any]) -> FileSystem:
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
        hint = extra_hint(scheme) or f"{scheme}:// needs another package: {scrub(str(error))}"
        raise UsageError(hint) from None
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


def protocols(fs: FileSystem) -> tuple[str, ...]:
    """The schemes of a file system's URLs."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def is_local(fs: FileSystem) -> bool:
    """Whether names are those of the local disk."""
    return "file" in protocols(fs)


def stat_entry(fs: FileSystem, path: str, url: str) -> Entry:
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
