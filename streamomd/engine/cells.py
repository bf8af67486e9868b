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
    """The cell as a float64: numba's float() alone keeps a float32 what it is."""
    return float(cell) * 1.0


@functools.cache
def take(arity: int) -> Callable[..., Any]:
    """take(n)(cells, at, by) -> n numbers."""
    if arity == 0:
        return _nothing
    before, last = take(arity - 1), arity - 1

    def load(cells: Any, at: int, by: int) -> Any:
        return before(cells, at, by) + (number(cells[at + last * by]),)  # noqa: RUF005

    return _named(load, arity)


@functools.cache
def put(arity: int) -> Callable[..., None]:
    """put(n)(cells, at, by, numbers): writes n numbers."""
    if arity == 0:
        return _ignore
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
    if arity == 0:
        return _none
    before, last = add(arity - 1), arity - 1

    def plus(a: Any, b: Any) -> Any:
        return before(a, b) + (a[last] + b[last],)  # noqa: RUF005

    return _named(plus, arity)


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


def _named(function: Callable[..., T], arity: int) -> Callable[..., T]:
    """With its arity in its name: see ``fuse._name_apart``."""
    function.__name__ = function.__qualname__ = f"{function.__name__}{arity}"
    return function


def zeros(arity: int) -> tuple[float, ...]:
    """What a sum of n numbers begins with."""
    return arity * (0.0,)


def _nothing(cells: Any, at: int, by: int) -> Any:
    return ()


def _ignore(cells: Any, at: int, by: int, numbers: Any) -> None:
    return


def _ignore_like(cells: Any, at: int, by: int, numbers: Any, like: Any) -> None:
    return


def _none(a: Any, b: Any) -> Any:
    return ()


def _neither(yes: bool, a: Any, b: Any) -> Any:
    return ()


def _unchanged(sums: Any, at: int, after: Any, before: Any) -> None:
    return
