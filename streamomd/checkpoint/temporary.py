"""Names of temporary files on a local disk, and which of them nobody writes any more.

``.tmp-HOST-PID-UUID``: only the host that wrote one can know whether its process still runs.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress

_NAME = re.compile(r"\.tmp-(?:(?P<host>[0-9A-Za-z_.-]+)-(?P<pid>[0-9]{1,10})-)?[0-9a-f]{32}")


def temporary_name() -> str:
    """A new name of this process."""
    return f".tmp-{_host()}-{os.getpid()}-{uuid.uuid4().hex}"


def is_abandoned(name: str) -> bool:
    """Whether a process of this host wrote it that no longer exists."""
    found = _NAME.fullmatch(name)
    if not found or found["host"] != _host():
        return False
    try:
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it exists and is another user's; or no process id at all
        return False
    return False


def temporary_files(root: str) -> list[str]:
    """Temporary files anywhere below a directory, by path; links are not followed."""
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if _NAME.fullmatch(name)
    )


def remove_abandoned(root: str) -> None:
    """Remove what dead processes of this host left; what cannot be removed stays."""
    for path in _abandoned(root):
        with suppress(OSError):
            os.unlink(path)


def _abandoned(root: str) -> Iterator[str]:
    return (path for path in temporary_files(root) if is_abandoned(os.path.basename(path)))


def _host() -> str:
    """Of this machine, with nothing that a file name cannot hold."""
    return re.sub(r"[^0-9A-Za-z_.]", "_", socket.gethostname()) or "localhost"
