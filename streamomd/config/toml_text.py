"""Values as TOML text."""

from __future__ import annotations

from collections.abc import Iterable

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    r"""A text as a TOML string; a key may be one, too. What does not print is escaped.

    Raises UsageError for a name that is not Unicode, such as a file's from another encoding.

    >>> print(quoted('a "b"\n\x1b'), quoted("Größe"))
    "a \"b\"\n\u001B" "Größe"
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{printable(text)!r} is not Unicode, which TOML requires: rename it"
        ) from None
    return '"' + "".join(_escaped(one) for one in text) + '"'


def _escaped(one: str) -> str:
    if one in _ESCAPES:
        return _ESCAPES[one]
    if one.isprintable():
        return one
    return f"\\u{ord(one):04X}" if ord(one) < 0x10000 else f"\\U{ord(one):08X}"


def commented(value: str, reason: str, width: int = 34) -> str:
    """A line, and a reason as its comment; aligned if the line is short.

    >>> commented('label = "y"', "named like a label", 14)
    'label = "y"     # named like a label'
    """
    return f"{value:<{width}}  # {printable(reason)}" if reason else value


def array(key: str, items: Iterable[tuple[str, str]]) -> list[str]:
    """The lines of a key whose value is a list of texts, each with its reason."""
    lines = [commented(f"  {quoted(text)},", reason) for text, reason in items]
    return [f"{key} = [", *lines, "]"]
