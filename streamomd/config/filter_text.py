"""The language of ``data.where``: comparisons of columns with values, and, or, not, parentheses.

    filter     = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" filter ")" | comparison
    comparison = column ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) value
               | value ( "=" | … ) column
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column [ "not" ] "between" value "and" value
               | column "is" [ "not" ] "null"
    value      = 12 | -1.5e3 | 'text' | true | false | 2026-01-31 | 2026-01-31T12:00:00+02:00

Columns are words, or in backticks or double quotes; in quotes, the quote is written twice. Words of
the language are read in any case. Nothing is evaluated here.
"""

from __future__ import annotations

import datetime
import math
import re
from typing import Any, NamedTuple, NoReturn

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable

MOST_LETTERS, MOST_DEPTH = 10_000, 50
MOST_DIGITS = 300
OPERATORS = {"==": "=", "<>": "!="}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
WORDS = ("and", "or", "not", "in", "between", "is", "null", "true", "false")
SHOWN = 60
"""Letters of a line that are shown on each side of a problem."""
_TOKEN = re.compile(
    r"""
    (?P<time>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?(?![\w.]))
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>`(?:[^`]|``)+`|"(?:[^"]|"")+")
    | (?P<name>[^\W\d][\w.]*)
    | (?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,)
    """,
    re.VERBOSE,
)
_BLANK = re.compile(r"\s*")

Value = bool | int | float | str | datetime.date | datetime.datetime


class Comparison(NamedTuple):
    """A column compared with values. operator: =, !=, <, <=, >, >=, in (several), or null (none).

    at: where it begins in the text.
    """

    column: str
    operator: str
    values: tuple[Value, ...]
    at: int = 0


class Negation(NamedTuple):
    """not."""

    part: Condition


class Junction(NamedTuple):
    """and, or."""

    word: str
    parts: tuple[Condition, ...]


Condition = Comparison | Negation | Junction


class Token(NamedTuple):
    """A token of the text. kind: time, number, text, column, word, sign or end."""

    kind: str
    value: Any
    at: int
    text: str

    def is_(self, *texts: str) -> bool:
        """Whether it is one of these words or signs."""
        return self.kind in ("word", "sign") and self.value in texts


def parse_filter(text: str) -> Condition:
    """The condition that a text says. Raises UsageError with the place of the problem."""
    if len(text) > MOST_LETTERS:
        raise UsageError(
            f"where has {len(text):,} characters, and at most {MOST_LETTERS:,} are read: filter "
            "the rows when the shards are written, or by a column that marks them"
        )
    return _Parser(text).whole()


def refuse_at(text: str, at: int, problem: str) -> NoReturn:
    """Raise UsageError with the line of the text, and a caret at a place."""
    raise UsageError(problem_at(text, at, problem))


def problem_at(text: str, at: int, problem: str) -> str:
    """The message of a problem, with the line of the text and a caret at its place.

    >>> print(problem_at("a <> 1 or b = x", 14, "expected a value"))
    where, character 15: expected a value
      a <> 1 or b = x
                    ^
    """
    begin = max(text.rfind("\n", 0, at) + 1, at - SHOWN)
    end = text.find("\n", at)
    line = text[begin : min(len(text) if end < 0 else end, at + SHOWN)]
    # A letter that does not print is shown as several.
    before, shown = len(printable(line[: at - begin])), printable(line)
    return f"where, character {at + 1}: {problem}\n  {shown}\n  {' ' * before}^"


class _Parser:
    """One pass over a text, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._next = self._read(0)

    def whole(self) -> Condition:
        """Parses the whole text; returns its condition."""
        found = self._any()
        if self._next.kind != "end":
            self._expected("and, or, or the end")
        return found

    def _any(self) -> Condition:
        return self._joined("or", self._all)

    def _all(self) -> Condition:
        return self._joined("and", self._one)

    def _joined(self, word: str, part: Any) -> Condition:
        parts = [part()]
        while self._next.is_(word):
            self._take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Junction(word, tuple(parts))

    def _one(self) -> Condition:
        if not self._next.is_("not", "("):
            return self._comparison()
        first = self._take()
        self._depth += 1
        if self._depth > MOST_DEPTH:
            refuse_at(self._text, first.at, f"nested more than {MOST_DEPTH} deep")
        if first.value == "not":
            found: Condition = Negation(self._one())
        else:
            found = self._any()
            self._demand(")")
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        at = self._next.at
        if self._next.kind != "column":
            value = self._value("a column, not or (")
            operator = self._operator(
                f"a comparison of {printable(self._text[at : self._next.at])}"
            )
            column = self._column()
            return Comparison(column, FLIPPED.get(operator, operator), (value,), at)
        column = self._column()
        if self._next.is_("is"):
            self._take()
            negated = self._negated()
            self._demand("null")
            return _maybe_not(Comparison(column, "null", (), at), negated)
        negated = self._negated()
        if self._next.is_("in"):
            self._take()
            return _maybe_not(Comparison(column, "in", self._values(), at), negated)
        if self._next.is_("between"):
            self._take()
            low = Comparison(column, ">=", (self._value("a value"),), at)
            self._demand("and")
            high = Comparison(column, "<=", (self._value("a value"),), at)
            return _maybe_not(Junction("and", (low, high)), negated)
        if negated:
            self._expected("in or between")
        operator = self._operator("a comparison, in, between or is")
        return Comparison(column, operator, (self._value("a value"),), at)

    def _negated(self) -> bool:
        if self._next.is_("not"):
            self._take()
            return True
        return False

    def _operator(self, expected: str) -> str:
        if not self._next.is_("=", "!=", "<", "<=", ">", ">="):
            self._expected(expected)
        return str(self._take().value)

    def _column(self) -> str:
        if self._next.kind != "column":
            self._expected("a column: values are compared with columns")
        return str(self._take().value)

    def _values(self) -> tuple[Value, ...]:
        self._demand("(")
        values = [self._value("a value")]
        while self._next.is_(","):
            self._take()
            values.append(self._value("a value"))
        self._demand(")")
        return tuple(values)

    def _value(self, expected: str) -> Value:
        token = self._next
        if token.is_("true", "false"):
            return bool(self._take().value == "true")
        if token.is_("null"):
            refuse_at(self._text, token.at, "nothing is equal to null: write COLUMN is null")
        if token.kind == "column" and expected == "a value":
            word = token.text.strip("`\"'")
            refuse_at(
                self._text, token.at, f"expected {expected}, found the column {printable(word)!r}; "
                f"a text is in single quotes: '{printable(word)}'",
            )  # fmt: skip
        if token.kind not in ("time", "number", "text"):
            self._expected(expected)
        value: Value = self._take().value
        return value

    def _demand(self, text: str) -> None:
        if not self._next.is_(text):
            self._expected(text)
        self._take()

    def _expected(self, expected: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else printable(token.text)
        refuse_at(self._text, token.at, f"expected {expected}, found {found}")

    def _take(self) -> Token:
        taken, self._next = self._next, self._read(self._next.at + len(self._next.text))
        return taken

    def _read(self, at: int) -> Token:
        """The token at a place, or after blanks there."""
        blank = _BLANK.match(self._text, at)
        at = blank.end() if blank else at
        if at == len(self._text):
            return Token("end", None, at, "")
        match = _TOKEN.match(self._text, at)
        if match is None:
            refuse_at(self._text, at, f"{_unknown(self._text[at])}")
        return self._token(str(match.lastgroup), match[0], at)

    def _token(self, kind: str, text: str, at: int) -> Token:
        value: Any = OPERATORS.get(text, text)
        if kind == "time":
            value = self._time(text, at)
        elif kind == "number":
            value = self._number(text, at)
        elif kind == "text":
            value = text[1:-1].replace("''", "'")
        elif kind == "quoted":
            kind, value = "column", text[1:-1].replace(text[0] * 2, text[0])
        elif kind == "name":
            is_word = text.lower() in WORDS
            kind, value = ("word", text.lower()) if is_word else ("column", text)
        return Token(kind, value, at, text)

    def _time(self, text: str, at: int) -> datetime.date:
        try:
            if len(text) == len("2026-01-31"):
                return datetime.date.fromisoformat(text)
            return datetime.datetime.fromisoformat(text)
        except ValueError as error:
            refuse_at(self._text, at, f"{text} is not a date or time: {error}")

    def _number(self, text: str, at: int) -> float:
        try:
            number = int(text) if len(text) <= MOST_DIGITS else math.inf
        except ValueError:
            number = float(text)
        if not math.isfinite(number):
            refuse_at(self._text, at, "the number is too large")
        return number


def _unknown(letter: str) -> str:
    if letter == "'":
        return "this quote is not closed; in a text, write '' for one quote"
    if letter in '`"':
        return f"this {letter} is not closed, or has no name in it"
    return f"unexpected {printable(letter)!r}; names that are no word are in backticks: `a-b`"


def _maybe_not(condition: Condition, negated: bool) -> Condition:
    return Negation(condition) if negated else condition
