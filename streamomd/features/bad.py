"""Bad: the first bad row of a column, before it is known which shard the batch came from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.errors import BadRowError

_LONGEST = 80


class Bad(Exception):
    """Raised inside this package only; ``encode`` tells it as a BadRowError.

    row counts from the first row of the batch; reason is the word skipped rows are counted under.
    """

    def __init__(
        self, row: int, reason: str, column: str, *, found: str, expected: str, remedy: str
    ) -> None:
        super().__init__(reason)
        self.row, self.reason, self.column = int(row), reason, column
        self.found, self.expected, self.remedy = found, expected, remedy

    def told(self, shard: str, first_row: int) -> BadRowError:
        """The error for a user: where, what was found, what was expected, what to do."""
        where = f"shard {printable(shard)}, row {first_row + self.row}, column {self.column!r}"
        message = f"{where}: found {self.found}, expected {self.expected}; {self.remedy}"
        return BadRowError(message, reason=self.reason)


def first(mask: NDArray[np.bool_]) -> int:
    """The place of the first True."""
    return int(np.argmax(mask))


def shown(value: Any) -> str:
    """A value as a message shows it: on one line, and never long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def printable(text: str) -> str:
    """The text with control characters escaped, so that a name cannot forge a line of a log."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
