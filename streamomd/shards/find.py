"""Find the shards of a job, and read every footer once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamomd.core.errors import UsageError, refuse_rows_in_memory
from streamomd.core.urls import protocol, shown, userinfo
from streamomd.shards.filesystem import connect, is_local
from streamomd.shards.formats.footer import read_shard
from streamomd.shards.listed import Listed
from streamomd.shards.order import path_key
from streamomd.shards.paths import PathPattern
from streamomd.shards.shard import Shard, ShardSet

if TYPE_CHECKING:
    import fsspec

__all__ = ["Shard", "ShardSet", "find"]

ORDERS = ("sorted", "given", "shuffled")
FOOTERS_AT_ONCE = 8


def find(
    shards: str | Sequence[str],
    *,
    order: str = "sorted",
    storage_options: Mapping[str, Any] | None = None,
    allow_duplicates: bool = False,
    check: Callable[[Sequence[str]], None] | None = None,
    statistics: Collection[str] = (),
) -> ShardSet:
    """The shards that one string or several name: files, directories, globs, fsspec URLs.

    ``order`` is "sorted" (bytewise by path), "given" (sorted inside a directory or glob) or
    "shuffled" (sorted here; `order.permutation` permutes each epoch). ``check`` gets the URLs of
    all files before the first one is opened, and may raise. ``statistics``: columns of which the
    footers' bounds are read.

    Raises `InputNotFoundError` for a name without files, `DataError` for files that are
    not shards or are damaged, `UsageError` for duplicates and mixed file systems, and
    `StorageError` for a store that does not answer.
    """
    if order not in ORDERS:
        raise UsageError(f"order is one of {', '.join(ORDERS)}, not {order!r}")
    fs, listed = list_shards(shards, order=order, storage_options=storage_options)
    if not allow_duplicates:
        _refuse_duplicates(fs, listed)
    if check is not None:
        check([file.url for file in listed])
    return open_listed(fs, listed, statistics)


def list_shards(
    shards: str | Sequence[str],
    *,
    order: str = "sorted",
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[fsspec.AbstractFileSystem, list[Listed]]:
    """The files that ``find`` would open, in order, and their file system. None is opened."""
    if order not in ORDERS:
        raise UsageError(f"order is one of {', '.join(ORDERS)}, not {order!r}")
    texts = _texts(shards)
    fs = _common_file_system(texts, storage_options or {})
    # Listings that were cached earlier would hide files written since.
    fs.invalidate_cache()
    listed: list[Listed] = []
    for given in [PathPattern(text, fs) for text in texts]:
        _refuse_credentials(given)
        listed += given.files()
    if order != "given":
        listed.sort(key=lambda file: path_key(file.path))
    return fs, listed


def open_listed(
    fs: fsspec.AbstractFileSystem, listed: Sequence[Listed], statistics: Collection[str] = ()
) -> ShardSet:
    """The shards of listed files: every footer is read. ``statistics``: as in ``find``."""
    found = tuple(_read_all(fs, listed, statistics))
    versions: dict[str, object] = {}
    if is_local(fs):
        versions = {one.path: (one.size, one.mtime_ns) for one in found}
    return ShardSet(found, fs, versions)


def _texts(shards: str | Sequence[str]) -> list[str]:
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
        systems.setdefault(_root(text), connect(text, options))
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


def _refuse_credentials(given: PathPattern) -> None:
    secret = userinfo(given.text)
    if secret and secret in given.path and not protocol(given.path):
        raise UsageError(
            f"{shown(given.text)} was given with credentials, which its file system does not take "
            "from a URL: use the environment or storage_options"
        )


def _refuse_duplicates(fs: fsspec.AbstractFileSystem, listed: Iterable[Listed]) -> None:
    seen: dict[str, str] = {}
    for file in listed:
        key = os.path.realpath(file.path) if is_local(fs) else file.path
        if key in seen:
            raise UsageError(
                f"the same file is named twice, as {shown(seen[key])} and {shown(file.url)}: name "
                "it once; train.epochs reads rows again"
            )
        seen[key] = file.url


def _read_all(
    fs: fsspec.AbstractFileSystem, listed: Sequence[Listed], statistics: Collection[str]
) -> list[Shard]:
    if is_local(fs) or len(listed) == 1:
        return [_read(fs, file, statistics) for file in listed]
    with ThreadPoolExecutor(FOOTERS_AT_ONCE, "streamomd-footers") as pool:
        futures = [pool.submit(_read, fs, file, statistics) for file in listed]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _read(fs: fsspec.AbstractFileSystem, file: Listed, statistics: Collection[str]) -> Shard:
    shard = read_shard(fs, file.path, file.url, statistics)
    return replace(shard, name=file.name, partitions=file.partitions)
