"""Power cuts: what was not synced is lost, at every system call, and the checkpoint still loads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import begin, load_all, numbers, plain

from streamomd.checkpoint import Writer, local, open_store
from streamomd.errors import NoCommitError

CHANGES = ("write", "link", "replace", "unlink", "mkdir", "rmdir", "fsync")


class Disk:
    """Module os, keeping beside the files what of them would survive a power cut.

    A file survives as it was when it was synced last, a name when its folder was. Of each change
    ``after`` is told. ``forget``: syncs that are left out, "files" or "folders".
    """

    def __init__(self, root: Path, forget: str = "") -> None:
        self.root, self.forget = root, forget
        self.files: dict[int, bytes] = {}
        self.folders: dict[int, dict[str, int]] = {os.stat(root).st_ino: {}}
        self.after: Callable[[], None] = lambda: None
        self._graves: list[int] = []  # open handles, so that no inode number comes twice

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._told(real) if name in CHANGES and name != "fsync" else real

    def _told(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            done = real(*args, **options)
            self.after()
            return done

        return call

    def open(self, path: str, flags: int, mode: int = 0o777, **options: Any) -> int:
        handle = os.open(path, flags, mode, **options)
        inode = os.fstat(handle).st_ino
        if inode not in self.files and inode not in self.folders:
            self._graves.append(os.dup(handle))
            (self.folders if flags & os.O_DIRECTORY else self.files)[inode] = (
                {} if flags & os.O_DIRECTORY else b""
            )
        return handle

    def fsync(self, handle: int) -> None:
        inode = os.fstat(handle).st_ino
        if inode in self.folders:
            if self.forget != "folders":
                self.folders[inode] = {
                    name: os.stat(name, dir_fd=handle).st_ino for name in os.listdir(handle)
                }
        elif self.forget != "files":
            self.files[inode] = Path(f"/proc/self/fd/{handle}").read_bytes()
        self.after()

    def survives(self, to: Path) -> None:
        """Build what a power cut would leave now."""
        self._build(os.stat(self.root).st_ino, to)

    def close_graves(self) -> None:
        for handle in self._graves:
            os.close(handle)

    def _build(self, folder: int, to: Path) -> None:
        to.mkdir()
        for name, inode in self.folders[folder].items():
            if inode in self.files:
                (to / name).write_bytes(self.files[inode])
            else:
                self.folders.setdefault(inode, {})
                self._build(inode, to / name)


def a_life(folder: str, promised: list[int]) -> Iterator[None]:
    """A run, a take-over, and commits beyond ``keep``; what is promised is told as it is."""
    writer = begin(open_store(folder), keep=2)
    promised.append(0)
    yield
    for at in (1, 2, 3):
        writer.commit({"rows": 10 * at}, numbers(at))
        promised.append(at)
        yield
    store = open_store(folder)
    writer = Writer.take_over(store, load_all(store)[0], keep=1)
    yield
    for at in (4, 5):
        writer.commit({"rows": 10 * at}, numbers(at))
        promised.append(at)
        yield


def cut_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: str = "") -> int:
    """Live, and after every call look at what a power cut would leave; how many states there were.

    What survives is the last commit that was promised, or the one after it.
    """
    root = tmp_path / "disk"
    root.mkdir()
    disk, promised = Disk(root, forget), [-1]
    states = 0

    def check() -> None:
        nonlocal states
        states += 1
        to = tmp_path / f"after-{states}"
        monkeypatch.setattr(local, "os", os)
        disk.survives(to)
        try:
            loaded, parts = load_all(open_store(str(to / "deep" / "run")))
        except NoCommitError:
            assert promised[-1] == -1
        else:
            number = loaded.commit.document["rows"] // 10
            assert number in (promised[-1], promised[-1] + 1)
            assert parts == plain(numbers(number))
        monkeypatch.setattr(local, "os", disk)

    disk.after = check
    monkeypatch.setattr(local, "os", disk)
    try:
        for _ in a_life(str(root / "deep" / "run"), promised):
            check()
    finally:
        monkeypatch.setattr(local, "os", os)
        disk.close_graves()
    return states


def test_a_power_cut_loses_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every call of a run's life: the last commit promised is there whole, or the next."""
    assert cut_everywhere(tmp_path, monkeypatch) > 150


@pytest.mark.parametrize("forget", ["files", "folders"])
def test_each_kind_of_sync_is_needed(
    forget: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above sees it when files, or folders, are not synced: it can fail."""
    with pytest.raises(AssertionError):
        cut_everywhere(tmp_path, monkeypatch, forget)
