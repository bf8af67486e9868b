"""Numeric columns far from 0: a rule that does not centre them learns slowly, and says so."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.urls import printable
from streamomd.core.wording import counted
from streamomd.features import Plan
from streamomd.rules.abilities import standardize_problem
from streamomd.shards.order import places
from streamomd.shards.shard import ShardSet
from streamomd.training.progress import note
from streamomd.training.row_stream import rows_of

Floats = NDArray[np.float64]
FAR = 5.0
"""Standard deviations between 0 and the mean from which on there is a warning."""
LEAST, MOST = 30, 10_000
"""Rows that are enough to know, and rows that are looked at."""
NAMED = 8


def report_offsets(specs: Iterable[Spec], plan: Plan, rows: Floats) -> None:
    """Print the warnings of jobs that learn the same rows, each once. rows: the first ones."""
    for line in dict.fromkeys(line for spec in specs for line in offset_warnings(spec, plan, rows)):
        note(line)


def report_offsets_of(spec: Spec, plan: Plan, shards: ShardSet) -> None:
    """The same where workers learn: this process reads the first rows."""
    if centres(spec) or not plan.numeric:
        return
    order = places(spec.data.order, spec.data.seed, len(shards), 0)
    with closing(rows_of(plan, shards, order, ahead_bytes=1)) as pieces:
        for piece in pieces:
            rows = piece.value.batch.first_columns(len(plan.numeric), MOST)
            report_offsets([spec], plan, rows)
            break


def offset_warnings(spec: Spec, plan: Plan, rows: Floats) -> list[str]:
    """A line that names the columns far from 0, and what to do about them; else none.

    rows: (rows, numeric columns), the first ones.
    """
    if centres(spec) or len(rows) < LEAST:
        return []
    known = np.ma.masked_invalid(rows)  # NaN: missing
    with np.errstate(over="ignore", invalid="ignore"):
        far = is_far(known.mean(axis=0).filled(0.0), known.std(axis=0).filled(0.0))
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
