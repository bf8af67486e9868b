"""The best constant prediction of the rows that were counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Result = Mapping[str, Any]


def baseline_of(result: Result) -> dict[str, float] | None:
    """What the best constant would have: {"error": …} or {"rmse": …}; None where it is unknown.

    result: metrics of a run, of an evaluation or of hold-out rows. The constant is the most common
    class, or the mean label; both are known only once all rows were seen.

    >>> baseline_of({"confusion": [[90, 0], [8, 2]], "error": 0.08, "rmse": None, "r2": None})
    {'error': 0.1}
    >>> baseline_of({"confusion": None, "error": None, "rmse": 3.0, "r2": 0.75})
    {'rmse': 6.0}
    """
    if result["confusion"]:
        shares = [sum(row) for row in result["confusion"]]
        total = float(sum(shares))
        return {"error": round(1.0 - max(shares) / total, 15)} if total > 0.0 else None
    rmse, r2 = result["rmse"], result["r2"]
    if rmse is None or r2 is None or r2 >= 1.0:
        return None
    return {"rmse": float(rmse) / math.sqrt(1.0 - r2)}
