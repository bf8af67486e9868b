"""What rows show: labels in long runs, numbers outside of curves, columns far from 0."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Floats
from streamomd.core.urls import printable
from streamomd.core.wording import counted, listed
from streamomd.features.plan import Plan, number_at, number_name
from streamomd.rules import standardize_problem
from streamomd.shards.order import places
from streamomd.shards.shard import ShardSet
from streamomd.training.progress import note
from streamomd.training.row_stream import rows_of

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
    return [
        f"warning: {counted(len(names), 'numeric column')} with a mean more than {FAR:g} standard "
        f"deviations from 0 in the first {len(rows):,} rows: {printable(listed(names, NAMED))}; "
        f"rule {spec.model.rule!r} does not centre columns: {remedies(spec)}"
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


LEAST = 100  # rows, and
LEAST_EXPECTED = 20  # changes, below which mixed labels could come in such runs by chance
SHARE = 0.5
ENOUGH = 3  # passes, after which sorted labels cost little
REMEDY = (
    "Shuffle the rows before (streamomd convert SHARDS --shuffle 0 --to DIR), or learn several "
    "passes (--epochs 3)"
)


@dataclass(eq=False)
class LabelRuns:
    """Counts of a process's rows: changes of the label from row to row, and rows of each class."""

    changes: int = 0
    rows: int = 0
    last: float | None = None
    counts: dict[float, int] = field(default_factory=dict)

    def add(self, y: Floats) -> None:
        """The classes of the next rows, in their order."""
        if not len(y):
            return
        self.changes += int(np.count_nonzero(y[1:] != y[:-1]))
        self.changes += int(self.last is not None and self.last != y[0])
        self.rows, self.last = self.rows + len(y), float(y[-1])
        # Two classes are counted without sorting the labels.
        known = [*self.counts] if len(self.counts) == 2 else []
        found = {label: int(np.count_nonzero(y == label)) for label in known}
        if sum(found.values()) < len(y):
            found = {
                float(label): int(n)
                for label, n in zip(*np.unique(y, return_counts=True), strict=True)
            }
        for label, count in found.items():
            self.counts[label] = self.counts.get(label, 0) + count

    @property
    def expected(self) -> float:
        """Changes if the rows were shuffled."""
        shares = [count / self.rows for count in self.counts.values()]
        return self.rows * (1.0 - sum(share * share for share in shares))

    def warning(self, remedy: str = REMEDY) -> str:
        """What to say of them, and ``remedy``; "" of few rows, and of rows whose labels are mixed.

        >>> runs = LabelRuns()
        >>> runs.add(np.repeat([-1.0, 1.0], 1000))
        >>> runs.warning()[:65]
        'labels come in long runs (1 change in 2,000 rows; shuffled rows h'
        """
        if self.rows < LEAST or self.expected < LEAST_EXPECTED:
            return ""
        if self.changes >= SHARE * self.expected:
            return ""
        what = "change" if self.changes == 1 else "changes"
        return (
            f"labels come in long runs ({self.changes:,} {what} in {self.rows:,} rows; shuffled "
            f"rows have about {self.expected:,.0f}): one pass learns the last run best. {remedy}"
        )


LOOKED_AT = 1000
"""Rows of each batch, the first ones."""
SHARE_OUTSIDE = 0.05


@dataclass(eq=False)
class CurveRanges:
    """Counts of a process's rows, and, by curve, of those outside of its range."""

    rows: int = 0
    outside: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, plan: Plan, batch: Batch) -> None:
        """The next rows. A value of 0 may be a missing one, and counts as inside."""
        curves = plan.curves
        x = batch.first_columns(plan.given_numbers, LOOKED_AT)[:, [one.place for one in curves]]
        low, high = np.array([(one.least, one.most) for one in curves]).T
        missing = [plan.nulls_of(number_at(plan, one.place)[0]) != "error" for one in curves]
        found = ((x < low) | (x > high)) & ~((x == 0.0) & np.array(missing))
        before = self.outside if self.rows else np.zeros(len(curves), np.int64)
        self.outside, self.rows = before + found.sum(axis=0), self.rows + len(x)

    def warning(self, plan: Plan) -> str:
        """What to say of them; "" where few are outside."""
        if not self.rows:
            return ""
        share = self.outside / self.rows
        if not (share > SHARE_OUTSIDE).any():
            return ""
        pairs = zip(plan.curves, share.tolist(), strict=True)
        names = [
            f"{number_name(plan, one.place)} ({s:.0%})" for one, s in pairs if s > SHARE_OUTSIDE
        ]
        return (
            "curves: more than 5 % of the values are below or above those of the first rows, which "
            f"decided the knots, in {printable(listed(tuple(names), 8))}; there the effect is "
            "linear. Shuffle the rows before (streamomd convert SHARDS --shuffle 0 --to DIR)"
        )
