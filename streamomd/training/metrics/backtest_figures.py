"""The figures of a backtest: of the periods that are finished, and where it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.training.metrics.by_time import DAY, HOUR

PERIODS = {"hour": (HOUR, 0), "day": (DAY, 0), "week": (7 * DAY, -3 * DAY)}
"""Length and the start of the one of 1970, in nanoseconds. Weeks begin on Monday."""
KEYS = ("period", "learned", "rows", "loss", "error", "rmse", "auc", "auc_error", "sums")
WORD, SUMS = 8, 3
"""Bytes of a number in a commit, and sums of rows."""


@dataclass(eq=False)
class Backtest:
    """by, gap: of the periods, and seconds before each whose rows are not learned yet.

    number: of the period under way, whose metrics are ``Metrics.period``. periods: figures of those
    that are finished, the latest ones; earlier: of all before them, None without any. before: rows
    of the periods without a model. finished: sums of all rows before the period under way.
    """

    by: str
    gap: float
    number: int | None = None
    periods: list[dict[str, Any]] = field(default_factory=list)
    before: int = 0
    earlier: dict[str, Any] | None = None
    finished: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    @property
    def length(self) -> int:
        """The length of a period, in nanoseconds."""
        return PERIODS[self.by][0]

    @property
    def origin(self) -> int:
        """The start of period 0, in nanoseconds since 1970."""
        return PERIODS[self.by][1]

    def array(self) -> NDArray[np.uint64]:
        """What a checkpoint saves: JSON, filled up with spaces."""
        text = json.dumps(vars(self)).encode()
        return np.frombuffer(text.ljust(-(-len(text) // WORD) * WORD), np.uint64)

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> Backtest:
        """Back from ``array``."""
        made = cls(**json.loads(np.ascontiguousarray(array, np.uint64).tobytes()))
        for one in (*made.periods, *([made.earlier] if made.earlier else [])):
            if not {*KEYS} <= one.keys() or len(one["sums"]) != SUMS:
                raise ValueError("a period of a backtest without figures")
        if made.by not in PERIODS or len(made.finished) != SUMS:
            raise ValueError(f"a backtest by {made.by!r}")
        return made
