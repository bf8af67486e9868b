"""Values as people write them: lists ``a,b``, sizes ``64MiB``, durations ``5m``, fractions
``0.1``.

Each function takes what a flag, ``--set``, TOML or Python gives. A text in the notation becomes the
value of the key; anything else is returned as it is, for the key's own check. ValueError says what
was expected; the caller names the key.
"""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from collections.abc import Iterable
from typing import Any

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 2**40,
}
"""Bytes of a unit; upper and lower case are the same."""
DURATIONS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of a unit."""
MOST_NGRAMS = 8
NULLS = ("error", "zero", "indicator", "mean")
"""What a missing number becomes."""
NEAR = 1e-9
"""How far 1/x of a fraction may be from a whole number, relative to it."""

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)\s*")
_ITEM = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|$)')


def split_list(value: Any) -> Any:
    """The names of a text ``a,b``. A name with a comma is written in double quotes.

    >>> split_list("age, job"), split_list('"a,b",c'), split_list(["a,b"])
    (['age', 'job'], ['a,b', 'c'], ['a,b'])
    """
    if not isinstance(value, str):
        return value
    return [name for name, _ in _items(value)]


def join_list(names: Iterable[str]) -> str:
    """The text that ``split_list`` reads back.

    >>> join_list(["age", "a,b"])
    'age,"a,b"'
    """
    return ",".join(_quoted(name) for name in names)


def split_scalars(value: Any) -> Any:
    """Splits a text as ``split_list`` does; an unquoted item that TOML reads as a number or a
    boolean becomes one.

    >>> split_scalars("0,1"), split_scalars('no,"1"'), split_scalars("true")
    ([0, 1], ['no', '1'], [True])
    """
    if not isinstance(value, str):
        return value
    return [name if quoted else parse_scalar(name) for name, quoted in _items(value)]


def parse_scalar(text: str) -> Any:
    """The value that TOML reads in a text; the text itself if it is no TOML.

    >>> parse_scalar("0.5"), parse_scalar("['a']"), parse_scalar("64MiB")
    (0.5, ['a'], '64MiB')
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def parse_size(text: str) -> float:
    """Bytes of a text such as "64MiB", "1.5 GB" or "512 b". Raises ValueError.

    >>> parse_size("64MiB"), parse_size("1.5 GB"), parse_size("512b")
    (67108864, 1500000000, 512)
    """
    bytes_ = _quantity(text, SIZES, 'a size such as "64MiB" or "2GB"')
    return int(bytes_) if bytes_ == int(bytes_) else bytes_


def parse_duration(text: str) -> float:
    """Seconds of a text such as "5m", "30s" or "1.5 h". Raises ValueError.

    >>> parse_duration("5m"), parse_duration("250ms"), parse_duration("1.5 h")
    (300.0, 0.25, 5400.0)
    """
    return float(_quantity(text, DURATIONS, 'a duration such as "30s", "5m" or "2h"'))


def whole_mebibytes(value: Any) -> Any:
    """MiB of a size; a number is in MiB already. Raises ValueError for a part of a MiB.

    >>> whole_mebibytes("1GiB"), whole_mebibytes("32"), whole_mebibytes(8)
    (1024, '32', 8)
    """
    if not _has_unit(value):
        return value
    size = parse_size(value) / MIB
    if size != int(size):
        raise ValueError(f"expected whole MiB, e.g. {max(1, round(size))}MiB")
    return int(size)


def gibibytes(value: Any) -> Any:
    """GiB of a size; a number is in GiB already.

    >>> gibibytes("512MiB"), gibibytes(50)
    (0.5, 50)
    """
    return parse_size(value) / GIB if _has_unit(value) else value


def seconds(value: Any) -> Any:
    """Seconds of a duration; a number is in seconds already.

    >>> seconds("5m"), seconds("2.5"), seconds(60)
    (300.0, '2.5', 60)
    """
    return parse_duration(value) if _has_unit(value) else value


def nanoseconds(text: str) -> int:
    """Nanoseconds since 1970 of a time as ISO 8601; without an offset it is this machine's time.

    >>> nanoseconds("1970-01-01T00:01:00Z"), nanoseconds("1970-01-02T01:00+01:00")
    (60000000000, 86400000000000)
    """
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise ValueError("expected a time as ISO 8601, e.g. 2026-01-31T06:00Z") from None
    elapsed = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return 1000 * (elapsed // datetime.timedelta(microseconds=1))


def utc_nanoseconds(text: str) -> int:
    """Nanoseconds since 1970 of a time as ISO 8601; without an offset it is UTC.

    >>> utc_nanoseconds("1970-01-02"), utc_nanoseconds("1970-01-01T01:00:01+01:00")
    (86400000000000, 1000000000)
    """
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "expected a date or a time as ISO 8601, e.g. 2026-01-31 or 2026-01-31T06:00Z"
        ) from None
    known = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    elapsed = known - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return 1000 * (elapsed // datetime.timedelta(microseconds=1))


def moment_text(value: Any) -> Any:
    """A time of TOML as ISO 8601."""
    return value.isoformat() if isinstance(value, datetime.date) else value


def one_in(value: Any) -> Any:
    """Turns a fraction of the rows 0 < x < 1 into the number 1/x, which must be whole.

    >>> one_in(0.1), one_in("0.25"), one_in(10), one_in(0)
    (10, 4, 10, 0)
    """
    fraction = parse_scalar(value) if isinstance(value, str) else value
    if not isinstance(fraction, float) or not 0.0 < fraction < 1.0:
        return value
    ratio = 1.0 / fraction
    count = round(ratio) if math.isfinite(ratio) else 0
    if abs(ratio - count) > NEAR * count:
        raise ValueError(
            "expected a fraction 1/n with n a whole number of 2 or more, e.g. "
            f"{1.0 / max(2, count):.4g} (1 in {max(2, count)}), or n itself"
        )
    return count


def _has_unit(value: Any) -> bool:
    """Whether a value is a text that is no plain number."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _quantity(text: str, units: dict[str, Any], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in units:
        raise ValueError(f"expected {expected}; units: {', '.join(units)}")
    amount = float(match[1]) * float(units[unit])
    if not math.isfinite(amount):
        raise ValueError(f"expected {expected}, not one of {len(match[1])} digits")
    return amount


def _items(text: str) -> list[tuple[str, bool]]:
    """The items of a list, and whether each is in quotes; empty ones without quotes are ignored."""
    found = (match.groups() for match in _ITEM.finditer(text))
    items = [
        (bare.strip(), False) if quoted is None else (quoted.replace('""', '"'), True)
        for quoted, bare in found
    ]
    return [(name, quoted) for name, quoted in items if name or quoted]


def _quoted(name: str) -> str:
    plain = name and "," not in name and '"' not in name and name == name.strip()
    return name if plain else '"' + name.replace('"', '""') + '"'
