"""The file system operations used here: connect, stat, list, open."""

from __future__ import annotations

import datetime
import errno
import io
import math
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamomd.core.errors import (
    ChangedDataError,
    DataError,
    InputNotFoundError,
    StorageError,
    StreamomdError,
    UsageError,
)
from streamomd.core.machine_errors import store_error
from streamomd.core.nearest import scheme_hint
from streamomd.core.urls import protocol, scrub, shown

if TYPE_CHECKING:
    import fsspec

_TAGS = ("ETag", "etag", "e_tag", "generation", "version_id")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


@dataclass(frozen=True, slots=True)
class Entry:
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


def _is_unreachable(cause: BaseException | None) -> bool:
    """Whether http:// said "not found" of a refused connection or a forbidden page."""
    if isinstance(cause, OSError):
        return not isinstance(cause, FileNotFoundError)
    return getattr(cause, "status", 404) not in (404, 410)


def connect(url: str, options: Mapping[str, Any]) -> fsspec.AbstractFileSystem:
    """The file system of a URL; its options come from the URL's host and ``options``."""
    if not protocol(url) and not options:
        return LocalFilesystem()
    import fsspec

    scheme = protocol(url) or "file"
    try:
        kind = fsspec.get_filesystem_class(scheme)
        from_url = kind._get_kwargs_from_urls(url) if protocol(url) else {}
        return fsspec.filesystem(scheme, **{**from_url, **options})
    except ImportError as error:
        raise UsageError(f"{scheme}:// needs another package: {scrub(str(error))}") from None
    except (ValueError, TypeError) as error:
        text = scrub(str(error))
        raise UsageError(
            f"{shown(url)}: unsupported URL or storage options: {text}{scheme_hint(scheme)}"
        ) from None
    except Exception as error:
        text = store_error(error)
        raise StorageError(f"{shown(url)} cannot be reached: {text}") from None


def is_local(fs: fsspec.AbstractFileSystem) -> bool:
    """Whether names are those of the local disk."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def stat_entry(fs: fsspec.AbstractFileSystem, path: str, url: str) -> Entry:
    """Size, kind and version of an exact name, links followed, no cache used."""
    with store_errors(url):
        if is_local(fs):
            return _stat_local(path, url)
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
            return bool(fs.info(path)["type"] == "directory")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return False
        except Exception as error:
            codes = {getattr(error, name, None) for name in ("code", "status", "status_code")}
            if codes & {403, 404}:
                return False
            raise


def children(fs: fsspec.AbstractFileSystem, path: str, url: str) -> list[str]:
    """Exact paths of what is directly inside a directory, in no order."""
    with store_errors(url):
        if is_local(fs):
            return [os.path.join(path, name) for name in os.listdir(path)]
        names = (str(entry["name"]).rstrip("/") for entry in fs.ls(path, detail=True))
        return [name for name in names if name != path.rstrip("/")]


def entries(
    fs: fsspec.AbstractFileSystem, path: str, url: str, wanted: Callable[[str], bool]
) -> list[Entry]:
    """What is directly inside a directory, links followed, in no order; of names that are wanted.

    It is one request of a store, or one a file whose size the store does not list.
    """
    with store_errors(url):
        if is_local(fs):
            return [*_scan(fs, path, wanted)]
        names = ((str(info["name"]).rstrip("/"), info) for info in fs.ls(path, detail=True))
        found = [
            _entry(info, name)
            for name, info in names
            if name != path.rstrip("/") and wanted(posixpath.basename(name))
        ]
        return [
            stat_entry(fs, one.path, one.path) if one.kind == "file" and one.size < 0 else one
            for one in found
        ]


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


def matches(fs: fsspec.AbstractFileSystem, pattern: str, url: str) -> list[str]:
    """Exact paths of files and directories of a store that match a glob, in no order.

    fsspec's own glob skips what it cannot list: shards would be missing silently.
    """
    from fsspec.utils import glob_translate

    with store_errors(url):
        fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0] + "/"
        magic = pattern[len(fixed) :]
        depth = math.inf if "**" in magic else magic.count("/") + 1
        wanted = re.compile(glob_translate(pattern))
        return [path for path in _below(fs, fixed, depth) if wanted.match(path)]


def _below(fs: fsspec.AbstractFileSystem, folder: str, depth: float) -> Iterator[str]:
    for entry in fs.ls(folder, detail=True):
        path = str(entry["name"]).rstrip("/")
        if path != folder.rstrip("/"):
            yield path
            if entry["type"] == "directory" and depth > 1:
                yield from _below(fs, f"{path}/", depth - 1)


class RemoteFile(io.RawIOBase):
    """A file of a store whose errors are converted by `store_errors`."""

    # ruff: noqa: D102 (methods of every file)

    def __init__(self, file: Any, url: str) -> None:
        super().__init__()
        self._file = file
        self._url = url

    def read(self, size: int | None = -1) -> bytes:
        with store_errors(self._url):
            return bytes(self._file.read(-1 if size is None else size))

    def readinto(self, view: Any) -> int:
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        with store_errors(self._url):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
