"""Responses to rows: predictions and explanations as JSON, and what is wrong with rows."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from streamomd.core.errors import StreamomdError
from streamomd.core.urls import printable
from streamomd.integrations.serve.model_reloader import Snapshot
from streamomd.integrations.serve.request_rows import Refusal
from streamomd.training.scoring.row_values import WRONG_TYPE, flat_row, paths_of

MOST_PROBLEMS = 20
_LONGEST = 500
OTHER = "invalid"
"""The code of a problem without one of its own."""
Row = Mapping[str, Any]


def predictions_of(snapshot: Snapshot, rows: Sequence[Row]) -> bytes:
    """The response of /predict. Raises Refusal (422) for rows that cannot be predicted."""
    try:
        scored = snapshot.scorer.many(rows)
    except (StreamomdError, ValueError, TypeError, OverflowError):
        refuse_rows(snapshot, rows)
        raise
    predictions, scores, probabilities = map(_listed, scored)
    if probabilities is None:
        probabilities = [None] * len(rows)
    return _response(
        snapshot,
        "predictions",
        [
            {"prediction": prediction, "score": score, "probability": probability}
            for prediction, score, probability in zip(
                predictions, scores, probabilities, strict=True
            )
        ],
    )


def explanations_of(snapshot: Snapshot, rows: Sequence[Row]) -> bytes:
    """The response of /explain. Raises Refusal (422) for rows that cannot be explained."""
    try:
        explanations = [snapshot.scorer.explain(row) for row in rows]
    except (StreamomdError, ValueError, TypeError, OverflowError):
        refuse_rows(snapshot, rows)
        raise
    several = len(snapshot.schema.classes) > 2
    return _response(
        snapshot,
        "explanations",
        [
            {
                "score": _listed(explanation.margin),
                "contributions": [_contributions(each) for each in explanation.contributions]
                if several
                else _contributions(explanation.contributions),
            }
            for explanation in explanations
        ],
    )


def _contributions(found: Sequence[tuple[str, Any, float]]) -> list[dict[str, Any]]:
    return [
        {"feature": name, "value": _plain(value), "contribution": _plain(part)}
        for name, value, part in found
    ]


def refuse_rows(snapshot: Snapshot, rows: Sequence[Row]) -> None:
    """Raises Refusal with all missing columns and the first bad values, if there are any."""
    required = snapshot.schema.required
    paths = paths_of(required)
    rows = [flat_row(row, paths) for row in rows]
    missing = [name for name in required if any(name not in row for row in rows)]
    problems: list[dict[str, Any]] = []
    more = 0
    for number, row in enumerate(rows):
        problem = _problem(snapshot, row)
        if problem is not None and len(problems) < MOST_PROBLEMS:
            problems.append({"row": number, **problem})
        elif problem is not None:
            more += 1
    if not missing and not problems:
        return
    parts = []
    if missing:
        first = next(
            number for number, row in enumerate(rows) if any(name not in row for name in missing)
        )
        names = ", ".join(repr(name) for name in missing)
        parts.append(f"missing columns: {names} (first in row {first})")
    parts += [f"row {one['row']}: {one['message']}" for one in problems]
    parts += [f"{more:,} more rows have problems"] if more else []
    message = "; ".join(parts)
    raise Refusal(422, "invalid_rows", message, missing=missing, problems=problems)


def _problem(snapshot: Snapshot, row: Row) -> dict[str, Any] | None:
    """Columns and message of a row's bad values. Missing columns are reported separately."""
    wrong = {
        name: _expected(kind, row[name])
        for name, kind in snapshot.schema.columns.items()
        if name in row and _expected(kind, row[name])
    }
    if wrong:
        text = "; ".join(f"column {name!r}: {problem}" for name, problem in wrong.items())
        return {"code": WRONG_TYPE, "columns": list(wrong), "message": text[: 10 * _LONGEST]}
    if any(name not in row for name in snapshot.schema.required):
        return None
    try:
        snapshot.scorer.score(row)
    except StreamomdError as error:
        message = error.message
        wrong_columns = {part.column for part in message.parts()}
        columns = [name for name in snapshot.schema.columns if name in wrong_columns]
        text = printable(str(message)).removeprefix("the row: ")  # the request's rows have numbers
        return {"code": message.code, "columns": columns, "message": text[: 10 * _LONGEST]}
    except (ValueError, TypeError, OverflowError) as error:
        return {"code": OTHER, "columns": [], "message": printable(str(error))[: 10 * _LONGEST]}
    return None


_TAKEN: Mapping[str, tuple[tuple[type, ...], str]] = {
    "number": ((int, float), "a number"),
    "category": ((str, int, float, bytes), "text, a number or a boolean"),
    "text": ((str,), "text"),
    "date": ((str, datetime.date), "a date or time, as text '2026-01-31' or '2026-01-31T12:00'"),
    "list": ((list,), "a list of numbers"),
    "categories": ((list,), "a list of text, numbers or booleans"),
}


def _expected(kind: str, value: Any) -> str:
    """What is wrong with a value's type; empty if nothing is, or only the scorer knows."""
    types, expected = _TAKEN.get(kind, ((object,), ""))
    if value is None or isinstance(value, types):
        return ""
    text = json.dumps(value, default=str)
    found = text if len(text) <= 80 else f"{text[:80]}…"
    return f"found {found}, expected {expected}"


def _response(snapshot: Snapshot, name: str, found: list[Any]) -> bytes:
    return encoded({name: found, "commit": snapshot.commit})


def encoded(document: Any) -> bytes:
    """A document as JSON; NaN and infinities are null."""
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError):
        text = json.dumps(
            _plain(document), allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
    return text.encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    """A value as JSON has it: finite numbers, and texts of whatever has no JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "tolist"):  # of numpy
        return _plain(value.tolist())
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
