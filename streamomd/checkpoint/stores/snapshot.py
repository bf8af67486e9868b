"""A store as one listing of it shows: names and sizes take no further request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamomd.checkpoint.stores.contract import Store


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
