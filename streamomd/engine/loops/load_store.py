"""Numbers in and out of flat arrays, as tuples of fixed arity.

``at`` is the first cell, ``by`` the distance to the next. Loads make float64 of a float32 cell.
Compiled code cannot loop over a tuple's fields: each arity is a function around the one below it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def number(cell: Any) -> float:
    """The cell as a float64: numba's float() alone leaves a float32 unchanged."""
    return float(cell) * 1.0


@functools.cache
def take(arity: int) -> Callable[..., Any]:
    """take(n)(cells, at, by) -> n numbers."""
    if arity < len(TAKEN):
        return TAKEN[arity]
    before, last = take(arity - 1), arity - 1

    def load(cells: Any, at: int, by: int) -> Any:
        return before(cells, at, by) + (number(cells[at + last * by]),)  # noqa: RUF005

    return _named(load, arity)


@functools.cache
def put(arity: int) -> Callable[..., None]:
    """put(n)(cells, at, by, numbers): writes n numbers."""
    if arity < len(PUT):
        return PUT[arity]
    before, last = put(arity - 1), arity - 1

    def store(cells: Any, at: int, by: int, numbers: Any) -> None:
        before(cells, at, by, numbers)
        cells[at + last * by] = numbers[last]

    return _named(store, arity)


@functools.cache
def put_as(arity: int) -> Callable[..., None]:
    """put_as(n)(cells, at, by, numbers, like): writes n numbers, rounded as ``like`` holds them."""
    if arity == 0:
        return _ignore_like
    before, last = put_as(arity - 1), arity - 1

    def store_as(cells: Any, at: int, by: int, numbers: Any, like: Any) -> None:
        before(cells, at, by, numbers, like)
        cells[at + last * by] = like.dtype.type(numbers[last])

    return _named(store_as, arity)


@functools.cache
def add(arity: int) -> Callable[..., Any]:
    """add(n)(a, b) -> the n sums."""
    if arity < len(ADDED):
        return ADDED[arity]
    before, last = add(arity - 1), arity - 1

    def plus(a: Any, b: Any) -> Any:
        return before(a, b) + (a[last] + b[last],)  # noqa: RUF005

    return _named(plus, arity)


@functools.cache
def combine(arity: int, maxima: int) -> Callable[..., Any]:
    """combine(n, m)(a, b) -> the first n - m sums, then the larger of each of the last m."""
    if maxima == 0:
        return add(arity)
    before, last = combine(arity - 1, maxima - 1), arity - 1

    def combined(a: Any, b: Any) -> Any:
        return before(a, b) + (max(a[last], b[last]),)  # noqa: RUF005

    combined.__name__ = f"combined{maxima}_of"
    return _named(combined, arity)


@functools.cache
def choose(arity: int) -> Callable[..., Any]:
    """choose(n)(yes, a, b) -> a's n numbers or b's, without a branch for the tuple as a whole."""
    if arity == 0:
        return _neither
    before, last = choose(arity - 1), arity - 1

    def chosen(yes: bool, a: Any, b: Any) -> Any:
        return before(yes, a, b) + (a[last] if yes else b[last],)  # noqa: RUF005

    return _named(chosen, arity)


@functools.cache
def gain(arity: int) -> Callable[..., None]:
    """gain(n)(sums, at, after, before): adds what n numbers have grown by."""
    if arity == 0:
        return _unchanged
    one, last = gain(arity - 1), arity - 1

    def grow(sums: Any, at: int, after: Any, before: Any) -> None:
        one(sums, at, after, before)
        sums[at + last] += after[last] - before[last]

    return _named(grow, arity)


def inlined(function: Callable[..., T]) -> Callable[..., T]:
    """Mark a function that compiled code always inlines: once a row, with arrays as arguments.

    LLVM leaves a large one a call, which costs 30 to 60 ns for the numbers that arrays are.
    """
    function.__dict__["inlined"] = True
    return function


def _named(function: Callable[..., T], arity: int) -> Callable[..., T]:
    """With its arity in its name: see ``engine.compile``."""
    function.__name__ = function.__qualname__ = f"{function.__name__}{arity}"
    return function


def zeros(arity: int) -> tuple[float, ...]:
    """What a sum of n numbers begins with."""
    return arity * (0.0,)


def _nothing(cells: Any, at: int, by: int) -> Any:
    return ()


def _one(cells: Any, at: int, by: int) -> Any:
    return (float(cells[at]) * 1.0,)


def _two(cells: Any, at: int, by: int) -> Any:
    return float(cells[at]) * 1.0, float(cells[at + by]) * 1.0


def _ignore(cells: Any, at: int, by: int, numbers: Any) -> None:
    return


def _ignore_like(cells: Any, at: int, by: int, numbers: Any, like: Any) -> None:
    return


def _put_one(cells: Any, at: int, by: int, numbers: Any) -> None:
    cells[at] = numbers[0]


def _put_two(cells: Any, at: int, by: int, numbers: Any) -> None:
    cells[at] = numbers[0]
    cells[at + by] = numbers[1]


def _none(a: Any, b: Any) -> Any:
    return ()


def _neither(yes: bool, a: Any, b: Any) -> Any:
    return ()


def _sum(a: Any, b: Any) -> Any:
    return (a[0] + b[0],)


def _unchanged(sums: Any, at: int, after: Any, before: Any) -> None:
    return


# A function costs 20 to 40 ms to compile: the arities most rules have are one each, not a tower.
TAKEN = (_nothing, _one, _two)
PUT = (_ignore, _put_one, _put_two)
ADDED = (_none, _sum)
