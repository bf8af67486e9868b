"""Asking a store again after an error that may pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from streamomd.core.errors import StorageError
from streamomd.core.urls import scrub

T = TypeVar("T")

TRIES = 4
PAUSE = 0.2
"""Seconds before the second try; twice as long before each further one."""
PATIENCE = 120.0
"""Seconds after which no try begins: a store's own client may wait for minutes in each."""


def retried(action: Callable[[], T], told: str) -> T:
    """What ``action`` gives in at most four tries, none begun after two minutes.

    ``told`` begins the message if it never gives anything.
    FileNotFoundError and FileExistsError are answers and passed on; all else becomes StorageError.
    """
    last = time.monotonic() + PATIENCE
    for tried in range(1, TRIES + 1):
        try:
            return action()
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if tried == TRIES or time.monotonic() > last:
                # Not chained: the requests of the original may hold credentials.
                text = f"{type(error).__name__}: {scrub(str(error))}"
                raise StorageError(f"{told} after {tried} tries: {text}") from None
        time.sleep(PAUSE * 2 ** (tried - 1) * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
    raise AssertionError("unreachable")
