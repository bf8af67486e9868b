"""Which versions wrote a commit: told to whoever cannot read it."""

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
        # Run from its source, not installed.
        own = "unknown"
    return {"streamomd": own, "numpy": np.__version__, "python": platform.python_version()}
