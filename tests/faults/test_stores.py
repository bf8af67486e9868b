"""Stores that cannot exclude, that fail for a while or for ever, or are none: told by name."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from checkpoint_helpers import (
    DictStore,
    a_run,
    begin,
    holds,
    load_all,
    make_store,
    numbers,
)

from streamomd.checkpoint import Writer, open_store
from streamomd.checkpoint.manifest import manifest_name
from streamomd.checkpoint.stores import remote
from streamomd.checkpoint.stores.remote import RemoteStore
from streamomd.core.errors import ConcurrentWriterError, StorageError, UsageError


class Looking(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system as fsspec's defaults make it: it looks, then writes."""

    protocol = "looking"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.inner = fsspec.filesystem("memory")

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return self.inner.open(path, mode)

    def info(self, path: str, **options: Any) -> Any:
        return self.inner.info(path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return self.inner.ls(path, detail=detail)

    def rm_file(self, path: str) -> None:
        self.inner.rm_file(path)


def test_two_writers_without_exclusion_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """Where a store cannot refuse to overwrite, that is said, and an overwritten writer stops."""
    store = RemoteStore(Looking(), f"/{uuid.uuid4().hex}", "looking://run")
    old = a_run(store, 1)
    assert "does not support exclusive creation" in caplog.text
    new = Writer.take_over(store, load_all(store)[0])
    with pytest.raises(ConcurrentWriterError):
        old.commit({"rows": 99}, numbers(99))
    new.commit({"rows": 20}, numbers(2))
    holds(store, 2)


def test_an_overwritten_manifest_stops_its_writer() -> None:
    """A writer on a store without exclusion sees that its last commit is another's by now."""
    store = DictStore(exclusive=False)
    ours, theirs = a_run(store, 1), DictStore(exclusive=False)
    a_run(theirs, 1)
    store.objects[manifest_name(1)] = theirs.objects[manifest_name(1)]
    with pytest.raises(ConcurrentWriterError, match="at commit 1"):
        ours.commit({"rows": 20}, numbers(2))


class Shaky(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
    """Memory whose every operation fails a number of times first."""

    cachable = False
    failures = 2
    error: Exception = TimeoutError("timed out at https://key:secret@host/run?sig=secret")

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[Any, int] = {}

    def _shake(self, deed: str, path: str) -> None:
        left = self.left.setdefault((deed, path), self.failures)
        if left:
            self.left[deed, path] = left - 1
            raise self.error
        del self.left[deed, path]

    def cat_file(self, path: str, *args: Any, **options: Any) -> Any:
        self._shake("cat", path)
        return super().cat_file(path, *args, **options)

    def info(self, path: str, **options: Any) -> Any:
        self._shake("info", path)
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self._shake("ls", path)
        return super().ls(path, detail=detail, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self._shake("pipe", path)
        super().pipe_file(path, value, mode=mode, **options)


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.0)


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("error", [TimeoutError("slow"), PermissionError("403"), OSError("503")])
def test_passing_errors_are_overcome(error: Exception) -> None:
    """Time-outs, refusals and server errors that pass are asked again."""
    fs = Shaky()
    fs.error = error
    store = RemoteStore(fs, f"/{uuid.uuid4().hex}", "memory://run")
    a_run(store, 2, keep=1)
    holds(store, 2)


@pytest.mark.usefixtures("no_pause")
def test_lasting_errors_are_told_without_secrets() -> None:
    """An error that stays is StorageError, without userinfo or query, and no older commit."""
    root = f"/{uuid.uuid4().hex}"
    a_run(RemoteStore(fsspec.filesystem("memory"), root, "memory://run"), 1)
    fs = Shaky()
    fs.failures = 99
    with pytest.raises(StorageError, match="after 4 attempts: TimeoutError") as told:
        load_all(RemoteStore(fs, root, "memory://user:secret@run?sig=secret"))
    assert "secret" not in str(told.value)
    assert told.value.__cause__ is None


def test_a_url_without_a_file_system_is_a_usage_error() -> None:
    """An unknown protocol is refused by name."""
    with pytest.raises(UsageError, match="nosuch://x: unsupported URL"):
        open_store("nosuch://x")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A file where the directory should be is UsageError, one above it StorageError; by name."""
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UsageError, match=r"run is a file; a checkpoint is a directory"):
        make_store("local", tmp_path)
    with pytest.raises(StorageError, match=r"run/below/.* cannot be used: Not a directory"):
        begin(open_store(str(tmp_path / "run" / "below")))


def test_probes_are_cleared_away() -> None:
    """The probe of whether a store can refuse to overwrite is deleted again."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    begin(store)
    assert store.exclusive
    assert store.names("probe/") == []
