"""The dialect of delimited text: detect it, and translate it for Arrow."""

from __future__ import annotations

import re

from streamomd.core.errors import DataError
from streamomd.sources.text.text_source import Text

DELIMITERS = ("\t", ";", "|", ",", ", ")
_SNIFFED_LINES = 20
_QUOTED = re.compile(rb'"[^"\n]*"')


def sniff(head: bytes) -> str:
    """The delimiter of text that starts with ``head``: "\\t", ";", "|", "," or ", ".

    It stands equally often in each of the first lines that are not blank, outside quotes; of
    several, the most frequent. If none does, the most frequent of the first line.

    >>> sniff(b'a;b\\n1,5;2\\n'), sniff(b'73, no, 0\\n1, yes, 2\\n'), sniff(b'x\\n1\\n')
    (';', ', ', ',')
    """
    # The last line may be cut off.
    lines = head.lstrip().split(b"\n", _SNIFFED_LINES + 1)[:_SNIFFED_LINES]
    lines = [_QUOTED.sub(b"", line) for line in lines if line.strip()]
    counts = {one: [line.count(one.encode()) for line in lines] for one in ("\t", ";", "|", ",")}
    steady = {one: count[0] for one, count in counts.items() if len(set(count)) == 1}
    chosen = _most(steady) or _most({one: count[0] for one, count in counts.items()}) or ","
    spaced = (
        chosen == "," and b"," in lines[0] and not re.search(rb",[^ ]|,$", lines[0].rstrip(b"\r"))
    )
    return ", " if spaced else chosen


def _most(counts: dict[str, int]) -> str:
    best = max(counts, key=lambda one: counts[one], default="")
    return best if best and counts[best] else ""


def without_spaces(data: bytes, *, quotes: bool, inside: bool = False) -> bytes:
    """``, `` as ``,`` outside quotes; ``inside``: whether the text begins inside them.

    >>> without_spaces(b'1, "a, b", 2', quotes=True)
    b'1,"a, b",2'
    """
    if not quotes:
        return data.replace(b", ", b",")
    parts = data.split(b'"')
    for place in range(int(inside), len(parts), 2):
        parts[place] = parts[place].replace(b", ", b",")
    return b'"'.join(parts)


class CsvStream:
    """The bytes of a text for Arrow to read: its head again, then the rest.

    Raises DataError where the text ends inside quotes, which Arrow would close by itself.
    """

    closed = False

    def __init__(self, head: bytes, text: Text, delimiter: str, *, quotes: bool) -> None:
        self._head = memoryview(head)
        self._text = text
        self._spaced = len(delimiter) == 2
        self._quotes = quotes
        self._inside = False
        self._held = b""
        # A comma may have its space in the next piece; and Arrow loses a newline that begins a
        # piece after one that ends in a carriage return, even inside quotes.
        self._unsure = (b"\r", b",") if self._spaced else (b"\r",)

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes; none at the end only."""
        while raw := self._next(max(1, size - len(self._held))):
            data = self._held + raw
            self._held = data[-1:] if data.endswith(self._unsure) else b""
            data = data[: len(data) - len(self._held)]
            inside = self._inside
            if self._quotes:
                self._inside ^= bool(data.count(b'"') % 2)
            if self._spaced:
                data = without_spaces(data, quotes=self._quotes, inside=inside)
            if data:
                return data
        return self._end()

    def _next(self, size: int) -> bytes:
        piece, self._head = bytes(self._head[:size]), self._head[size:]
        # The head's last bytes alone may hold no line end: Arrow takes that for a record too long.
        return piece + self._text.read(size - len(piece)) if len(piece) < size else piece

    def _end(self) -> bytes:
        if self._inside:
            raise DataError(
                f"{self._text.name} ends inside quotes: is it truncated, or a quote not closed? "
                "Fix it, or pass quotes=False if quotes are ordinary characters"
            )
        held, self._held = self._held, b""
        return held

    def readable(self) -> bool:
        """Called by Arrow."""
        return True

    def close(self) -> None:
        """The text is closed by who opened it."""
