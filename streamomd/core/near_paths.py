"""Local files and directories whose names are near to a missing one, for messages about it."""

from __future__ import annotations

import os

from streamomd.core.nearest import nearest


def similar_path(path: str) -> str:
    """The end of a message about a missing local path: a sibling with a similar name, or "".

    The sibling is shown as the user would type it: in the same directory as ``path``.
    """
    folder, name = os.path.split(path.rstrip("/"))
    try:
        # Of a link to nothing its own name would be the nearest.
        names = [other for other in os.listdir(folder or ".") if other != name]
    except (OSError, ValueError):  # ValueError: a NUL in the name
        missing = folder and not os.path.lexists(folder)
        return f"; there is no directory {folder!r}" if missing else ""
    found = nearest(name, names)
    return f"; did you mean {os.path.join(folder, found)!r}?" if found else ""
