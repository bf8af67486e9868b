"""The best constant prediction of the rows that were counted, and whether a model beats it."""

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


def baseline_verdict(result: Result) -> str:
    """The line about a model that is no better than a constant prediction; "" of other models.

    Hold-out rows decide if there are any. A positive AUC says that scores still rank rows.

    >>> baseline_verdict({"confusion": [[90, 0], [10, 0]], "error": 0.1, "rmse": None, "r2": None})
    'no better than a constant: error 0.1, and always predicting the most common class has 0.1'
    """
    held = result.get("holdout")
    rows = held if held and held.get("error", held.get("rmse")) is not None else result
    found = baseline_of({key: rows.get(key) for key in ("confusion", "error", "rmse", "r2")})
    if found is None:
        return ""
    if "error" in found:
        own = rows["error"]
        if own is None or own < found["error"]:
            return ""
        constant = f"always predicting the most common class has {found['error']:.4g}"
        return f"no better than a constant: error {own:.4g}, and {constant}"
    if rows["r2"] > 0.0:
        return ""
    return (
        f"no better than a constant: RMSE {rows['rmse']:.4g}, and the mean label has "
        f"{found['rmse']:.4g} (R² {rows['r2']:.3g})"
    )
