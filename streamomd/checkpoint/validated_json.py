"""Fields: typed, bounded access to JSON that was written by who knows whom."""

from __future__ import annotations

import re
from typing import Any

from streamomd.core.errors import CorruptionError


class Fields:
    """A JSON object; every getter raises CorruptionError naming what is wrong with the field."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise CorruptionError(f"{where} is no JSON object")
        self.values: dict[str, Any] = values
        self._where = where

    def text(self, key: str, pattern: str = r".{0,1000}") -> str:
        """Text that matches ``pattern`` as a whole."""
        value = self._get(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII | re.DOTALL):
            raise self.wrong(key)
        return value

    def number(self, key: str, limit: int) -> int:
        """An integer of 0 to ``limit``."""
        value = self._get(key)
        if type(value) is not int or not 0 <= value <= limit:
            raise self.wrong(key)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """A JSON object."""
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.wrong(key)
        return value

    def items(self, key: str) -> list[Any]:
        """A JSON array."""
        value = self._get(key)
        if not isinstance(value, list):
            raise self.wrong(key)
        return value

    def wrong(self, key: str) -> CorruptionError:
        """The error to raise for a field."""
        return CorruptionError(f"{self._where}: field {key!r} is not what it must be")

    def _get(self, key: str) -> Any:
        if key not in self.values:
            raise CorruptionError(f"{self._where}: field {key!r} is missing")
        return self.values[key]
