"""A function of the user's that returns a Dask cluster or client: ``--cluster module:factory``.

It is code, so it is not a key of a job: no manifest, checkpoint or job file can name one. It comes
from the command line, or from Dask's configuration.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable, scrub
from streamomd.core.wording import nearest

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class ClusterFactory:
    """name: module:factory, e.g. distributed:LocalCluster. here: whether modules of the current
    directory are found, after installed ones; origin: where the name was read, for messages."""

    name: str
    here: bool = True
    origin: str = "--cluster"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self}: expected module:factory, e.g. --cluster distributed:LocalCluster"
            )

    def __str__(self) -> str:
        return f"{self.origin} {printable(self.name)}"

    def make(self) -> object:
        """What the factory returns. Raises UsageError if it cannot be imported or raises."""
        factory = self._import()
        try:
            return factory()
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self}: the factory raised {_described(error)}") from error

    def _import(self) -> Callable[[], object]:
        module, _, path = self.name.partition(":")
        try:
            with _current_directory() if self.here else _nothing():
                found: Any = importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self}: module {module} raised {_described(error)}") from error
        for step in path.split("."):
            if not hasattr(found, step):
                near = nearest(step, [name for name in dir(found) if not name.startswith("_")])
                hint = f"; did you mean {near!r}?" if near else ""
                raise UsageError(f"{self}: {module} has no {step!r}{hint}")
            found = getattr(found, step)
        if not callable(found):
            raise UsageError(f"{self}: expected a function, not {type(found).__name__}")
        factory: Callable[[], object] = found
        return factory


def _described(error: BaseException) -> str:
    text = printable(scrub(str(error)))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def _current_directory() -> Iterator[None]:
    """Last, so that a file there replaces no installed module."""
    here = os.getcwd()
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
