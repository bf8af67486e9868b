"""Modules that others import if they are there, slowly, and that this process does without."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def left_out(module: str) -> Iterator[None]:
    """Whoever imports that module inside, in this thread and first, is told that there is none."""
    finder = _Missing(module)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Missing:
    def __init__(self, module: str) -> None:
        self._module, self._thread = module, threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Called by Python for each module that is imported."""
        if name == self._module and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is left out here", name=name)
