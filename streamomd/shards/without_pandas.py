"""Stop pyarrow from importing pandas in a process that does not use it."""

from __future__ import annotations

import pyarrow as pa

from streamomd.core.lazy_imports import left_out


def without_pandas() -> None:
    """Make pyarrow treat pandas as missing in this process, unless it is already imported.

    pyarrow imports pandas, where it is installed, when it is given its first number or list, to
    check for a Series: 0.2 s of CPU time before the first row. Conversions to pandas still work:
    pyarrow then checks again.
    """
    with left_out("pandas"):
        pa.scalar(0)
