"""Read a job file. What its tables mean is in ``spec``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from streamomd.core.errors import InputNotFoundError, UsageError
from streamomd.core.wording import similar_path

MAX_LINE = 200  # characters of a line in a message; longer ones are cut


def read_job(path: str) -> dict[str, Any]:
    """The tables of a TOML job file. Raises InputNotFoundError, or UsageError naming the line."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputNotFoundError(f"no job file {path!r}{similar_path(path)}") from None
    except ValueError as error:
        raise UsageError(f"job {path!r} is not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"job {path!r} cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"job {path!r} is not TOML: nested too deep") from None
    except ValueError as error:
        raise UsageError(f"job {path!r} is not TOML: {error}{_remedy(text, error)}") from None


def _remedy(text: str, error: ValueError) -> str:
    """The line that is not TOML, and the quotes it may lack; "" if the error names no line.

    >>> print(_remedy("shards = data/", ValueError("Invalid value (at line 1, column 10)")))
    <BLANKLINE>
      shards = data/
    text needs quotes: shards = "data/"
    """
    found = re.search(r"at line (\d+)", str(error))
    lines = text.splitlines()
    if not found or not 0 < int(found[1]) <= len(lines):
        return ""
    line = lines[int(found[1]) - 1].strip()
    if "storage_options" in text:  # a line may be a secret
        return ""
    key, equals, value = (part.strip() for part in line.partition("="))
    bare = equals and value and value[0] not in "\"'[{" and key.replace(".", "").isidentifier()
    remedy = f'\ntext needs quotes: {key} = "{value.rstrip(chr(34))}"' if bare else ""
    return f"\n  {line[:MAX_LINE]}{remedy}"
