"""Folders of caches: the user's, and one of row groups, whose entries are complete before they get
their name, and bounded in size.

Several processes may share one: an entry is published by one rename, and a removed one stays
readable while it is open. Errors here are logged once and never stop a run.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamomd.core.errors import StorageError
from streamomd.core.platform_calls import others_can_write, process_exists, replace, user_id
from streamomd.core.urls import shown
from streamomd.features.buffers import BufferPool
from streamomd.shards.cache.entry import DamagedError, Draft, Entry

SUFFIX, DRAFT = ".arrow", ".part"
KEY_LETTERS, SHARD_LETTERS = 64, 32
AN_ENTRY = re.compile(rf"[0-9a-f]{{{KEY_LETTERS}}}\{SUFFIX}")
A_DRAFT = re.compile(rf"[0-9a-f]{{{KEY_LETTERS}}}\.(\d+)\.[0-9a-f]{{8}}\{DRAFT}")
SLACK = 64  # a 64th of the bound is freed in one batch, so that not every entry scans the folder
LEFT_SECONDS, OLD_SECONDS = 60, 86_400
GIB, MOST_BYTES = 1 << 30, 1 << 62


class CacheFolder:
    """Entries in a local folder, for one run; thread-safe.

    bound: bytes of all entries, 0 for any number; enforced from the start. To make room the least
    recently used ones are removed, but none of the run's own shards: if a run's rows do not fit,
    removing the least recently used would always remove the next one needed.
    """

    def __init__(self, path: str, bound: int, report: Callable[[str], None]) -> None:
        self.path = path
        self._bound, self._report = bound or MOST_BYTES, report
        self._lock = threading.Lock()
        self._buffers = BufferPool()
        self._ours: Callable[[], Collection[str]] = tuple
        self._said: set[str] = set()
        self._writes = True
        self._held = 0  # bytes, as far as known
        with suppress(OSError):
            if others_can_write(os.stat(path)):
                report(
                    f"cache: other users can write to {shown(path)}, and so could exchange the "
                    "rows that are learned: run chmod go-w on it"
                )
            self._held = self._freed(0)

    def open(self, key: str, columns: int) -> Entry | None:
        """The entry, if there is one with valid head and index; the caller closes it."""
        path = self._path(key)
        try:
            entry = Entry(path, key, columns, self._buffers)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._say("read", f"{shown(path)} cannot be read ({error.strerror})")
            return None
        except DamagedError as error:
            self.drop(key, error)
            return None
        with suppress(OSError):
            os.utime(path)
        return entry

    def spare(self, ours: Callable[[], Collection[str]]) -> None:
        """Entries whose keys begin with one of these, ``SHARD_LETTERS`` long, make no room."""
        self._ours = ours

    def drop(self, key: str, why: object) -> None:
        """Remove a damaged entry."""
        path = self._path(key)
        self._say("damaged", f"{shown(path)} is damaged ({why}) and is removed")
        with suppress(OSError):
            os.unlink(path)

    def begin(self, key: str) -> Draft | None:
        """A draft of an entry, to be published or removed; None when nothing is to be written."""
        if not self._writes:
            return None
        name = f"{key}.{os.getpid()}.{uuid.uuid4().hex[:8]}{DRAFT}"
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            return Draft(os.path.join(self.path, name), key)
        except OSError as error:
            self.cannot_write(error)
            return None

    def publish(self, key: str, draft: Draft, names: Any, digest: bytes) -> None:
        """Finish a draft, and give it the entry's name if there is room."""
        try:
            draft.finish(names, digest)
            size = os.stat(draft.path).st_size
            with self._lock:
                if self._has_room(size):
                    replace(draft.path, self._path(key))
                    return
                self._writes = False
            self._say(
                "full",
                f"{shown(self.path)} is full of this run's rows (data.cache_gib = "
                f"{self._bound / GIB:g})",
            )
        except OSError as error:
            self.cannot_write(error)
        draft.remove()

    def cannot_write(self, error: Exception) -> None:
        """Log the problem, and write nothing more in this run."""
        self._writes = False
        number = getattr(error, "errno", None)
        why = os.strerror(number) if number else error
        self._say("write", f"{shown(self.path)} cannot be written ({why})")

    def has(self, key: str) -> bool:
        """Whether there is an entry, of which nothing is looked at."""
        return os.path.exists(self._path(key))

    def _path(self, key: str) -> str:
        return os.path.join(self.path, key + SUFFIX)

    def _say(self, kind: str, text: str) -> None:
        with self._lock:
            known = kind in self._said
            self._said.add(kind)
        if not known:
            self._report(f"cache: {text}; missing rows are decoded from their shards")

    def _has_room(self, size: int) -> bool:
        """Whether this many more bytes fit, after making room for them."""
        if self._held + size > self._bound:
            self._held = self._freed(size)
        if self._held + size > self._bound:
            return False
        self._held += size
        return True

    def _freed(self, size: int) -> int:
        """Remove what was used least recently until there is room; bytes that are left."""
        entries = []
        with os.scandir(self.path) as found:
            for one in found:
                with suppress(OSError):
                    if draft := A_DRAFT.fullmatch(one.name):
                        _remove_left(one, int(draft[1]))
                    elif AN_ENTRY.fullmatch(one.name):
                        status = one.stat()
                        entries.append((status.st_mtime_ns, one.name, status.st_size))
        held = sum(entry[2] for entry in entries)
        if held + size <= self._bound:
            return held
        most, ours = self._bound - max(size, self._bound // SLACK), set(self._ours())
        for _, name, of_entry in sorted(entries):
            if held <= most:
                break
            if name[:SHARD_LETTERS] not in ours:
                with suppress(OSError):
                    os.unlink(os.path.join(self.path, name))
                    held -= of_entry
        return held


def _remove_left(draft: os.DirEntry[str], pid: int) -> None:
    """Remove a draft of a process that ended within it."""
    age = time.time() - draft.stat().st_mtime
    if age > OLD_SECONDS or (age > LEFT_SECONDS and not process_exists(pid)):
        os.unlink(draft.path)


VARIABLE = "STREAMOMD_CACHE_DIR"


def cache_root() -> Path:
    """The folder of the user's cache: STREAMOMD_CACHE_DIR, or streamomd below XDG_CACHE_HOME."""
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "streamomd"


def refuse_shared(folder: Path) -> None:
    """Raises StorageError if another user can write the folder or one that contains it.

    Such a user could exchange the shards. The root may be a link, and of all users where they
    cannot rename each other's files, as /tmp. Nothing is refused where modes do not name users.
    """
    root, own = cache_root(), user_id()
    if own is None:
        return
    for place in (root, folder.parent, folder):
        if not os.path.lexists(place):
            return
        status = os.lstat(place)
        owners = (own, 0) if place == root else (own,)
        if place == root and stat.S_ISLNK(status.st_mode) and status.st_uid in owners:
            status = os.stat(place)
        shared = others_can_write(status)
        sticky = place == root and status.st_mode & stat.S_ISVTX
        private = status.st_uid in owners and (sticky or not shared)
        if not private or not stat.S_ISDIR(status.st_mode):
            raise StorageError(
                f"{shown(str(place))}, for converted text, is not a directory that only this user "
                f"can write: run chmod go-w on it, remove it, or set {VARIABLE} to another one"
            )
