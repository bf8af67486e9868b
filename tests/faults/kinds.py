"""Kinds of fault: each opens some ground, and there a case is made, and judged, from its seed.

A kind is a context manager; registering it is all there is to do, in a module of this folder
(which is no package: ``from kinds import kind``, as all helpers of tests are imported)::

    @kind("bit-flips", quick=500)
    @contextmanager
    def bit_flips(folder: Path) -> Iterator[Cases]:
        '''One bit is wrong, on the disk or on the way.'''
        ...                                     # what all cases share; folder is empty, and its own
        yield Cases(range(8 * size), run)       # run(seed) -> Verdict
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Verdict(StrEnum):
    """What came of a case. The first two keep the promise, the others break it."""

    SAME = "same bits"
    NAMED = "named error"  # or told on loading; and the last good commit stands
    SILENT = "SILENT"  # other bits, or an older commit, and nobody was told
    LOST = "LOST"  # a commit that was reported made, or the good one before, is gone
    HANG = "HANG"
    CRASH = "CRASH"  # an error that is none of streamomd's


KEPT = (Verdict.SAME, Verdict.NAMED)


class Unavailable(Exception):
    """Raised on opening: this machine lacks what the kind needs; the message says what."""


@dataclass(frozen=True)
class Cases:
    """Seeds of all cases, and what runs one. ``deadline``: seconds after which a case hangs."""

    seeds: Sequence[int]
    run: Callable[[int], Verdict]
    deadline: float = 60.0


Open = Callable[[Path], AbstractContextManager[Cases]]


@dataclass(frozen=True)
class Kind:
    """``quick``: how many cases, spread over all, the quick run has. ``about``: one line."""

    name: str
    about: str
    open: Open
    quick: int


KINDS: dict[str, Kind] = {}


def kind(name: str, *, quick: int) -> Callable[[Open], Open]:
    """Register what is decorated; its docstring's first line tells the fault."""

    def register(open_: Open) -> Open:
        assert name not in KINDS
        KINDS[name] = Kind(name, (open_.__doc__ or "").split("\n")[0], open_, quick)
        return open_

    return register


def every_kind() -> dict[str, Kind]:
    """All that is registered anywhere in this folder; a module for each store or idea."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith(("test_", "_")):
            importlib.import_module(module.name)
    assert "faults.kinds" not in sys.modules, "write `from kinds import`: there is one registry"
    return dict(sorted(KINDS.items()))
