"""Retirement and take-over on the local disk, broken at each of their system calls."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import a_run, begin, load_all, numbers, plain

from streamomd.checkpoint import Writer, commits, local, open_store
from streamomd.errors import NoCommitError, StorageError

DEEDS = (
    *("open", "write", "fsync", "close", "link", "replace"),
    *("unlink", "mkdir", "rmdir", "stat", "fstat", "listdir"),
)


class CrashError(BaseException):
    """The process is gone: no call that comes after it does anything."""


class FaultyOs:
    """Module os, whose n-th call fails before or after it is done, or is the last one."""

    def __init__(self, at: int, fault: str) -> None:
        self.at, self.fault, self.calls, self.dead = at, fault, 0, False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self.wrapped(name, real) if name in DEEDS else real

    def wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            hit = self.calls == self.at
            self.dead |= hit and self.fault == "crash"
            # The kernel closes even where it says that it failed.
            if name == "close" or not (self.dead or hit) or (hit and self.fault == "done, EIO"):
                done = real(*args, **options)
            if self.dead:
                raise CrashError
            if not hit:
                return done
            if name == "open" and self.fault == "done, EIO":
                os.close(done)
            code = getattr(errno, self.fault.rpartition(" ")[2])
            raise OSError(code, os.strerror(code))

        return call


FAULTS = ("crash", "EIO", "ENOSPC", "done, EIO")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here: that is another file's idea."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(params=FAULTS)
def faults(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(request.param, monkeypatch)


class Faults:
    """A fault at the first call, the second, … until an action makes fewer."""

    def __init__(self, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault, self.at, self._patch = fault, 0, monkeypatch
        self._last: FaultyOs | None = None

    def __iter__(self) -> Iterator[int]:
        while self._last is None or self._last.calls >= self.at:
            self.at += 1
            yield self.at

    def through(self, action: Callable[[], Any]) -> bool:
        """Whether the action ends well; else it crashed or raised StorageError, nothing else."""
        self._last = FaultyOs(self.at, self.fault)
        with self._patch.context() as patch:
            patch.setattr(local, "os", self._last)
            try:
                action()
            except (CrashError, StorageError):
                return False
        return True


def settled(folder: str, old: int | None, new: int) -> int | None:
    """The number that is loaded is exactly the old or the new one, and nothing was rejected."""
    try:
        loaded, parts = load_all(open_store(folder))
    except NoCommitError:
        assert old is None
        return None
    rows = loaded.commit.document["rows"] // 10
    assert rows in (old, new)
    assert parts == plain(numbers(rows))
    assert loaded.rejected == ()
    return rows


def goes_on(folder: str) -> None:
    """Another process takes over or begins, commits, and all that is there is whole."""
    store = open_store(folder)
    try:
        writer = Writer.take_over(store, load_all(store)[0], keep=2)
    except NoCommitError:
        writer = begin(store)
    writer.commit({"rows": 30}, numbers(3))
    assert load_all(store)[1] == plain(numbers(3))
    assert all(one["ok"] for one in commits(store, deep=True))


def test_a_commit_is_made_or_not(faults: Faults, tmp_path: Path) -> None:
    """Wherever a commit or the retirement of old ones breaks: the old one or the new one, whole."""
    for at in faults:
        folder = str(tmp_path / f"{at}")
        writer = a_run(open_store(folder), 1, keep=1)
        commit = partial(writer.commit, {"rows": 20}, numbers(2))
        done = faults.through(commit)
        assert settled(folder, 1, 2) == 2 or not done
        if not done and faults.fault != "crash" and at % 2:
            commit()  # the same writer may try again
            assert settled(folder, 2, 2) == 2
        goes_on(folder)
    assert faults.at > 60


def test_a_take_over_loses_nothing(faults: Faults, tmp_path: Path) -> None:
    """Wherever loading or a take-over breaks, nothing is lost, and another one succeeds."""
    template = tmp_path / "template"
    a_run(open_store(str(template)), 1)

    def take_over(folder: str) -> None:
        store = open_store(folder)
        loaded, parts = load_all(store)
        assert parts == plain(numbers(1))
        Writer.take_over(store, loaded)

    for at in faults:
        folder = str(shutil.copytree(template, tmp_path / f"{at}"))
        faults.through(partial(take_over, folder))
        settled(folder, 1, 1)
        goes_on(folder)
    assert faults.at > 40
