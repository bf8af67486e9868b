"""The clock of a run that follows its sources; tests have their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """now_ns: of the wall, as files have it. seconds: monotonic."""

    now_ns: Callable[[], int] = time.time_ns
    seconds: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
