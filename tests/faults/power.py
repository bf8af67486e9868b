"""Power cuts: a run's calls are recorded; of what was not synced any part may survive."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from checkpoint_helpers import DictStore, begin, load_all, numbers
from kinds import Cases, Verdict, kind
from standing import stands

from streamomd.checkpoint import Writer, open_store, write_document
from streamomd.checkpoint.stores import local
from streamomd.core.errors import StorageError

T = TypeVar("T")
DEEP, RECENT = 3, 7


@dataclass(frozen=True)
class Op:
    """A change of one inode: ``write`` of bytes, ``name`` (an entry made, another taken away),
    ``sync`` of it; or "promise" that a number is committed."""

    what: str
    inode: int
    data: bytes = b""
    entry: tuple[str, int] | None = None
    gone: str = ""


@dataclass
class Disk:
    """Files and folders by inode."""

    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=dict)

    def apply(self, op: Op, written: str = "whole") -> None:
        if op.what == "write":
            data = op.data
            if written != "whole":
                data = bytes(len(data)) if written == "zeros" else data[: len(data) // 2]
            self.files[op.inode] = self.files.get(op.inode, b"") + data
        else:
            names = self.folders.setdefault(op.inode, {})
            names.pop(op.gone, None)
            if op.entry:
                names[op.entry[0]] = op.entry[1]

    def copy(self) -> Disk:
        return Disk(dict(self.files), {key: dict(names) for key, names in self.folders.items()})

    def objects(self, at: int, path: str = "") -> Iterator[tuple[str, bytes]]:
        """What is reached from a folder."""
        for name, inode in self.folders.get(at, {}).items():
            if inode in self.folders or inode < 0:
                yield from self.objects(inode, f"{path}{name}/")
            else:
                yield path + name, self.files.get(inode, b"")


class Recorder:
    """Module os, which records; inodes are counted anew, folders negatively: none comes twice.

    fails_at: this change fails, and is not made; 0 for none.
    """

    def __init__(self, root: Path, fails_at: int = 0) -> None:
        self.ops: list[Op] = []
        self._left, self.failed_after = fails_at, -1
        self._count = itertools.count(1)
        self._ids: dict[int, int] = {}
        self.root = self._new(os.stat(root).st_ino, folder=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _new(self, inode: int, *, folder: bool = False) -> int:
        self._ids[inode] = next(self._count) * (-1 if folder else 1)
        return self._ids[inode]

    def _of(self, handle: int) -> int:
        return self._ids[os.fstat(handle).st_ino]

    def _may_fail(self) -> None:
        self._left -= 1
        if not self._left:
            self.failed_after = len(self.ops)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        handle = os.open(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL
            assert dir_fd is not None
            made = self._new(os.fstat(handle).st_ino)
            self.ops.append(Op("name", self._of(dir_fd), entry=(path, made)))
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        self._may_fail()
        done = os.write(handle, data)
        self.ops.append(Op("write", self._of(handle), bytes(data[:done])))
        return done

    def fsync(self, handle: int) -> None:
        self._may_fail()
        inode = os.fstat(handle).st_ino
        if inode in self._ids:  # else a folder above all of this
            self.ops.append(Op("sync", self._ids[inode]))

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._may_fail()
        os.mkdir(path, mode, dir_fd=dir_fd)
        parent = os.stat(os.path.dirname(path)) if dir_fd is None else os.fstat(dir_fd)
        made = os.stat(path, dir_fd=dir_fd).st_ino
        name, inside = os.path.basename(path), self._ids[parent.st_ino]
        self.ops.append(Op("name", inside, entry=(name, self._new(made, folder=True))))

    def link(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self._may_fail()
        os.link(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._named(old, new, dst_dir_fd)

    def replace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        self._may_fail()
        os.replace(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._named(old, new, dst_dir_fd, gone=old)

    def _named(self, old: str, new: str, folder: int, gone: str = "") -> None:
        made = self._ids[os.stat(new, dir_fd=folder).st_ino]
        self.ops.append(Op("name", self._of(folder), entry=(new, made), gone=gone))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        self._may_fail()
        os.unlink(name, dir_fd=dir_fd)
        self.ops.append(Op("name", self._of(dir_fd), gone=name))

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        self._may_fail()
        os.rmdir(name, dir_fd=dir_fd)
        self.ops.append(Op("name", self._of(dir_fd), gone=name))


def a_life(url: str, ops: list[Op]) -> None:
    """A run, a resumption, a restart, commits beyond ``keep``; each is told when it is made.

    What an error stops is done again.
    """

    def promise(number: int) -> None:
        ops.append(Op("promise", number))

    writer = again(lambda: begin(open_store(url), keep=2))
    promise(0)
    for at in (1, 2, 3):
        names = again(lambda at=at: write_document(writer.store, "names", {"1": [f"name {at}"]}))
        document = {"rows": 10 * at, "names": names}
        again(lambda at=at, document=document: writer.commit(document, numbers(at)))
        promise(at)
    store = open_store(url)
    writer = again(lambda: Writer.take_over(store, load_all(store)[0], keep=1))
    for at in (4, 5):
        again(lambda at=at: writer.commit({"rows": 10 * at}, numbers(at)))
        promise(at)
    fresh = {"rows": 60}
    again(lambda: Writer.begin(open_store(url), fresh, numbers(6), keep=1, restart=True))
    promise(6)


def again(deed: Callable[[], T]) -> T:
    """What a deed gives, at once or after one error."""
    try:
        return deed()
    except StorageError:
        return deed()


def lived(folder: Path, fails_at: int = 0) -> Recorder:
    """A life's changes, with one that fails."""
    place = folder / str(fails_at)
    place.mkdir()
    recorder = Recorder(place, fails_at)
    with patch.object(local, "disk", recorder):
        a_life(str(place / "deep" / "run"), recorder.ops)
    shutil.rmtree(place)
    return recorder


def states(ops: list[Op], first: int = 0) -> Iterator[tuple[int, Disk]]:
    """After every call, from ``first`` on: what was promised, and each disk that a power cut may
    leave."""
    synced, waiting, promised = Disk(), [], -1
    for place, op in enumerate(ops):
        if op.what == "promise":
            promised = op.inode
        elif op.what == "sync":
            for one in waiting:
                if one.inode == op.inode:
                    synced.apply(one)
            waiting = [one for one in waiting if one.inode != op.inode]
        else:
            waiting.append(op)
        if place < first:
            continue
        # What has waited long survives as a whole or not at all.
        units = [waiting[:-RECENT], *([one] for one in waiting[-RECENT:])]
        for kept in subsets(len(units)):
            some = [one for at in kept for one in units[at]]
            wrote = any(one.what == "write" for one in some)
            for written in ("whole", "zeros", "half") if wrote else ("whole",):
                disk = synced.copy()
                for one in some:
                    disk.apply(one, written)
                yield promised, disk


def subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Of so many calls: all but at most three survive, or at most three do."""
    few = range(min(DEEP, count) + 1)
    kept = {one for size in few for one in itertools.combinations(range(count), size)}
    kept |= {
        tuple(at for at in range(count) if at not in lost)
        for size in few
        for lost in itertools.combinations(range(count), size)
    }
    yield from sorted(kept)


def objects(disk: Disk, root: int) -> dict[str, bytes]:
    """A disk's checkpoint."""
    return {name.removeprefix("deep/run/"): data for name, data in disk.objects(root)}


def distinct(
    recorder: Recorder, found: Iterable[tuple[int, Disk]]
) -> list[tuple[int, dict[str, bytes]]]:
    """What was promised and the checkpoint there is, each pair once."""
    once: dict[Any, dict[str, bytes]] = {}
    for promised, disk in found:
        there = objects(disk, recorder.root)
        once.setdefault((promised, frozenset(there.items())), there)
    return [(promised, there) for (promised, _), there in once.items()]


def survived(promised: int, there: dict[str, bytes]) -> Verdict:
    """The last commit that was promised is there, or the one after it."""
    store = DictStore()
    store.objects = dict(there)
    return stands(store, (promised, promised + 1) if promised >= 0 else (None, 0))


@kind("power-cuts", quick=300)
@contextmanager
def power_cuts(folder: Path) -> Iterator[Cases]:
    """the power fails after any call; unsynced changes survive in any combination"""
    recorder = lived(folder)
    cases = distinct(recorder, states(recorder.ops))
    yield Cases(range(len(cases)), lambda seed: survived(*cases[seed]))


EACH = 48


@kind("power-cuts-after-errors", quick=20)
@contextmanager
def power_cuts_after_errors(folder: Path) -> Iterator[Cases]:
    """any change fails once, is repeated, and then the power fails"""
    changes = sum(op.what != "promise" for op in lived(folder).ops)

    @lru_cache(maxsize=16)
    def after(fails_at: int) -> list[tuple[int, dict[str, bytes]]]:
        recorder = lived(folder, fails_at)
        # A commit's time: by then what was left of the error is behind.
        until = recorder.failed_after + 40
        return distinct(recorder, states(recorder.ops[:until], recorder.failed_after))

    def run(seed: int) -> Verdict:
        cuts = after(1 + seed // EACH)
        return survived(*cuts[seed % EACH * len(cuts) // EACH])

    yield Cases(range(EACH * changes), run)
