"""pyarrow without pandas, for a process that uses none."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa


def without_pandas() -> None:
    """Have pyarrow take pandas for missing, in this process, if nobody has imported it.

    pyarrow imports pandas, where it is installed, when it is given its first number or list, to see
    whether that is a Series: 0.2 s of processor time before the first row. Whoever asks pyarrow for
    a frame gets one still: then it looks again.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Missing)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(_Missing)


class _Missing:
    """Says to whoever imports pandas that there is none."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Called by Python for each module that is imported."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out here", name=name)
