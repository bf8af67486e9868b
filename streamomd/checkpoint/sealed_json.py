"""Sealed JSON: a line of canonical JSON, then one with its SHA-256. Fields are typed, bounded."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from typing import Any

from streamomd.core.errors import CorruptionError, UsageError
from streamomd.core.startup import no_garbage_collection

LIMIT = 4 << 20
DEPTH = 64
LARGEST = 1 << 64
_NESTING = (dict, list)


def canonical(value: Any) -> bytes:
    """Canonical JSON on one line of ASCII. Raises UsageError for what JSON cannot hold (NaN)."""
    try:
        # Sorted items of a large document are many tuples, but none is garbage.
        with no_garbage_collection():
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"a checkpoint holds plain JSON only: {error}") from None
    return text.encode("ascii")


def seal(value: Any) -> bytes:
    """Both lines. Raises UsageError for values that could not be read back."""
    line = canonical(value)
    try:
        parse(line)
    except CorruptionError as error:
        raise UsageError(f"a checkpoint holds plain JSON only: {error}") from None
    data = line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"
    if len(data) > LIMIT:
        raise UsageError(f"a commit's document may have {LIMIT:,} bytes; this has {len(data):,}")
    return data


def unseal(data: bytes) -> tuple[Any, str]:
    """The value and its SHA-256. Raises CorruptionError if any bit of the two lines changed."""
    line, _, rest = data.partition(b"\n")
    sha256 = hashlib.sha256(line).hexdigest()
    if rest != sha256.encode() + b"\n":
        raise CorruptionError("the second line is not the SHA-256 of the first")
    return parse(line), sha256


def parse(line: bytes) -> Any:
    """JSON without duplicate keys, NaN, huge integers or deep nesting; else CorruptionError."""
    try:
        value = _DECODER.decode(line.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"invalid JSON: {error}") from None
    _bound_depth(value)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _bounded(text: str) -> int:
    number = int(text)
    if abs(number) > LARGEST:
        raise ValueError("an integer has more than 64 bits")
    return number


def _bound_depth(value: Any) -> None:
    level = [one for one in (value,) if type(one) in _NESTING]
    for _ in range(DEPTH):
        if not level:
            return
        inner = (one.values() if type(one) is dict else one for one in level)
        level = [one for one in itertools.chain.from_iterable(inner) if type(one) in _NESTING]
    raise CorruptionError(f"invalid JSON: nested deeper than {DEPTH}")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite, parse_int=_bounded
)


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
