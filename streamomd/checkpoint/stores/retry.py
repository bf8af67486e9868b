"""Retry a request to a store after an error that may be temporary."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from streamomd.core.errors import StorageError
from streamomd.core.machine_errors import store_error
from streamomd.core.run_events import emit

T = TypeVar("T")

ATTEMPTS = 4
FIRST_PAUSE = 0.2
"""Seconds before the second attempt; doubled before each further one."""
MAX_SECONDS = 120.0
"""No attempt starts later than this: a store's own client may wait minutes in each."""


def retry_request(action: Callable[[], T], failure: str) -> T:
    """The result of ``action`` in at most four attempts, none started after two minutes.

    ``failure`` is the start of the message if all fail.
    FileNotFoundError and FileExistsError are answers and pass; other errors become StorageError.
    """
    last = time.monotonic() + MAX_SECONDS
    for attempt in range(1, ATTEMPTS + 1):
        if attempt > 1:
            emit("store_retry", f"{failure}: attempt {attempt}", "info", attempt=attempt)
        try:
            return action()
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if attempt == ATTEMPTS or time.monotonic() > last:
                # Not chained: the requests of the original may hold credentials.
                text = store_error(error)
                raise StorageError(f"{failure} after {attempt} attempts: {text}") from None
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 (no secret)
    raise AssertionError("unreachable")
