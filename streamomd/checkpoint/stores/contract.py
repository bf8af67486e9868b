"""Store: the six operations of the storage of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from streamomd.checkpoint.stores.local import LocalStore
from streamomd.core.errors import CorruptionError, StorageError, UsageError
from streamomd.core.urls import absolute, protocol, shown

T = TypeVar("T")


class Store(Protocol):
    """Objects by name ("commits/000000000007.json").

    Every method raises StorageError if the store does not answer or fails after retries.
    """

    @property
    def url(self) -> str:
        """Absolute URL without secrets; ``open_store`` opens it again."""

    @property
    def exclusive(self) -> bool:
        """Whether ``create`` has exactly one winner. May write a probe object: only writers ask."""

    def read(self, name: str) -> bytes:
        """The whole object. FileNotFoundError if it is absent."""

    def size(self, name: str) -> int | None:
        """Bytes of an object, None if it is absent."""

    def put(self, name: str, data: bytes) -> None:
        """Write an object under an unused name; durable on return."""

    def create(self, name: str, data: bytes) -> None:
        """Write an object, or raise FileExistsError if it exists; either way it is durable then.

        After any other error it may exist or not, and may still be lost.
        """

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly in a folder ("commits/"), in no order; [] if none."""

    def delete(self, name: str) -> None:
        """Remove an object; nothing happens if it is absent."""


def open_store(url: str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at a local path, ``file://`` or any fsspec URL. Nothing is written yet.

    Raises UsageError if fsspec has no file system for the URL, or a file is there.
    """
    if protocol(url):
        from streamomd.checkpoint.stores.remote import RemoteStore  # fsspec, and asyncio with it

        return RemoteStore.open(url, storage_options or {})
    root = absolute(url)
    if os.path.isfile(root):
        hint = "is a job file: start it with `streamomd train`, and pass the URL of its run here"
        other = "is a file; a checkpoint is a directory, such as runs/bank"
        raise UsageError(f"{shown(root)} {hint if root.endswith('.toml') else other}")
    return LocalStore(root)


def read_within(store: Store, name: str, limit: int) -> bytes:
    """An object of at most ``limit`` bytes. Raises CorruptionError if it is absent or larger."""
    size = store.size(name)
    if size is None:
        raise CorruptionError(f"{name} is missing")
    if size > limit:
        raise CorruptionError(f"{name} has {size:,} bytes, more than the {limit:,} it may have")
    try:
        return store.read(name)
    except FileNotFoundError:
        raise CorruptionError(f"{name} is missing") from None


def write_checked(store: Store, name: str, data: bytes) -> None:
    """Put an object and check its size. Raises StorageError if it differs."""
    store.put(name, data)
    if store.size(name) != len(data):
        raise StorageError(f"{shown(store.url)}/{name} was not written completely")


def read_twice(read: Callable[[], T]) -> T:
    """The result of ``read``; a CorruptionError must occur twice: one may be a read error."""
    try:
        return read()
    except CorruptionError:
        return read()
