"""Writes that end early: at any byte of any file, by the system's word, a full disk or a kill."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calls import DEEDS, KilledError, Os, afterwards, under
from kinds import Cases, Verdict, kind

COMMIT, BEGIN = DEEDS["commit"], DEEDS["begin"]


class Meter(Os):
    """Module os that counts what is written, and at byte ``at`` of it does ``what``."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__()
        self.at, self.what, self.written, self.over = at, what, 0, False

    def write(self, handle: int, data: memoryview) -> int:
        room = self.at - self.written
        if self.over or not 0 <= room < len(data):
            if self.over and self.what != "short":
                raise self._error()
            self.written += len(data)
            return os.write(handle, data)
        self.over = True
        self.written += room
        done = os.write(handle, data[:room])
        if self.what == "short" and room:
            return done
        if self.what == "short":
            return self.write(handle, data)
        if self.what == "full" and room:
            return done
        raise self._error()

    def made(self, name: str, do: Callable[[], Any]) -> Any:
        if self.over and self.what == "killed" and name != "close":
            raise KilledError
        return do()

    def _error(self) -> BaseException:
        if self.what == "killed":
            return KilledError()
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _length(folder: Path) -> int:
    meter = Meter(1 << 60, "short")
    under(meter, COMMIT, str(folder / "length"))
    return meter.written


@kind("short-writes", quick=100)
@contextmanager
def short_writes(folder: Path) -> Iterator[Cases]:
    """a write ends at any byte of a part, document or manifest: short, full, killed"""
    length = _length(folder)
    whats = ("short", "full", "killed")

    def run(seed: int) -> Verdict:
        at, what = seed // 3, whats[seed % 3]
        place = str(folder / str(seed))
        meter = Meter(at, what)
        verdict, writer = under(meter, COMMIT, place)
        if meter.over and what == "short" and verdict is not Verdict.SAME:
            return Verdict.LOST
        verdict = afterwards(verdict, writer, place, again=what == "full")
        shutil.rmtree(place)
        return verdict

    yield Cases(range(3 * length), run)


@kind("file-size-limits", quick=60)
@contextmanager
def file_size_limits(folder: Path) -> Iterator[Cases]:
    """the kernel refuses to let a file grow beyond any length (RLIMIT_FSIZE)"""
    under(Os(), COMMIT, str(folder / "whole"))
    longest = max(file.stat().st_size for file in (folder / "whole").rglob("*") if file.is_file())

    def run(seed: int) -> Verdict:
        place = str(folder / str(seed))
        deed = (COMMIT, BEGIN)[seed % 2]
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

        class Limited(Os):
            """Module os; the limit holds while a file is written, and not for other files."""

            def write(self, handle: int, data: memoryview) -> int:
                resource.setrlimit(resource.RLIMIT_FSIZE, (seed // 2, hard))
                try:
                    return os.write(handle, data)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

        verdict, writer = under(Limited(), deed, place)
        verdict = afterwards(verdict, writer, place, again=True)
        shutil.rmtree(place)
        return verdict

    yield Cases(range(2 * (longest + 2)), run)


@kind("full-disk", quick=100)
@contextmanager
def full_disk(folder: Path) -> Iterator[Cases]:
    """a disk with space for N bytes, until something is deleted"""
    length = _length(folder)

    def run(seed: int) -> Verdict:
        place = str(folder / str(seed))
        deed = (COMMIT, BEGIN)[seed % 2]
        verdict, writer = under(Budget(4 * (seed // 2)), deed, place)
        verdict = afterwards(verdict, writer, place, again=True)
        shutil.rmtree(place)
        return verdict

    yield Cases(range(2 * (length // 4 + 8)), run)


class Budget(Os):
    """Module os on a disk with so many free bytes; deleting a file's last name frees its own."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free

    def write(self, handle: int, data: memoryview) -> int:
        if not self.free and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = os.write(handle, data[: self.free])
        self.free -= done
        return done

    def unlink(self, name: str, *, dir_fd: int) -> None:
        there = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        os.unlink(name, dir_fd=dir_fd)
        if there.st_nlink == 1:
            self.free += there.st_size


@kind("lying-disk", quick=60)
@contextmanager
def lying_disk(folder: Path) -> Iterator[Cases]:
    """a write reports success, and the file has other bytes; one commit is retained"""
    under(told := _Counting(), COMMIT, str(folder / "counted"))
    cases = [(at, lie) for at in range(1, told.writes + 1) for lie in LIES for _ in range(4)]

    def run(seed: int) -> Verdict:
        at, lie = cases[seed]
        place = str(folder / str(seed))
        verdict, writer = under(Lying(at, lie, seed), COMMIT, place)
        verdict = afterwards(verdict, writer, place, again=True)
        shutil.rmtree(place)
        return verdict

    yield Cases(range(len(cases)), run)


LIES = ("flipped", "zeros", "lost")


class _Counting(Os):
    """Module os that counts its writes."""

    writes = 0

    def write(self, handle: int, data: memoryview) -> int:
        self.writes += 1
        return os.write(handle, data)


class Lying(_Counting):
    """Module os, whose write number ``at`` is a lie."""

    def __init__(self, at: int, lie: str, seed: int) -> None:
        super().__init__()
        self.at, self.lie, self.seed = at, lie, seed

    def write(self, handle: int, data: memoryview) -> int:
        self.writes += 1
        if self.writes != self.at:
            return os.write(handle, data)
        bad = bytearray(len(data) if self.lie == "zeros" else data)
        if self.lie == "flipped":
            bad[self.seed * 37 % len(bad)] ^= 1 << self.seed % 8
        os.write(handle, bad[: len(bad) - 1 - self.seed % 9] if self.lie == "lost" else bad)
        return len(data)
