"""Numeric columns far from 0: a rule that does not centre them learns slowly, and says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, DenseBatch
from streamomd.core.counted import counted
from streamomd.core.urls import printable
from streamomd.features import Plan
from streamomd.rules.standardize import standardize_problem

Floats = NDArray[np.float64]
FAR = 5.0
"""Standard deviations between 0 and the mean from which on there is a warning."""
LEAST, MOST = 30, 10_000
"""Rows that are enough to know, and rows that are read at most."""
NAMED = 8


def offset_warnings(spec: Spec, plan: Plan, batches: Sequence[Batch]) -> list[str]:
    """A line that names the columns far from 0 in the first rows, and what to do; else none."""
    if centres(spec) or not plan.numeric:
        return []
    rows = _numeric_columns(plan, batches)
    if len(rows) < LEAST:
        return []
    with np.errstate(over="ignore", invalid="ignore"):
        far = is_far(rows.mean(axis=0), rows.std(axis=0))
    names = [name for name, yes in zip(plan.numeric, far, strict=True) if yes]
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [
        f"warning: {counted(len(names), 'numeric column')} with a mean more than {FAR:g} standard "
        f"deviations from 0 in the first {len(rows):,} rows: {printable(', '.join(names[:NAMED]))}"
        f"{more}; rule {spec.model.rule!r} does not centre columns: {remedies(spec)}"
    ]


def is_far(mean: Floats, deviation: Floats) -> NDArray[np.bool_]:
    """Which columns are far from 0; a constant one only adds to the bias."""
    return (deviation > 0.0) & (np.abs(mean) > FAR * deviation)


def centres(spec: Spec) -> bool:
    """Whether a job learns centred columns."""
    return spec.data.standardize != "none" or spec.rule.storage.kind == "block"


def remedies(spec: Spec) -> str:
    """What to do about columns far from 0."""
    able = spec.train.mode == "exact" and not standardize_problem(spec.rule, spec.model.params)
    other = "set data.standardize to running" if able else "subtract the mean beforehand"
    return f"use --rule auto, or {other}"


def _numeric_columns(plan: Plan, batches: Sequence[Batch]) -> Floats:
    """Values of the numeric columns of the first rows, (rows, columns)."""
    found, left, p = [], MOST, len(plan.numeric)
    for batch in batches:
        rows = batch.rows(0, min(left, len(batch)))
        left -= len(rows)
        if isinstance(rows, DenseBatch):
            found.append(np.asarray(rows.values[:, :p], np.float64))
            continue
        values = np.zeros((len(rows), p))
        front = rows.indices < p
        row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
        values[row[front], rows.indices[front]] = rows.values[front]
        found.append(values)
    return np.concatenate(found) if found else np.empty((0, p))
