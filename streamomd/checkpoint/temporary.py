"""Names of temporary files on a local disk, and which of them are abandoned.

``.tmp-HOST-PID-UUID``: only the host that wrote one can check whether its process still runs.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_NAME = re.compile(r"\.tmp-(?:(?P<host>[0-9A-Za-z_.-]+)-(?P<pid>[0-9]{1,10})-)?[0-9a-f]{32}")


def temporary_name() -> str:
    """A new unique name for this process."""
    return f".tmp-{_host()}-{os.getpid()}-{uuid.uuid4().hex}"


def is_abandoned(name: str) -> bool:
    """Whether the process that wrote it ran on this host and no longer exists."""
    found = _NAME.fullmatch(name)
    if not found or found["host"] != _host():
        return False
    try:
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process, or an invalid process id
        return False
    return False


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
            os.unlink(path)


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
