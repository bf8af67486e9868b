"""The library versions that wrote a commit, reported when it cannot be read."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import numpy as np


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of streamomd, numpy and Python."""
    try:
        own = version("streamomd")
    except PackageNotFoundError:
        # Run from the source tree, not installed.
        own = "unknown"
    return {"streamomd": own, "numpy": np.__version__, "python": platform.python_version()}
