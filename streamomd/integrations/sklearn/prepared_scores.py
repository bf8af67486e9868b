"""Margins of pandas frames without a conversion to Arrow, bit-identical to those with one.

A frame of numbers becomes an array, and a prepared scorer reads the values of a few rows with
categories. All other frames, and those with a bad value, are converted, which names the errors.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from streamomd.core.batch import Floats
from streamomd.core.errors import StreamomdError
from streamomd.core.finite import is_finite
from streamomd.features import Plan
from streamomd.sources.memory.encoded_frames import batch_of_array

if TYPE_CHECKING:
    from streamomd.training.model import Model
    from streamomd.training.scoring.scorer import Scorer

FEW = 128
"""Rows from which Arrow's columns are faster than values of Python."""
FIRST, COORDINATES = 8, 1 << 13
"""A scorer is made after ``FIRST`` small frames of a state, and one more per ``COORDINATES``.

One of 2^18 coordinates takes as long as 30 small frames take through Arrow and is of no use once
the model learns: predictions between calls of ``partial_fit`` must not wait for scorers."""
EXACT = 2.0**53
"""A whole number that an array has from here on may be another one, rounded."""
TEXTS = ("str", "object", "category")


class PreparedScores:
    """What predictions of one state have prepared. A state that learns needs a new object."""

    def __init__(self) -> None:
        self._types: list[Any] | None = None
        self._asked = 0
        self._scorer: Scorer | None = None

    def margins(self, model: Model, X: Any, columns: Any) -> Floats | None:
        """(rows, learners), or None for frames to convert. columns: their names, an array."""
        if not _is_pandas(X) or not len(X) or X.columns.tolist() != columns.tolist():
            return None
        if self._types is None or X.dtypes.tolist() != self._types:
            return None
        try:
            if kind := _array_type(model.plan, self._types, columns):
                values = X.to_numpy(kind)
                if not is_finite(values) or np.abs(values).max(initial=0.0) >= EXACT:
                    return None
                rows = batch_of_array(model.plan, values)
                predicted: Floats = model.engine.predict(model.state, np.zeros(3), rows)
            elif len(X) < FEW and (scorer := self._ready_scorer(model)):
                _, scores, _ = scorer.many(_mappings(X, self._types))
                predicted = np.reshape(scores, (len(X), -1))
            else:
                return None
        except (StreamomdError, TypeError, ValueError):
            return None  # the conversion finds it again, and names it
        return predicted if is_finite(predicted) else None

    def note(self, X: Any) -> None:
        """A frame whose margins were found through Arrow: its columns have the right types."""
        if _is_pandas(X):
            types = X.dtypes.tolist()
            self._types = types if all(map(_is_plain, types)) else None

    def _ready_scorer(self, model: Model) -> Scorer | None:
        """The scorer, once it has been asked for often enough."""
        self._asked += 1
        if self._scorer is None and self._asked == FIRST + model.plan.size // COORDINATES:
            self._scorer = model.scorer()
        return self._scorer


def _is_pandas(X: Any) -> bool:
    pandas = sys.modules.get("pandas")  # a pandas frame implies that pandas is imported
    return pandas is not None and type(X) is pandas.DataFrame


def _is_plain(kind: Any) -> bool:
    """Whether values of this type are Python's own in an array of objects."""
    numeric = isinstance(kind, np.dtype) and kind.kind in "biuf"
    return numeric or str(kind) in TEXTS


def _array_type(plan: Plan, types: list[Any], columns: Any) -> Any:
    """The type of the array whose column c is numeric column c of the plan; None without one."""
    if plan.size != len(columns) + int(plan.bias) or plan.numeric != tuple(columns):
        return None
    names = {*map(str, types)}
    if names <= {"int64", "float64"}:
        return np.float64
    return np.float32 if names == {"float32"} else None


def _mappings(X: Any, types: list[Any]) -> list[dict[str, Any]]:
    """The rows as mappings. Raises TypeError for a value of a column of texts that is none."""
    names = X.columns.tolist()
    rows = X.to_numpy(object).tolist()
    for at in (at for at, kind in enumerate(types) if str(kind) in TEXTS):
        for row in rows:
            row[at] = _text(row[at])
    return [dict(zip(names, row, strict=True)) for row in rows]


def _text(value: Any) -> str | None:
    if type(value) is str:
        return value
    if value is None or (type(value) is float and value != value):  # noqa: PLR0124
        return None
    raise TypeError(value)
