"""What a format is: a frozen description, and a function that writes a model to an open file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamomd.training.model import Model


@dataclass(frozen=True)
class Format:
    """One of the formats that a model is exported to.

    ``write(model, file)`` writes bytes and gives figures of what it wrote, for ``--json``; it
    raises UnsupportedError naming what the format cannot say, before it writes a byte.
    ``to_read``: how the file is read, ``{file}`` standing for its name.
    """

    name: str
    what: str
    extra: str
    to_read: str
    write: Callable[[Model, Any], dict[str, Any]]
