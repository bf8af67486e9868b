"""An error as data: what is wrong, where, what was expected and what to do.

Code that raises an error makes a ``Message``; it becomes a text once, for who reads it: of a job
(the command line, ``streamomd.train``) or of an estimator's call (X, y and parameters).

>>> bits = Message("invalid_value", SETTING, key=Key("data.bits"), found="99", expected="1 to 30")
>>> str(bits), bits.code, bits.key
('data.bits = 99: 1 to 30', 'invalid_value', Key(name='data.bits'))
>>> bits.read_by(Reader("estimator", lambda key: key.rpartition(".")[2])).text()
'bits = 99: 1 to 30'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias


class Key(NamedTuple):
    """A job's key, such as ``data.bits``, in the spelling of who reads it."""

    name: str


class PerReader(NamedTuple):
    """A text for who wrote a job, and one for who called an estimator."""

    job: Words
    estimator: Words


class Reader(NamedTuple):
    """Who reads a message. spell: how a key of a job is named there."""

    name: str
    spell: Callable[[str], str]

    def text(self, part: Words) -> str:
        """A text for this reader."""
        if isinstance(part, str):
            return part
        if isinstance(part, Key):
            return self.spell(part.name)
        if isinstance(part, PerReader):
            return self.text(part.job if self.name == JOB.name else part.estimator)
        if isinstance(part, Message):
            return part.read_by(self).text()
        return "".join(map(self.text, part))


JOB = Reader("job", str)
NO_KEY = Key("")
LONGEST = 80
FIELDS = ("shard", "column", "key", "found", "expected", "remedy")
SETTING = "{key} = {found}: {expected}"
"""The form of a message about a key's value."""


@dataclass(frozen=True)
class Message:
    """What an error says. The other fields are data; ``form`` is the sentence that they fill in.

    code: a word for programs. shard, row, column, key: where. row: from 0, -1: none.
    """

    code: str
    form: Words
    shard: Words = ""
    row: int = -1
    column: str = ""
    key: Key = NO_KEY
    found: Words = ""
    expected: Words = ""
    remedy: Words = ""
    reader: Reader = field(default=JOB, compare=False, repr=False)

    def read_by(self, reader: Reader) -> Message:
        """The message for another reader."""
        return replace(self, reader=reader)

    def text(self) -> str:
        """The text for its reader."""
        return self.reader.text(self.form).format(**self._texts())

    __str__ = text

    def parts(self) -> list[Message]:
        """The messages of what is wrong, if ``found`` has several; else this one."""
        inside = self.found if isinstance(self.found, tuple) else (self.found,)
        return [part for part in inside if isinstance(part, Message)] or [self]

    def fields(self) -> dict[str, Any]:
        """The code and the fields that are set, each as a text for its reader; row is a number.

        >>> Message("null", "{column!r} is {found}", row=3, column="age", found="null").fields()
        {'code': 'null', 'row': 3, 'column': 'age', 'found': 'null'}
        """
        known = {name: value for name, value in self._texts().items() if value not in ("", -1)}
        return {"code": self.code, **known} if self.code else {}

    def _texts(self) -> dict[str, Any]:
        of = self.reader.text
        texts = {name: of(getattr(self, name)) for name in FIELDS}
        return {"shard": texts["shard"], "row": self.row, **texts}


Words: TypeAlias = "str | Key | PerReader | Message | tuple[Words, ...]"


def invalid_value(key: str, found: str, expected: Words) -> Message:
    """The message about a key's value."""
    return Message("invalid_value", SETTING, key=Key(key), found=found, expected=expected)


def shown_value(value: Any) -> str:
    """A value for a message: on one line, at most 80 characters of it."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


def joined(texts: Iterable[Words], separator: str) -> Words:
    """Texts with a separator between them."""
    parts = [part for text in texts for part in (separator, text)]
    return tuple(parts[1:])
