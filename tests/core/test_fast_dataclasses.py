"""Data classes whose methods are closures behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from typing import Any

import pytest

from streamomd.core.fast_dataclasses import NAMES, closures_for_dataclasses

NAN = float("nan")
ROWS: list[tuple[Any, ...]] = [(), (1,), (1, 2), (2, 1), (1, NAN), ("a", "b")]


def made(width: int, **options: Any) -> type:
    """A class of that many fields, the last of which is not compared."""
    more = [("aside", Any, dataclasses.field(default=7, compare=False, repr=False))]
    names = [(f"x{at}", Any) for at in range(width)]
    return dataclasses.make_dataclass("Made", names + more, **options)


OPTIONS = [
    {}, {"frozen": True}, {"order": True}, {"frozen": True, "order": True, "slots": True},
    {"eq": False}, {"unsafe_hash": True}, {"slots": True, "frozen": True}, {"repr": False},
]  # fmt: skip


def outcome(function: Any) -> Any:
    """What a call returns, or the type and text of what it raises."""
    try:
        return function()
    except Exception as error:
        return type(error), str(error).partition("0x")[0]


def facts(kind: type, row: tuple[Any, ...], other: tuple[Any, ...]) -> list[Any]:
    one, two = kind(*row), kind(*other)
    asked = [
        lambda: repr(one).partition(" object at ")[0],
        lambda: one == two,
        lambda: one == row,
        lambda: one < two,
        lambda: one >= two,
        lambda: hash(one) == hash(kind(*row)),
        lambda: setattr(one, "aside", 8),
        lambda: setattr(one, "new", 8),
        lambda: delattr(one, "aside"),
        lambda: dataclasses.asdict(dataclasses.replace(two, aside=3)),
    ]
    return [outcome(call) for call in asked]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_methods_are_those_of_the_standard_library(options: dict[str, Any]) -> None:
    """repr, comparisons, hashes, frozen fields and their messages, of no field to two."""
    for row, other in itertools.product(ROWS, ROWS):
        if len(row) != len(other):
            continue
        expected = facts(made(len(row), **options), row, other)
        with closures_for_dataclasses():
            kind = made(len(row), **options)
        assert facts(kind, row, other) == expected


def test_a_subclass_and_a_recursive_repr() -> None:
    """Fields of a frozen parent are frozen in a class that is none; a cycle is shown as dots."""
    with closures_for_dataclasses():
        parent = made(1, frozen=True)
    child = type("Child", (parent,), {})(1)
    child.other = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x0'"):
        child.x0 = 2
    with closures_for_dataclasses():
        loop = made(1)([])
    loop.x0.append(loop)
    assert repr(loop) == "Made(x0=[...])"


def test_the_standard_library_is_as_before_afterwards() -> None:
    """Also after an error; and what was made is pickled as ever."""
    before = [getattr(dataclasses, name, None) for name in NAMES]
    with pytest.raises(KeyError), closures_for_dataclasses():
        raise KeyError
    assert [getattr(dataclasses, name, None) for name in NAMES] == before
    assert pickle.loads(pickle.dumps(dataclasses.FrozenInstanceError("x"))).args == ("x",)
