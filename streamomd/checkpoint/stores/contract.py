"""Store: the operations of the storage of a checkpoint, a listing of one, and transfers: several
requests to a store in flight, their results in order.

A request costs a latency, however small it is, and one connection rarely has the whole bandwidth.
So parts are written and read by several threads. The bytes in flight are bounded.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from streamomd.checkpoint.stores.local import LocalStore
from streamomd.core.errors import CorruptionError, StorageError, UsageError
from streamomd.core.urls import absolute, protocol, refuse_output_url, shown


@dataclass(frozen=True)
class Snapshot:
    """``store``, of which ``objects`` were listed: sizes by name. verified: documents by SHA-256
    that were read and compared, and will be read once more."""

    store: Store
    objects: Mapping[str, int]
    verified: dict[str, bytes] = field(default_factory=dict)
    consistent = True

    @property
    def url(self) -> str:
        """See ``Store``; so are the others."""
        return self.store.url

    @property
    def exclusive(self) -> bool:
        """See ``Store``."""
        return self.store.exclusive

    @property
    def in_flight(self) -> int:
        """See ``Store``."""
        return self.store.in_flight

    @property
    def part_bytes(self) -> int:
        """See ``Store``."""
        return self.store.part_bytes

    def tree(self) -> Mapping[str, int]:
        """See ``Store``."""
        return self.objects

    def read(self, name: str, most: int | None = None) -> bytes:
        """See ``Store``."""
        return self.store.read(name, most)

    def size(self, name: str) -> int | None:
        """See ``Store``."""
        return self.objects.get(name)

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        """See ``Store``."""
        return self.store.put(name, data, sha256)

    def create(self, name: str, data: bytes) -> bool:
        """See ``Store``."""
        return self.store.create(name, data)

    def probe(self, name: str, data: bytes) -> None:
        """See ``Store``."""
        self.store.probe(name, data)

    def names(self, folder: str) -> list[str]:
        """See ``Store``."""
        return [*self.sizes(folder)]

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Store``."""
        inside = {name: size for name, size in self.objects.items() if name.startswith(folder)}
        return {name: size for name, size in inside.items() if "/" not in name[len(folder) :]}

    def delete(self, name: str) -> None:
        """See ``Store``."""
        self.store.delete(name)

    def delete_all(self, names: Collection[str]) -> None:
        """See ``Store``."""
        self.store.delete_all(names)


def snapshot_of(store: Store) -> Store:
    """The store as it is now, if it can be listed in few requests; else the store itself."""
    objects = store.tree() if store.consistent else None
    return store if objects is None else Snapshot(store, objects)


def current(store: Store) -> Store:
    """The store that a snapshot is of."""
    return store.store if isinstance(store, Snapshot) else store


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

    @property
    def in_flight(self) -> int:
        """Requests that may be in flight at a time; 1: the methods are called from one thread."""

    @property
    def part_bytes(self) -> int:
        """Bytes of a part that this store takes efficiently; 0: no preference."""

    @property
    def consistent(self) -> bool:
        """Whether every listing shows what was written before it, and one request lists a
        checkpoint. Then nothing is asked for that a listing has, and small documents are in the
        manifest: each request costs a latency."""

    def tree(self) -> Mapping[str, int] | None:
        """Sizes of all objects of a consistent store, by name; None: they are too many."""

    def read(self, name: str, most: int | None = None) -> bytes:
        """The object, or its first ``most`` bytes (a store may return more of it).

        FileNotFoundError if it is absent.
        """

    def size(self, name: str) -> int | None:
        """Bytes of an object, None if it is absent."""

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        """Write an object under an unused name; durable on return.

        True if the answer proves that the store has these bytes. sha256: of the data, in hex.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Write an object, or raise FileExistsError if it exists; either way it is durable then.

        True if the answer proves that this call wrote it, whole.
        After any other error it may exist or not, and may still be lost.
        """

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly in a folder ("commits/"), in no order; [] if none."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Bytes of the objects in a folder, as far as a listing reports them."""

    def probe(self, name: str, data: bytes) -> None:
        """Find out whether a consistent store is ``exclusive`` in one request, by creating an
        object that exists and may be overwritten with this data."""

    def delete(self, name: str) -> None:
        """Remove an object; nothing happens if it is absent."""

    def delete_all(self, names: Collection[str]) -> None:
        """Remove objects of a consistent store, in one request if it has one for that."""


def open_store(url: str, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at a local path, ``file://`` or any fsspec URL. Nothing is written yet.

    Raises UsageError for a chained URL, one that fsspec has no file system for, and a file.
    """
    refuse_output_url(url)
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
    try:
        data = store.read(name, limit + 1)
    except FileNotFoundError:
        raise CorruptionError(f"{name} is missing") from None
    if len(data) > limit:
        raise CorruptionError(f"{name} has more than the {limit:,} bytes it may have")
    return data


def write_checked(store: Store, name: str, data: bytes, sha256: str) -> None:
    """Put an object; check its size unless the store's answer proves that it is whole.

    sha256: of the data, in hex. Raises StorageError if the size differs.
    """
    if not store.put(name, data, sha256) and store.size(name) != len(data):
        raise StorageError(f"{shown(store.url)}/{name} was not written completely")


def read_twice(read: Callable[[], T]) -> T:
    """The result of ``read``; a CorruptionError must occur twice: one may be a read error."""
    try:
        return read()
    except CorruptionError:
        return read()


R = TypeVar("R")

BYTES_IN_FLIGHT = 129 << 20
"""Bytes of the items in flight: eight parts of 16 MiB and their heads. A larger one is alone.

The clients of stores copy what they send, so a commit takes up to 350 MiB, and so does a load.
"""
REPORTED = 10
"""Failed items that a message names."""


def in_flight(
    work: Callable[[T], R], items: Iterable[T], limit: int, nbytes: Callable[[T], int]
) -> Iterator[R]:
    """The result of ``work`` for each item, in order; at most ``limit`` of them run at a time.

    Items are taken when there is room for them. With a limit of 1 this thread does the work.
    After an error no other item is taken, and those in flight end before it is raised, so nothing
    is written later. All errors of items in flight are raised together.
    """
    if limit == 1:
        yield from map(work, items)
        return
    running: deque[_Transfer[R]] = deque()
    try:
        for item in items:
            size = nbytes(item)
            while running and (
                len(running) >= limit
                or size + sum(transfer.nbytes for transfer in running) > BYTES_IN_FLIGHT
            ):
                yield running.popleft().result()
            running.append(_Transfer(work, item, size))
        while running:
            yield running.popleft().result()
    except Exception as error:
        raise _joined(
            [error, *(transfer for each in running if (transfer := each.wait()))]
        ) from None


class _Transfer(Generic[R]):
    """One item's work in a thread. The process does not wait for it at its exit."""

    def __init__(self, work: Callable[[T], R], item: T, nbytes: int) -> None:
        self.nbytes = nbytes
        self._result: list[R] = []
        self._error: BaseException | None = None
        context = contextvars.copy_context()  # where notes are sent
        self._thread = threading.Thread(
            target=context.run, args=(self._run, work, item), name="streamomd-transfer", daemon=True
        )
        self._thread.start()

    def _run(self, work: Callable[[T], R], item: T) -> None:
        try:
            self._result.append(work(item))
        except BaseException as error:
            self._error = error

    def result(self) -> R:
        """Wait for the work. Raises its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result.pop()

    def wait(self) -> Exception | None:
        """Wait for the work, and return its error."""
        self._thread.join()
        return self._error if isinstance(self._error, Exception) else None


def _joined(errors: list[Exception]) -> Exception:
    """One error for all: damage before a store that fails, and anything unexpected before both.

    Damage is proven, so a load may use an older commit, whatever else failed.
    """
    for error in errors:
        if not isinstance(error, (CorruptionError, StorageError)):
            return error
    kind = CorruptionError if any(isinstance(e, CorruptionError) for e in errors) else StorageError
    same = [error for error in errors if isinstance(error, kind)]
    if len(same) == 1:
        return same[0]
    texts = [str(error) for error in same[:REPORTED]]
    more = [f"and {len(same) - REPORTED} more"] if len(same) > REPORTED else []
    return kind("; ".join([*texts, *more]))
