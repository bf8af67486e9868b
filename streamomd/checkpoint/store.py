"""A store: the few things the commit protocol asks of a disk or a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from streamomd.checkpoint.local import LocalStore
from streamomd.checkpoint.remote import RemoteStore
from streamomd.urls import absolute, local_name, protocol


class Store(Protocol):
    """Named objects under one URL. Names are relative, with ``/`` between their parts.

    Anything transient is tried again and then raised as StorageError; only FileNotFoundError says
    that an object is not there.
    """

    url: str

    def prepare(self) -> None:
        """Be ready to write; find out whether two writers exclude each other here."""

    def read(self, name: str) -> bytes:
        """All bytes. Raises FileNotFoundError."""

    def size(self, name: str) -> int | None:
        """Bytes of an object, None if it is not there."""

    def create(self, name: str, data: bytes) -> None:
        """Put if absent; durable on return. Raises FileExistsError."""

    def names(self, folder: str) -> list[str]:
        """Names directly inside a folder, in no order; none if it is not there."""

    def delete(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""


def open_store(url: str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at a URL or local path; nothing is asked of it yet."""
    url = absolute(url)
    if protocol(url):
        return RemoteStore(url, dict(storage_options or {}))
    return LocalStore(local_name(url))
