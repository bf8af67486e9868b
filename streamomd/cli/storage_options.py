"""Storage options in a file, for the commands: what is in arguments is seen by all users."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.core.urls import scrub, shown
from streamomd.training.progress import note


def read_options(path: str | None) -> dict[str, Any] | None:
    """Storage options from a JSON or TOML file."""
    if path is None:
        return None
    try:
        text = Path(path).read_text("utf-8")
        if Path(path).stat().st_mode & 0o077:
            note(f"others may read the storage options in {shown(path)}: chmod 600 would end that")
        options = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except FileNotFoundError:
        raise InputNotFoundError(f"no storage options file {path!r}") from None
    except (ValueError, OSError, RecursionError) as error:
        raise UsageError(f"storage options {path!r}: {scrub(str(error))}") from None
    if not isinstance(options, dict):
        raise UsageError(f"storage options {path!r}: expected a table of options")
    return options
