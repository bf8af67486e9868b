"""Format: a frozen description, and a function that writes a model to an open file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamomd.training.model_data import ModelData


@dataclass(frozen=True)
class Format:
    """An export format.

    ``write(model, file)`` writes bytes and returns fields for ``--json``; it raises
    UnsupportedError naming what the format cannot represent, before it writes a byte.
    ``to_read``: how to read the file; ``{file}`` is replaced by its name. A field ``to_read`` of
    ``write`` takes its place.
    """

    name: str
    what: str
    extra: str
    to_read: str
    write: Callable[[ModelData, Any], dict[str, Any]]
