"""pyarrow without pandas, for a process that uses none."""

from __future__ import annotations

import pyarrow as pa

from streamomd.core.lazy_imports import left_out


def without_pandas() -> None:
    """Have pyarrow take pandas for missing, in this process, if nobody has imported it.

    pyarrow imports pandas, where it is installed, when it is given its first number or list, to see
    whether that is a Series: 0.2 s of processor time before the first row. Whoever asks pyarrow for
    a frame gets one still: then it looks again.
    """
    with left_out("pandas"):
        pa.scalar(0)
