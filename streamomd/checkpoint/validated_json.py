"""Fields: typed, bounded access to untrusted JSON."""

from __future__ import annotations

import re
from typing import Any

from streamomd.core.errors import CorruptionError


class Fields:
    """A JSON object; every getter raises CorruptionError naming what is wrong with the field."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise CorruptionError(f"{where} is not a JSON object")
        self.values: dict[str, Any] = values
        self._where = where

    def text(self, key: str, pattern: str = r".{0,1000}") -> str:
        """Text that fully matches ``pattern``."""
        value = self._get(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII | re.DOTALL):
            raise self.invalid(key)
        return value

    def number(self, key: str, limit: int) -> int:
        """An integer of 0 to ``limit``."""
        value = self._get(key)
        if type(value) is not int or not 0 <= value <= limit:
            raise self.invalid(key)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """A JSON object."""
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.invalid(key)
        return value

    def items(self, key: str) -> list[Any]:
        """A JSON array."""
        value = self._get(key)
        if not isinstance(value, list):
            raise self.invalid(key)
        return value

    def invalid(self, key: str) -> CorruptionError:
        """The error for an invalid field."""
        return CorruptionError(f"{self._where}: field {key!r} is invalid")

    def _get(self, key: str) -> Any:
        if key not in self.values:
            raise CorruptionError(f"{self._where}: field {key!r} is missing")
        return self.values[key]
