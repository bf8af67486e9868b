"""A local commit that fails or dies at any of its calls leaves the old commit or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import begin, holds, load_all, make_store, numbers, plain

from streamomd.checkpoint import Writer, commits
from streamomd.checkpoint import local as module
from streamomd.errors import NoCommitError, StorageError, StreamomdError

CALLS = ("open", "write", "fsync", "link", "replace", "mkdir", "unlink", "close", "stat", "listdir")
MANY = 400


class Died(BaseException):
    """The process, killed."""


class FaultyOs:
    """Module ``os`` as ``local.py`` sees it, whose n-th call fails; ``after``: once it was done."""

    def __init__(
        self, fails_at: int, fault: Callable[[], BaseException], *, for_ever: bool
    ) -> None:
        self.left, self.fault, self.for_ever = fails_at, fault, for_ever
        self.after = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._wrapped(real) if name in CALLS else real

    def _wrapped(self, real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            fails = self.left == -1 or (self.left < 0 and self.for_ever)
            if fails and not self.after and real is not os.close:
                raise self.fault()
            done = real(*args, **options)
            if fails and real not in (os.open, os.listdir):
                raise self.fault()
            return done

        return call


def died() -> BaseException:
    return Died()


def failed(number: int) -> Callable[[], BaseException]:
    return lambda: OSError(number, os.strerror(number))


FAULTS = {
    "EIO": (failed(errno.EIO), False),
    "ENOSPC": (failed(errno.ENOSPC), False),
    "EIO for ever": (failed(errno.EIO), True),
    "EROFS for ever": (failed(errno.EROFS), True),
    "killed": (died, True),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", FAULTS)
def test_every_call_of_a_commit_may_fail(
    name: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit 1 is there whole or not at all; a commit that was reported made is there."""
    fault, for_ever = FAULTS[name]
    for fails_at in range(MANY):
        store = make_store("local", tmp_path / str(fails_at))
        writer = begin(store)
        faulty = FaultyOs(fails_at, fault, for_ever=for_ever)
        faulty.after = after
        monkeypatch.setattr(module, "os", faulty)
        made = attempt(writer)
        monkeypatch.setattr(module, "os", os)
        there = load_all(store)[0].commit.sequence
        holds(store, there)
        assert made in (None, there)
        assert all(one["ok"] for one in commits(store, deep=True))
        if faulty.left >= 0:
            assert made == 1
            return
        goes_on(writer, store, there, dead=fault is died)
    raise AssertionError("a commit makes fewer calls than this")


def attempt(writer: Writer) -> int | None:
    with contextlib.suppress(StorageError, Died):
        return writer.commit({"rows": 10}, numbers(1)).sequence
    return None


def goes_on(writer: Writer, store: Any, there: int, *, dead: bool) -> None:
    """After the fault has passed, the same writer commits; after a death, one that takes over."""
    if dead:
        writer = Writer.take_over(store, load_all(store)[0])
    writer.commit({"rows": 20}, numbers(2))
    assert holds(store, 2).commit.sequence == there + 1 + dead


@pytest.mark.parametrize("name", ["ENOSPC", "killed"])
def test_every_call_of_the_first_commit_may_fail(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commit 0 is there or not; if it is not, ``begin`` works again."""
    fault, for_ever = FAULTS[name]
    for fails_at in range(MANY):
        store = make_store("local", tmp_path / str(fails_at))
        faulty = FaultyOs(fails_at, fault, for_ever=for_ever)
        monkeypatch.setattr(module, "os", faulty)
        with contextlib.suppress(StreamomdError, Died):
            begin(store)
        monkeypatch.setattr(module, "os", os)
        store = make_store("local", tmp_path / str(fails_at))
        try:
            _, parts = load_all(store)
            assert parts == plain(numbers(0))
        except NoCommitError:
            begin(store)
        holds(store, 0)
        if faulty.left >= 0:
            return
    raise AssertionError("a commit makes fewer calls than this")


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is whole though the system takes three bytes at a time."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:3]))
    store = make_store("local", tmp_path)
    begin(store)
    monkeypatch.undo()
    holds(store, 0)


def test_everything_is_synced_before_the_manifest_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file before it is named, each folder after; the manifest's name comes after all else."""
    store = make_store("local", tmp_path)
    writer = begin(store)
    done: list[str] = []
    inodes: dict[int, str] = {}

    def told(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            if name == "fsync":
                done.append(f"sync {os.readlink(f'/proc/self/fd/{args[0]}').rsplit('/', 1)[-1]}")
            elif name == "mkdir":
                done.append("mkdir")
            else:
                inodes[len(done)] = args[0]
                done.append(f"{name} {args[0]} {args[1]}")
            return real(*args, **options)

        return call

    for name in ("fsync", "link", "replace", "mkdir"):
        monkeypatch.setattr(os, name, told(name))
    writer.commit({"rows": 10}, numbers(1))
    monkeypatch.undo()
    for at, temporary in inodes.items():
        assert done[at - 1] == f"sync {temporary}"
        assert done[at + 1].startswith("sync ")
    made = done.index("mkdir")
    assert done[made + 1] == "sync data"
    assert [line.split()[0] for line in done if "safetensors" in line] == ["replace"] * 2
    assert done[-2].startswith("link ")
    assert done[-2].endswith(" 000000000001.json")
    assert done[-1] == "sync commits"


def test_a_disk_without_hard_links_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a link cannot be made, commits are refused with what to do."""

    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=r"without hard links.*another disk"):
        begin(make_store("local", tmp_path))


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and the system's words are in the message, and no temporary stays."""
    store = make_store("local", tmp_path)
    writer = begin(store)

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(
        StorageError, match=r"p0+-0+4\.safetensors cannot be written: No space left"
    ):
        writer.commit({"rows": 10}, numbers(1))
    assert not list((tmp_path / "run").rglob(".tmp-*"))
