"""The language of filters: what it reads, and where it says that a text is wrong."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamomd.config.filter_text import Comparison, Junction, Negation, parse_filter
from streamomd.config.spec import Spec
from streamomd.core.errors import UsageError

pytestmark = pytest.mark.smoke

A, B = Comparison("a", "=", (1,)), Comparison("b", ">", (2,))
READ: dict[str, Any] = {
    "a = 1": A,
    "a == 1": A,
    "  a\n=\t1 ": A,
    "(a = 1)": A,
    "1 = a": A,
    "2 < b": B,
    "a<>1": Comparison("a", "!=", (1,)),
    "a = 1 and b > 2": Junction("and", (A, B)),
    "a = 1 AND b > 2 or a = 1": Junction("or", (Junction("and", (A, B)), A)),
    "a = 1 and (b > 2 or a = 1)": Junction("and", (A, Junction("or", (B, A)))),
    "not a = 1 and b > 2": Junction("and", (Negation(A), B)),
    "not (a = 1 and b > 2)": Negation(Junction("and", (A, B))),
    "a in (1, -2.5, 'x')": Comparison("a", "in", (1, -2.5, "x")),
    "a not in (1)": Negation(Comparison("a", "in", (1,))),
    "a is null": Comparison("a", "null", ()),
    "a is not null": Negation(Comparison("a", "null", ())),
    "a between 1 and 2 and b > 2": Junction(
        "and",
        (Junction("and", (Comparison("a", ">=", (1,)), Comparison("a", "<=", (2,)))), B),
    ),
    "a not between 1 and 2": Negation(
        Junction("and", (Comparison("a", ">=", (1,)), Comparison("a", "<=", (2,))))
    ),
    '"a b" = true': Comparison("a b", "=", (True,)),
    '"a""b" = False': Comparison('a"b', "=", (False,)),
    "`a``b` = 'it''s'": Comparison("a`b", "=", ("it's",)),
    "`and` = 1": Comparison("and", "=", (1,)),
    "größe.x >= 1e3": Comparison("größe.x", ">=", (1000.0,)),
    "a > 2026-01-31": Comparison("a", ">", (datetime.date(2026, 1, 31),)),
    "a > 2026-01-31T10:30": Comparison("a", ">", (datetime.datetime(2026, 1, 31, 10, 30),)),
    "a > 2026-01-31 10:30:05.5 ": None,
    "a > 2026-01-31T10:30:05.500000+02:00": Comparison(
        "a",
        ">",
        (
            datetime.datetime(
                2026, 1, 31, 10, 30, 5, 500_000,
                tzinfo=datetime.timezone(datetime.timedelta(hours=2)),
            ),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_it_is_read(text: str) -> None:
    """Precedence, words in any case, quotes, values."""
    if READ[text] is not None:
        assert _plain(parse_filter(text)) == READ[text]


def _plain(condition: Any) -> Any:
    """Without places."""
    if isinstance(condition, Comparison):
        return Comparison(condition.column, condition.operator, condition.values)
    if isinstance(condition, Negation):
        return Negation(_plain(condition.part))
    return Junction(condition.word, tuple(map(_plain, condition.parts)))


WRONG = {
    "": (1, "expected a column, not or (, found the end"),
    "a": (2, "expected a comparison, in, between or is, found the end"),
    "a =": (4, "expected a value, found the end"),
    "a = and": (5, "expected a value, found and"),
    "a = b": (5, "expected a value, found the column 'b'; a text is in single quotes: 'b'"),
    'a = "x"': (5, "found the column 'x'; a text is in single quotes: 'x'"),
    "a = null": (5, "nothing is equal to null: write COLUMN is null"),
    "a = 1 b = 2": (7, "expected and, or, or the end, found b"),
    "(a = 1": (7, "expected ), found the end"),
    "a = 1)": (6, "expected and, or, or the end, found )"),
    "1 = 2": (5, "expected a column: values are compared with columns, found 2"),
    "1 a": (3, "expected a comparison of 1"),
    "a in 1": (6, "expected (, found 1"),
    "a in ()": (7, "expected a value, found )"),
    "a not = 1": (7, "expected in or between, found ="),
    "a is 1": (6, "expected null, found 1"),
    "a between 1 or 2": (13, "expected and, found or"),
    "a = 'x": (5, "this quote is not closed; in a text, write '' for one quote"),
    '"a = 1': (1, 'this " is not closed, or has no name in it'),
    "a-b = 1": (2, "unexpected '-'; names that are no word are in backticks: `a-b`"),
    "a = 2026-02-30": (5, "2026-02-30 is not a date or time"),
    "a = 1e999": (5, "the number is too large"),
    "a = 1; b": (6, "unexpected ';'"),
    "a && b": (3, "unexpected '&'"),
    "__import__('os')": (11, "expected a comparison, in, between or is, found ("),
    "not " * 51 + "a = 1": (201, "nested more than 50 deep"),
    "(" * 3000 + "a = 1": (51, "nested more than 50 deep"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_is_pointed_at(text: str) -> None:
    """The character, a caret below it, and what was expected."""
    at, problem = WRONG[text]
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    first, line, caret = str(caught.value).split("\n")
    assert first.startswith(f"where, character {at}: ")
    assert problem in first
    assert len(caret) - 3 == min(at - 1, 60)
    assert line[2:].strip() in text.strip() or not text


def test_a_long_text_is_refused() -> None:
    """Before it is read."""
    with pytest.raises(UsageError, match="at most 10,000 are read"):
        parse_filter("a = 1 or " * 2000 + "a = 1")
    assert parse_filter("a = 1 or " * 1000 + "a = 1")


@given(st.text(alphabet="ab12.'\"`()<>=!, \n-TZ:andornotislu\x1b\ud800", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else happens; what is printed has no control characters."""
    said = ""
    try:
        parse_filter(text)
    except UsageError as error:
        said = str(error)
    assert all(line.isprintable() for line in said.split("\n"))


def test_a_job_checks_it() -> None:
    """Before anything is opened."""
    with pytest.raises(UsageError, match="where, character 4: expected a value"):
        Spec.parse({"data": {"where": "a >"}})
    assert Spec.parse({"data": {"where": " a > 1 "}}).data.where == "a > 1"
