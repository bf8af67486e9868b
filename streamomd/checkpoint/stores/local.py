"""Local disk: direct os calls, because a commit must survive a power failure.

``.tmp-HOST-PID-UUID``: only the host that wrote one can check whether its process still runs.
"""

from __future__ import annotations

import errno
import io
import os
import re
import socket
import stat
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from streamomd.core.errors import StorageError, StreamomdError
from streamomd.core.platform_calls import FILE, FOLDER, NO_LINK, folder_calls, process_exists
from streamomd.core.urls import shown

_NAME = re.compile(r"\.tmp-(?:(?P<host>[0-9A-Za-z_.-]+)-(?P<pid>[0-9]{1,10})-)?[0-9a-f]{32}")


def temporary_name() -> str:
    """A new unique name for this process."""
    return f".tmp-{_host()}-{os.getpid()}-{uuid.uuid4().hex}"


def is_abandoned(name: str) -> bool:
    """Whether the process that wrote it ran on this host and no longer exists."""
    found = _NAME.fullmatch(name)
    if not found or found["host"] != _host():
        return False
    return not process_exists(int(found["pid"]))


def temporary_files(root: str) -> list[str]:
    """Temporary files anywhere below a directory, by path; symbolic links are not followed."""
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if _NAME.fullmatch(name)
    )


def remove_abandoned(root: str) -> None:
    """Remove files of dead processes of this host; ignore those that cannot be removed."""
    for path in _abandoned(root):
        with suppress(OSError):
            disk.unlink(path)


def remove_abandoned_outputs(fs: Any, root: str) -> None:
    """Remove what dead processes of this host left in a directory of outputs: files and folders.

    fs: an fsspec file system. What cannot be listed or removed is ignored; what is below the
    directory's other folders is not looked at.
    """
    with suppress(OSError):
        for path in fs.ls(root, detail=False):
            if is_abandoned(str(path).rstrip("/").rpartition("/")[2]):
                with suppress(OSError):
                    fs.rm(path, recursive=True)


def _abandoned(root: str) -> Iterator[str]:
    return (path for path in temporary_files(root) if is_abandoned(os.path.basename(path)))


def _host() -> str:
    """Name of this machine, with only characters that are valid in a file name."""
    return re.sub(r"[^0-9A-Za-z_.]", "_", socket.gethostname()) or "localhost"


disk = folder_calls()
READ = os.O_RDONLY | FILE
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE
MODE = 0o755  # of directories: only the owner may write, regardless of the umask
BLOCK = 1 << 20
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class LocalStore:
    """A directory. Symbolic links below it are not followed."""

    exclusive = True
    in_flight = 1  # a disk does not wait for an answer: each file is synced before the next
    part_bytes = 0  # larger parts are not faster on a disk, and take more memory
    consistent = False  # a directory is listed and a file is looked up without waiting

    def __init__(self, root: str) -> None:
        self.url = root
        self._durable: set[str] = set()

    def read(self, name: str, most: int | None = None) -> bytes:
        """See ``Store``."""
        with (
            self._inside(name) as (folder, leaf),
            open(leaf, "rb", opener=lambda path, _: disk.open(path, READ, dir_fd=folder)) as file,
        ):
            found = disk.fstat(file.fileno())
            _require_file(found)
            # A buffer is allocated for what is asked for, not for what is there.
            return file.read(-1 if most is None else min(most, found.st_size))

    def size(self, name: str) -> int | None:
        """See ``Store``."""
        try:
            with self._inside(name) as (folder, leaf):
                found: os.stat_result = disk.stat(leaf, dir_fd=folder, follow_symlinks=False)
                _require_file(found)
                return found.st_size
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        """See ``Store``. It was read back; that its name is there is left to check."""
        with self._temporary(name, data) as (folder, temporary, leaf):
            disk.replace(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        return False

    def create(self, name: str, data: bytes) -> bool:
        """See ``Store``. Hard links: exactly one of two writers wins, and no file is incomplete."""
        with self._temporary(name, data) as (folder, temporary, leaf):
            try:
                disk.link(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
            except FileExistsError:
                # Its writer, perhaps an earlier attempt of ours, may not have synced the name.
                disk.fsync(folder)
                raise
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                raise StorageError(
                    f"{shown(self.url)} is on a file system without hard links, which a commit "
                    "needs: save the checkpoint on another disk"
                ) from None
        return False

    def tree(self) -> None:
        """See ``Store``."""

    def probe(self, name: str, data: bytes) -> None:
        """See ``Store``."""

    def names(self, folder: str) -> list[str]:
        """See ``Store``."""
        try:
            with self._inside(folder) as (handle, _):
                return [folder + name for name in disk.listdir(handle)]
        except FileNotFoundError:
            return []

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Store``."""
        try:
            with self._inside(folder) as (handle, _):
                found = {
                    leaf: disk.stat(leaf, dir_fd=handle, follow_symlinks=False)
                    for leaf in disk.listdir(handle)
                }
        except FileNotFoundError:
            return {}
        return {
            folder + leaf: one.st_size for leaf, one in found.items() if stat.S_ISREG(one.st_mode)
        }

    def delete(self, name: str) -> None:
        """See ``Store``. An emptied ``data/*`` folder goes too."""
        with suppress(FileNotFoundError), self._inside(name) as (folder, leaf):
            disk.unlink(leaf, dir_fd=folder)
            disk.fsync(folder)
        if name.startswith("data/"):
            with suppress(OSError), self._inside(os.path.dirname(name)) as (data, emptied):
                disk.rmdir(emptied, dir_fd=data)

    def delete_all(self, names: Collection[str]) -> None:
        """See ``Store``."""
        for name in names:
            self.delete(name)

    @contextmanager
    def _temporary(self, name: str, data: bytes) -> Iterator[tuple[int, str, str]]:
        """A synced temporary file in the same folder; the body publishes it."""
        temporary = temporary_name()
        with self._inside(name, make=True) as (folder, leaf):
            try:
                _write(temporary, folder, data)
                yield folder, temporary, leaf
                disk.fsync(folder)
            finally:
                with suppress(OSError):
                    disk.unlink(temporary, dir_fd=folder)

    @contextmanager
    def _inside(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A handle of the folder of a name, and the last component of the name."""
        *folders, leaf = name.split("/")
        with self._storage_errors(name, writing=make):
            if make and not self._durable:
                _make_root(self.url)
                remove_abandoned(self.url)
            handle = disk.open(self.url, FOLDER)
            try:
                for depth, folder in enumerate(folders, 1):
                    if make:
                        self._make("/".join(folders[:depth]), folder, handle)
                    outer, handle = handle, disk.open(folder, FOLDER | NO_LINK, dir_fd=handle)
                    disk.close(outer)
                yield handle, leaf
            finally:
                disk.close(handle)

    def _make(self, path: str, folder: str, parent: int) -> None:
        if path not in self._durable:
            with suppress(FileExistsError):
                disk.mkdir(folder, MODE, dir_fd=parent)
            # Even if it existed: the process that made it may have died before syncing.
            disk.fsync(parent)
            self._durable.add(path)

    @contextmanager
    def _storage_errors(self, name: str, *, writing: bool) -> Iterator[None]:
        try:
            yield
        except StreamomdError:
            raise
        except OSError as error:
            if isinstance(error, FileExistsError if writing else FileNotFoundError):
                raise
            action = "written" if writing else "used"
            where = f"{shown(self.url)}/{name}"
            raise StorageError(f"{where} cannot be {action}: {error.strerror or error}") from None


def _write(name: str, folder: int, data: bytes) -> None:
    """Never retried: after a failed fsync the same handle may report success wrongly."""
    handle = disk.open(name, CREATE, 0o644, dir_fd=folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[disk.write(handle, rest) :]
        disk.fsync(handle)
        _compare(handle, data)
    finally:
        disk.close(handle)


def _compare(handle: int, data: bytes) -> None:
    """Read the file back, before an older commit may be deleted for it."""
    at, block = 0, bytearray(min(BLOCK, len(data) + 1))  # one: fresh memory costs page faults
    with io.FileIO(handle, closefd=False) as file:
        file.seek(0)
        while size := file.readinto(block):
            # Two memoryviews would be compared byte by byte.
            if not data.startswith(memoryview(block)[:size], at):
                break
            at += size
    if size or at != len(data):
        raise OSError(errno.EIO, "the data read back differ from the data written")


def _make_root(root: str) -> None:
    parent = os.path.dirname(root)
    if not os.path.isdir(parent):
        _make_root(parent)
    with suppress(FileExistsError):
        disk.mkdir(root, MODE)
    # A parent without read permission cannot be synced.
    with suppress(PermissionError):
        handle = disk.open(parent, FOLDER)
        try:
            disk.fsync(handle)
        finally:
            disk.close(handle)


def _require_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
