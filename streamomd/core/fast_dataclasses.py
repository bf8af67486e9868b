"""Methods of data classes as closures, while a command imports its modules.

Before Python 3.13, `dataclasses` compiles the text of each method by itself: six for a frozen
class, of which a command imports 160. Only ``__init__`` is compiled here; the others do the same.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any

NAMES = ("_repr_fn", "_cmp_fn", "_hash_fn", "_frozen_get_del_attr")


@contextmanager
def closures_for_dataclasses() -> Iterator[None]:
    """Inside, data classes are made so. Nothing changes where `dataclasses` has other functions."""
    module: Any = dataclasses
    before = [getattr(module, name, None) for name in NAMES]
    if sys.version_info >= (3, 13) or None in before:
        yield
        return
    ours: tuple[Any, ...] = (_repr_fn, _cmp_fn, _hash_fn, _frozen_get_del_attr)
    for name, function in zip(NAMES, ours, strict=True):
        setattr(module, name, function)
    try:
        yield
    finally:
        for name, function in zip(NAMES, before, strict=True):
            setattr(module, name, function)


def _repr_fn(fields: Sequence[Any], globals: Any) -> Any:  # noqa: A002 (as in dataclasses)
    names = [field.name for field in fields]

    def __repr__(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({values})"

    return recursive_repr()(__repr__)


def _cmp_fn(name: str, op: str, self_tuple: str, other_tuple: str, globals: Any) -> Any:  # noqa: A002
    compare = {"==": tuple.__eq__, "<": tuple.__lt__, "<=": tuple.__le__, ">": tuple.__gt__}
    order = compare.get(op, tuple.__ge__)
    values = _tuple_of([part[5:] for part in self_tuple[1:-1].split(",") if part])

    def method(self: Any, other: Any) -> Any:
        if other.__class__ is self.__class__:
            return order(values(self), values(other))
        return NotImplemented

    method.__name__ = name
    return method


def _hash_fn(fields: Sequence[Any], globals: Any) -> Any:  # noqa: A002
    values = _tuple_of([field.name for field in fields])

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _frozen_get_del_attr(cls: Any, fields: Sequence[Any], globals: Any) -> Any:  # noqa: A002
    names = tuple(field.name for field in fields)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _tuple_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What makes a tuple of these attributes of an object."""
    if not names:
        return lambda one: ()
    values: Any = attrgetter(*names)
    return values if len(names) > 1 else lambda one: (values(one),)
