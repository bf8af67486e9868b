"""A local commit: what is synced when, and what is told when the disk does not do it."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import begin, holds, make_store, numbers

from streamomd.core.errors import StorageError


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


def test_a_disk_that_gives_back_other_bytes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is read again before it has its name: the commit before stands."""
    store = make_store("local", tmp_path)
    writer = begin(store, keep=1)

    class Changed(io.FileIO):
        def readinto(self, block: Any) -> int:
            size = super().readinto(block) or 0
            block[max(size - 1, 0)] = ord("?")
            return size

    monkeypatch.setattr(io, "FileIO", Changed)
    with pytest.raises(
        StorageError, match=r"safetensors cannot be written: the data read back differ"
    ):
        writer.commit({"rows": 10}, numbers(1))
    monkeypatch.undo()
    holds(store, 0)
