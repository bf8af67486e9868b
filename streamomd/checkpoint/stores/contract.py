"""Store: the six things a checkpoint asks of where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from streamomd.checkpoint.stores.local import LocalStore
from streamomd.core.errors import CorruptionError, StorageError
from streamomd.core.urls import absolute, protocol, shown

T = TypeVar("T")


class Store(Protocol):
    """Objects by name ("commits/000000000007.json").

    Every method raises StorageError if the store does not answer or does not do it, after retries.
    """

    @property
    def url(self) -> str:
        """Absolute, without secrets: what ``open_store`` opens again."""

    @property
    def exclusive(self) -> bool:
        """Whether ``create`` has one winner. Asking may write a probe: only writers ask."""

    def read(self, name: str) -> bytes:
        """The whole object. FileNotFoundError if it is absent."""

    def size(self, name: str) -> int | None:
        """Bytes of an object, None if it is absent."""

    def put(self, name: str, data: bytes) -> None:
        """Write an object of a name that nothing else has; durable on return."""

    def create(self, name: str, data: bytes) -> None:
        """Write an object unless it is there: FileExistsError; either way it is durable then.

        After any other error it may be there, or not, and may still be lost.
        """

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly in a folder ("commits/"), in no order; [] if none."""

    def delete(self, name: str) -> None:
        """Remove an object; nothing happens if it is absent."""


def open_store(url: str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at a local path, ``file://`` or any fsspec URL. Nothing is written yet.

    Raises UsageError for a URL no file system can be made of.
    """
    if protocol(url):
        from streamomd.checkpoint.stores.remote import RemoteStore  # fsspec, and asyncio with it

        return RemoteStore.open(url, storage_options or {})
    return LocalStore(absolute(url))


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


def put_whole(store: Store, name: str, data: bytes) -> None:
    """Put an object, and ask for its size. Raises StorageError if it is not that of the data."""
    store.put(name, data)
    if store.size(name) != len(data):
        raise StorageError(f"{shown(store.url)}/{name} was not written whole")


def confirmed(read: Callable[[], T]) -> T:
    """What ``read`` gives; corruption must be seen twice: a bad reading is not yet a bad object."""
    try:
        return read()
    except CorruptionError:
        return read()
