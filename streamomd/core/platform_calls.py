"""Calls that not every operating system has, each with a fallback: only this file asks for them.

Linux has all of them. tests/project/test_platforms.py trains, resumes, updates, predicts and serves
in a process from which they are removed.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from streamomd.core.errors import StoppedError
from streamomd.core.startup import exit_now

try:
    import resource  # early: later there may be no memory to import it
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

POSIX = os.name == "posix"
RECORDS_CHANGES = sys.platform == "linux"
"""Whether st_ctime changes with every write, also of a file that is watched."""
WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0)
"""A flag of open: opening a pipe does not wait for its writer."""
ATTEMPTS, PAUSE = 20, 0.05


def process_exists(pid: int) -> bool:
    """Whether this machine has the process; True where that is unknown.

    >>> process_exists(os.getpid())
    True
    """
    if not POSIX:  # there signal 0 is Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's, or an invalid process id
        return True
    return True


def usable_cores() -> int:
    """Processor cores that this process may use.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_average() -> float:
    """Processes that want a core, as a mean of the last minute; 0 where the system has no figure.

    >>> load_average() >= 0
    True
    """
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def memory_within(limits: Iterable[str]) -> float:
    """Bytes of memory available to this process; infinite where the system does not report it.

    limits: files of control groups. Linux reports both.
    """
    found = [math.inf]
    with suppress(OSError):
        words = Path("/proc/meminfo").read_text().split()
        found.append(1024.0 * int(words[words.index("MemAvailable:") + 1]))
    for limit in limits:
        with suppress(OSError, ValueError):  # no such group, or "max"
            found.append(float(int(Path(limit).read_text()) - _resident()))
    return min(found)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def address_space_limit() -> int | None:
    """Bytes of address space that this process may map; None for no limit."""
    if resource is None:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def open_files(wanted: int) -> int:
    """Files that this process may open, after the limit was raised to ``wanted`` if possible."""
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def set_allocator(options: Iterable[tuple[int, int]]) -> None:
    """Set options of glibc's allocator; does nothing with another C library."""
    import ctypes  # late: few processes read shards

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if POSIX else None
    if mallopt is not None:
        for option, value in options:
            mallopt(option, value)


def read_ahead(file: Any) -> None:
    """Advise the system that an open file is read from its beginning to its end."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # it is advice
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)


def reader_at() -> Callable[[int, Any, int], int] | None:
    """Reads from a place of an open file into memory, for several threads; None: seek and read."""
    if not hasattr(os, "preadv"):
        return None
    return lambda handle, view, offset: os.preadv(handle, [view], offset)


def user_id() -> int | None:
    """This process's user; None where files have owners of another kind."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def others_can_write(found: os.stat_result) -> bool:
    """Whether the mode of a file lets other users write; False where modes do not say that."""
    return user_id() is not None and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def to_slashes(path: str, separator: str = os.sep) -> str:
    """A local path with / between its names, which every system reads.

    >>> to_slashes("C:\\\\data\\\\x.parquet", separator="\\\\")
    'C:/data/x.parquet'
    """
    return path if separator == "/" else path.replace(separator, "/")


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file the name of another. Windows refuses that while a reader has the other open:
    waits a second for it."""
    for _ in range(0 if POSIX else ATTEMPTS):
        with suppress(PermissionError):
            os.replace(source, target)
            return
        time.sleep(PAUSE)
    os.replace(source, target)


_IS_FOLDER = getattr(os, "O_DIRECTORY", 1 << 30)  # a flag that no system has, for NamedFolders
FOLDER = os.O_RDONLY | _IS_FOLDER | getattr(os, "O_CLOEXEC", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FILE = NO_LINK | WITHOUT_WAITING | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags of open: of folders, of what must not be a symbolic link, and of files without waiting."""


def folder_calls() -> Any:
    """The calls of module os on files relative to an open folder: that module if it has them."""
    has_handles = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
    return os if has_handles else NamedFolders()


class NamedFolders:
    """Folders by their names, for systems without handles of them; otherwise module os.

    Symbolic links are refused when a name is used, not in the same step. Windows has no sync of a
    folder: after a power failure the last commits may be missing, but none is incomplete.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._next = itertools.count(-2, -1)  # those of files are not negative
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """A handle of a file, or of a folder where the flags are ``FOLDER``."""
        name = self._name(path, dir_fd)
        if dir_fd is not None and os.path.islink(name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        if not flags & _IS_FOLDER:
            return os.open(name, flags, mode)
        if not stat.S_ISDIR(os.stat(name).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        with self._lock:
            handle = next(self._next)
            self._names[handle] = name
        return handle

    def close(self, handle: int) -> None:
        """Close a file or a folder."""
        if self._names.pop(handle, None) is None:
            os.close(handle)

    def fsync(self, handle: int) -> None:
        """Write a file to the disk; of a folder nothing can be."""
        if handle not in self._names:
            os.fsync(handle)

    def listdir(self, handle: int) -> list[str]:
        """The names in a folder."""
        return os.listdir(self._names[handle])

    def stat(self, name: str, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        """What is known of a file."""
        return os.stat(self._name(name, dir_fd), follow_symlinks=follow_symlinks)

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """Make a folder."""
        os.mkdir(self._name(path, dir_fd), mode)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """Remove an empty folder."""
        os.rmdir(self._name(name, dir_fd))

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        """Remove a file."""
        os.unlink(self._name(path, dir_fd))

    def replace(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Give a file the name of another."""
        replace(self._name(source, src_dir_fd), self._name(target, dst_dir_fd))

    def link(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Give a file a second name, which nothing may have."""
        os.link(self._name(source, src_dir_fd), self._name(target, dst_dir_fd))

    def _name(self, path: str, folder: int | None) -> str:
        return path if folder is None else os.path.join(self._names[folder], path)


class _Stop(BaseException):
    """Raised by the handler: code that handles errors of files must not take it for one."""


@contextmanager
def stopping_promptly(work: str, saved: str = "nothing of it was saved") -> Iterator[None]:
    """End what is inside at the first signal, in the main thread; at the second, the process.

    work: in the message, such as "converting rows.csv"; nothing of it may be in use after an
    exception. saved: what is left of it. Raises StoppedError. Ctrl-C stays KeyboardInterrupt unless
    the caller has a handler of its own, as a run that waits for the end of a batch; ignored signals
    stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ordinary = (signal.SIG_IGN, signal.default_int_handler, None)
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    before = {one: handler for one, handler in before.items() if handler not in ordinary}
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            exit_now(128 + number)
        received.append(number)
        raise _Stop

    handlers: Any = signal  # its constants are of more types than its functions declare
    for number in before:
        handlers.signal(number, receive)
    try:
        yield
    except _Stop:
        pass
    finally:
        for number, handler in before.items():
            handlers.signal(number, handler)
    if received:
        raise StoppedError(f"stopped while {work}; {saved}", signal=received[0])
