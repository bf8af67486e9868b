"""The figures of a backtest: of the periods that are finished, and where it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamomd.core.run_events import emit
from streamomd.training.metrics.by_time import DAY, EARLIER_TEXT, HOUR, RETAINED, period_text

if TYPE_CHECKING:
    from streamomd.training.model import Model

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
        """Of a period, in nanoseconds."""
        return PERIODS[self.by][0]

    @property
    def origin(self) -> int:
        """The start of period 0, in nanoseconds since 1970."""
        return PERIODS[self.by][1]

    def end_period(self, model: Model) -> None:
        """Note the figures of the period under way, if its model had learned a row. model: which
        has learned no row since its beginning."""
        number, metrics, learned = self.number, model.metrics.period, model.teaching.rows
        if number is None or metrics is None:
            return
        self.number, model.metrics.period = None, None
        self.finished = (self.finished + metrics.current).tolist()
        if not learned:
            self.before += metrics.total_rows
            return
        rank = metrics.detail.rank() if metrics.detail is not None else {}
        mean = model.reported_mean
        calibrated = {"calibrated": metrics.calibrated(mean)} if mean else {}
        found = {
            "period": period_text(number, self.length, self.origin),
            "learned": learned,
            "rows": metrics.total_rows,
            **metrics.figures(metrics.current),
            "auc": rank.get("auc"),
            "auc_error": rank.get("auc_error"),
            **calibrated,
        }
        emit("period", "", "info", **found)
        self.periods.append({**found, "sums": metrics.current.tolist()})
        if len(self.periods) > RETAINED:
            self._join_earliest(model)

    def _join_earliest(self, model: Model) -> None:
        """Join the earliest period with those before it: figures of at most ``RETAINED``, and of
        all earlier ones together."""
        first = self.periods.pop(0)
        before = self.earlier or {"rows": 0, "sums": [0.0, 0.0, 0.0]}
        sums = np.add(before["sums"], first["sums"])
        self.earlier = {
            "period": EARLIER_TEXT,
            "learned": first["learned"],
            "rows": before["rows"] + first["rows"],
            **model.metrics.figures(sums),
            "auc": None,
            "auc_error": None,
            **_calibrated_together([before, first]),
            "sums": sums.tolist(),
        }

    def result(self, model: Model) -> dict[str, Any]:
        """What ``streamomd.backtest`` gives."""
        metrics, timed = model.metrics, model.metrics.by_time
        periods = [*([self.earlier] if self.earlier else []), *self.periods]
        sums = np.zeros(3)
        for one in periods:
            sums += one["sums"]
        return {
            "by": self.by,
            "gap": self.gap,
            "rows": sum(one["rows"] for one in periods),
            **metrics.figures(sums),
            **_calibrated_together(periods),
            "periods": [{key: one[key] for key in one if key != "sums"} for one in periods],
            "rows_before": self.before,
            "late": timed.late if timed else 0,
            "ties": timed.ties if timed else 0,
            "skipped": metrics.skipped,
            "seconds": model.seconds,
            "rows_per_second": model.rows_per_second,
            "compile_seconds": model.engine.compile_seconds,
            **({"checkpoint": {"url": model.url, "sequence": model.sequence}} if model.url else {}),
        }

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


def _calibrated_together(periods: list[dict[str, Any]]) -> dict[str, Any]:
    """``calibrated`` of the rows of all periods: the mean log loss, None if one has none; nothing
    without calibration."""
    known = [(one["calibrated"], one["sums"][0]) for one in periods if "calibrated" in one]
    if not known:
        return {}
    weight = sum(weight for _, weight in known)
    if not weight or any(one is None or one["log_loss"] is None for one, _ in known):
        return {"calibrated": {"log_loss": None}}
    total = sum(one["log_loss"] * weight for one, weight in known)
    return {"calibrated": {"log_loss": float(total / weight)}}
