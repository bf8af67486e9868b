"""The folder of the user's cache: files made of text, of messages and of rows in memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from streamomd.core.errors import StorageError
from streamomd.core.platform_calls import others_can_write, user_id
from streamomd.core.urls import shown

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
        found = os.lstat(place)
        owners = (own, 0) if place == root else (own,)
        if place == root and stat.S_ISLNK(found.st_mode) and found.st_uid in owners:
            found = os.stat(place)
        shared = others_can_write(found)
        sticky = place == root and found.st_mode & stat.S_ISVTX
        private = found.st_uid in owners and (sticky or not shared)
        if not private or not stat.S_ISDIR(found.st_mode):
            raise StorageError(
                f"{shown(str(place))}, for converted text, is not a directory that only this user "
                f"can write: run chmod go-w on it, remove it, or set {VARIABLE} to another one"
            )
