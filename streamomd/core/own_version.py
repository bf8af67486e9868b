"""The version of this package, as its installation names it: pyproject.toml is the one source."""

from __future__ import annotations

import functools
import re
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def own_version() -> str:
    """The version, or "unknown" when run from a source tree that is not installed."""
    try:
        return version("streamomd")
    except PackageNotFoundError:
        return "unknown"


def is_newer(other: str) -> bool:
    """Whether a version is later than this one; False if either is no release's number.

    >>> is_newer("999.0"), is_newer(own_version()), is_newer("unknown")
    (True, False, False)
    """
    numbers = [re.match(r"\d{1,6}(\.\d{1,6}){0,3}(?!\d)", one) for one in (other, own_version())]
    found = [tuple(map(int, one[0].split("."))) for one in numbers if one]
    return len(found) == 2 and found[0] > found[1]
