"""The version of this package, as its installation names it: pyproject.toml is the one source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from streamomd.core.errors import (
    CorruptionError,
    DataError,
    NoCommitError,
    UnsupportedError,
    UsageError,
)
from streamomd.core.urls import printable


def _own_version() -> str:
    """The version, or "unknown" when run from a source tree that is not installed."""
    try:
        return version("streamomd")
    except PackageNotFoundError:
        return "unknown"


VERSION = _own_version()
"""When it is imported: nothing is imported any more while a checkpoint is read."""


def is_newer(other: str) -> bool:
    """Whether a version is later than this one; False if either has no number.

    >>> is_newer("999.0"), is_newer(VERSION), is_newer("unknown")
    (True, False, False)
    """
    numbers = [re.match(r"\d{1,6}(\.\d{1,6}){0,3}(?!\d)", one) for one in (other, VERSION)]
    found = [tuple(map(int, one[0].split("."))) for one in numbers if one]
    return len(found) == 2 and found[0] > found[1]


@contextmanager
def upgrade_hint(writer: object, what: str) -> Iterator[None]:
    """What this version refuses may be right for the later version that wrote it: NoCommitError in
    place of the error. writer: that version. what: begins the message, as "commit 3 was ".
    """
    try:
        yield
    except (UsageError, UnsupportedError, DataError, CorruptionError, NoCommitError):
        found = str(writer)[:40]
        if not is_newer(found):
            raise
        raise NoCommitError(
            f"{what}written by streamomd {printable(found)}; this is {VERSION}: upgrade streamomd"
        ) from None
