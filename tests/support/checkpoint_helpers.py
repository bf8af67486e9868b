"""Small makers shared by the checkpoint's tests: stores, parts, and what was loaded."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamomd.checkpoint import Commit, Loaded, Part, Store, Writer, load, open_store
from streamomd.checkpoint.stores.local import LocalStore

KINDS = ("local", "memory")


def make_store(kind: str, folder: Path) -> Store:
    """An empty store of each kind that needs no server."""
    return open_store(str(folder / "run") if kind == "local" else f"memory://{uuid.uuid4().hex}")


class DictStore:
    """A store in a dict: the fastest; ``fault`` is called before and after each write."""

    url = "dict"
    in_flight = 1
    part_bytes = 0
    consistent = False

    def __init__(self, *, exclusive: bool = True) -> None:
        self.objects: dict[str, bytes] = {}
        self.exclusive = exclusive
        self.before: Callable[[str, str], None] = lambda deed, name: None
        self.after: Callable[[str, str], None] = lambda deed, name: None

    def read(self, name: str, most: int | None = None) -> bytes:
        self.before("read", name)
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name][:most]

    def size(self, name: str) -> int | None:
        self.before("size", name)
        return len(self.objects[name]) if name in self.objects else None

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        self.before("put", name)
        self.objects[name] = data
        self.after("put", name)
        return False

    def create(self, name: str, data: bytes) -> None:
        self.before("create", name)
        if name in self.objects:
            raise FileExistsError(name)
        self.objects[name] = data
        self.after("create", name)

    def names(self, folder: str) -> list[str]:
        self.before("names", folder)
        return self._inside(folder)

    def sizes(self, folder: str) -> dict[str, int]:
        self.before("sizes", folder)
        return {name: len(self.objects[name]) for name in self._inside(folder)}

    def _inside(self, folder: str) -> list[str]:
        return [name for name in self.objects if name.rpartition("/")[0] + "/" == folder]

    def delete(self, name: str) -> None:
        self.before("delete", name)
        self.objects.pop(name, None)


def overwrite(store: Store, name: str, data: bytes) -> None:
    """Change an object behind the store's back."""
    if isinstance(store, LocalStore):
        Path(store.url, name).write_bytes(data)
    else:
        store._fs.pipe_file(store._path(name), data)


def numbers(seed: int, *, ranges: int = 2) -> list[Part]:
    """Parts of a few numbers that depend on the seed; the first has a clock."""
    found: list[Part] = []
    for at in range(ranges):
        arrays: dict[str, Any] = {"w": np.arange(4, dtype=np.float64) + 100 * seed + at}
        if at == 0:
            arrays["clock"] = np.array([seed], dtype=np.int64)
        found.append((4 * at, 4 * at + 4, arrays))
    return found


def plain(parts: list[Part]) -> list[Any]:
    """Parts as values that compare to the bit."""
    return [
        (
            lo,
            hi,
            {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in sorted(arrays.items())},
        )
        for lo, hi, arrays in parts
    ]


def load_all(store: Store, at: int | None = None) -> tuple[Loaded, list[Any]]:
    """What is loaded, and its parts to the bit."""
    taken: list[list[Part]] = []

    def receive(commit: Commit) -> Callable[[Part], None]:
        taken.append([])
        return taken[-1].append

    loaded = load(store, receive, at=at)
    return loaded, plain(taken[-1])


def begin(store: Store, **options: Any) -> Writer:
    """A run whose commit 0 holds ``numbers(0)``."""
    return Writer.begin(store, {"rows": 0}, numbers(0), **options)


def a_run(store: Store, commits: int = 1, **options: Any) -> Writer:
    """A run of commit 0 and some more; commit k holds ``numbers(k)`` and rows 10 k."""
    writer = begin(store, **options)
    for at in range(1, commits + 1):
        writer.commit({"rows": 10 * at}, numbers(at))
    return writer


def holds(store: Store, seed: int, *, rejected: list[int] | None = None) -> Loaded:
    """Assert that what is loaded is ``numbers(seed)``, after rejecting these."""
    loaded, parts = load_all(store)
    assert parts == plain(numbers(seed))
    assert loaded.commit.document["rows"] == 10 * seed
    assert [sequence for sequence, _ in loaded.rejected] == (rejected or [])
    return loaded
