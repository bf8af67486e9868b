"""Watch local directories: wake when files appear there, and recognise files that were renamed.

The extra ``follow`` (watchfiles) reports that a name appeared, whether by rename or because a file
was created under it, and that a file was written to later. A file that appeared is complete if it
was not written to since, and

    it was renamed after its last write: its inode changed later than its contents; or
    it was not written to for ``QUIET`` seconds after it appeared: a rename within the clock tick of
    the last write (4 to 10 ms) leaves both times equal.

A writer that creates the file under its own name writes to it again, or its footer is missing;
then the file has to settle. Only Linux reports every write, so elsewhere no file is taken for
complete. Without the extra, and where directories cannot be watched, ``FileWatch`` polls.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from streamomd.core.platform_calls import RECORDS_CHANGES
from streamomd.core.urls import absolute
from streamomd.shards.filesystem import connect, is_local
from streamomd.sources.files.paths import fixed_directory, is_shard_name
from streamomd.sources.find import source_of

Report = Callable[[str], object]
QUIET = 1.0
"""Seconds without a write after which a file that appeared is complete."""
STEP_MS, DEBOUNCE_MS, TIMEOUT_MS = 10, 100, 50
"""watchfiles collects changes until none came for a step, or for the time of a debounce."""


class FileWatch:
    """Waits for files. This one polls: nothing is watched, the next listing shows what is new."""

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; whether a file appeared, or became complete, since the listing."""
        time.sleep(seconds)
        return False

    def complete(self) -> Mapping[str, int]:
        """Before a listing: paths of complete files, and when they got there (ns)."""
        return {}

    def written(self, paths: Collection[str]) -> bool:
        """Whether one of these, which were complete, was written to since."""
        return False

    def forget(self, paths: Collection[str]) -> None:
        """These files were learned."""

    def close(self) -> None:
        """Stop watching."""


class FolderWatch(FileWatch):
    """Directories, with all below if ``recursive``. writes: also wake when a file is written to.

    Raises OSError or RuntimeError if they cannot be watched.
    """

    def __init__(self, folders: Sequence[str], *, recursive: bool, writes: bool) -> None:
        import watchfiles

        self._change, self._writes = watchfiles.Change, writes
        # Its own polling, on some systems, would not report every write.
        self._changes = watchfiles.watch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            rust_timeout=TIMEOUT_MS,
            yield_on_timeout=True,
            force_polling=False,
            recursive=recursive,
            ignore_permission_denied=True,
        )
        self._appeared: dict[str, float] = {}
        self._new = False
        self._take()  # what appears from here on is seen

    def wait(self, seconds: float) -> bool:
        """See ``FileWatch``."""
        end, before = time.monotonic() + seconds, self._complete()
        while not self._new and time.monotonic() < end and self._complete() <= before:
            self._take()
        return self._new or not self._complete() <= before

    def complete(self) -> Mapping[str, int]:
        """See ``FileWatch``."""
        self._take()
        self._new = False
        return {path: _times(path)[0] for path in self._complete()}

    def written(self, paths: Collection[str]) -> bool:
        """See ``FileWatch``."""
        self._take()
        return not self._appeared.keys() >= set(paths)

    def forget(self, paths: Collection[str]) -> None:
        """See ``FileWatch``."""
        for path in paths:
            self._appeared.pop(path, None)

    def close(self) -> None:
        """See ``FileWatch``."""
        self._changes.close()

    def _take(self) -> None:
        """Take the changes that were reported."""
        changes, kinds = next(self._changes), self._change
        added, written, deleted = (
            {path for kind, path in changes if kind == wanted}
            for wanted in (kinds.added, kinds.modified, kinds.deleted)
        )
        # A file that is written to again has to settle.
        for path in written | deleted:
            self._appeared.pop(path, None)
        for path in added - written - deleted:
            if is_shard_name(path):
                self._appeared[path] = time.monotonic()
        self._new |= bool(added) or (self._writes and bool(written))

    def _complete(self) -> set[str]:
        if not RECORDS_CHANGES:
            return set()
        now, found = time.monotonic(), set[str]()
        for path, since in self._appeared.items():
            changed, written = _times(path)
            # A rename changes the inode, not the contents; changed is 0 of a file that is gone.
            if changed > written or (changed and now - since >= QUIET):
                found.add(path)
        return found


def _times(path: str) -> tuple[int, int]:
    """When the inode and the contents of a file last changed; zeros if it is gone."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ctime_ns, status.st_mtime_ns
    return 0, 0


def watch_sources(
    shards: Sequence[str], options: Mapping[str, Any], *, writes: bool, report: Report
) -> FileWatch:
    """Watch the directories of sources if all are on the local disk; else poll.

    report: called with the reason why local directories are not watched.
    """
    places = [source_of(text).watched(text) for text in shards]
    if not all(place and is_local(connect(place, options)) for place in places):
        return FileWatch()
    folders, recursive = set[str](), False
    for path in map(absolute, places):
        whole = os.path.isdir(path)
        folders.add(path if whole else fixed_directory(path))
        # A glob with a directory below its wildcard also finds files in later directories.
        recursive |= whole or "/" in path.removeprefix(fixed_directory(path) + "/")
    if recursive and not folders.isdisjoint(("", "/")):  # not the whole disk
        return FileWatch()
    try:
        return FolderWatch(sorted(folders), recursive=recursive, writes=writes)
    except ImportError:
        report(
            "watchfiles is not installed (pip install 'streamomd[follow]'): new files are polled"
        )
    # Such as where a limit on watched directories is reached; polling finds the same files.
    except (OSError, RuntimeError) as error:
        report(f"directories cannot be watched, new files are polled: {error}")
    return FileWatch()
