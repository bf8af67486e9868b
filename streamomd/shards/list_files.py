"""What a file system lists: directories, globs, the files below a folder."""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from streamomd.core.run_events import count_request, same_receivers
from streamomd.shards.filesystem import (
    LISTINGS_AT_ONCE,
    PAGE,
    Entry,
    FileSystem,
    _entry,
    _Item,
    _local_entry,
    is_local,
    protocols,
    stat_entry,
    store_errors,
)


def is_directory(fs: FileSystem, path: str, url: str) -> bool:
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


def _is_listed(fs: FileSystem, path: str) -> bool:
    """Whether a store has a directory. Of S3 in one request, where ``info`` takes two: it looks for
    an object of this name first."""
    if not _lists_pages(fs, path):
        count_request("stat")
        return bool(fs.info(path)["type"] == "directory")
    from fsspec.asyn import sync

    bucket, key, _ = fs.split_path(path.rstrip("/"))
    count_request("list")
    return bool(sync(fs.loop, _page, fs._iterdir(bucket, prefix=f"{key}/", max_items=1)))


def _lists_pages(fs: FileSystem, path: str) -> bool:
    """Whether a directory of S3 can be listed in parts."""
    return "s3" in protocols(fs) and hasattr(fs, "_iterdir") and bool(path.strip("/"))


def children(fs: FileSystem, path: str, url: str) -> list[str]:
    """Exact paths of what is directly inside a directory, in no order."""
    with store_errors(url):
        if is_local(fs):
            return [os.path.join(path, name) for name in os.listdir(path)]
        count_request("list")
        names = (str(entry["name"]).rstrip("/") for entry in fs.ls(path, detail=True))
        return [name for name in names if name != path.rstrip("/")]


def entries(fs: FileSystem, path: str, url: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
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


def _sized(fs: FileSystem, entry: Entry) -> Entry:
    """The entry, with the size of a file."""
    missing = entry.kind == "file" and entry.size < 0
    return stat_entry(fs, entry.path, entry.path) if missing else entry


def _infos(fs: FileSystem, path: str) -> Iterator[Mapping[str, Any]]:
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


def tree_pages(
    fs: FileSystem, folder: str, url: str, is_data: Callable[[str], bool]
) -> Iterator[list[Entry]]:
    """All objects below a directory of S3, as many at a time as one request gives; none of other
    stores. A request for each directory would be one more for every day of data.

    An empty page ends them early: less than half of the names of a full page are data, so a listing
    by directory, which skips directories without data, may take fewer requests.
    """
    if is_local(fs) or not _lists_pages(fs, folder):
        return
    from fsspec.asyn import sync

    bucket, key, _ = fs.split_path(folder.rstrip("/"))
    with store_errors(url):
        listing = fs._iterdir(bucket, delimiter="", prefix=f"{key}/" if key else "")
        while page := sync(fs.loop, _page, listing):
            count_request("list")
            listed = [_entry(info, str(info["name"])) for info in page]
            yield listed
            if len(page) == PAGE and 2 * sum(is_data(one.path) for one in listed) < PAGE:
                yield []
                return


def list_each(
    fs: FileSystem, paths: Sequence[str], inside: Callable[[str], Iterable[_Item]]
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


def matches(
    fs: FileSystem, pattern: str, url: str, folders: dict[str, set[str]]
) -> Iterator[Entry]:
    """Files and directories of a store that match a glob, in no order. folders: gets the names of
    the directories in each directory, where all below were listed.

    fsspec's own glob skips what it cannot list: shards would be missing silently.
    """
    from fsspec.utils import glob_translate

    with store_errors(url):
        fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0] + "/"
        magic = pattern[len(fixed) :]
        depth = math.inf if "**" in magic else magic.count("/") + 1
        wanted = re.compile(glob_translate(pattern))
        found = _tree(fs, fixed, depth, url, wanted, folders) if depth > 1 else {}
        for entry in found.values() or _below(fs, fixed, depth):
            if wanted.match(entry.path):
                yield _sized(fs, entry)


def _tree(
    fs: FileSystem,
    root: str,
    depth: float,
    url: str,
    wanted: re.Pattern[str],
    folders: dict[str, set[str]],
) -> dict[str, Entry]:
    """What ``_below`` has that is wanted, from ``tree_pages``; nothing where they end early."""
    entries_by_path: dict[str, Entry] = {}
    inside: dict[str, set[str]] = {}
    for page in tree_pages(fs, root, url, lambda path: bool(wanted.match(path))):
        if not page:
            return {}
        for entry in page:
            folder, *parts = root.rstrip("/"), *entry.path[len(root) :].split("/")
            for end, part in enumerate(parts, 1):
                path = f"{folder}/{part}"
                if end <= depth and path not in entries_by_path and wanted.match(path):
                    is_whole = end == len(parts)
                    entries_by_path[path] = entry if is_whole else Entry(path, "directory")
                inside.setdefault(folder, set())
                if end < len(parts):
                    inside[folder].add(part)
                folder = path
    folders.update(inside)
    return entries_by_path


def _below(fs: FileSystem, folder: str, depth: float) -> Iterator[Entry]:
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
