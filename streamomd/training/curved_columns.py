"""Which numbers get curves: those whose hats a score test on the first rows asks for.

Rule ``auto`` learns the first rows without curves. The slopes g of the losses by the margins, of
rows that it predicted before it learned them, are regressed on hats. With H the hats of a number,
Z its intercept and linear term and M = [Z H]' diag(g^2) [Z H], the score of H beyond Z is
s = H'g - M_HZ M_ZZ^-1 Z'g and its variance S = M_HH - M_HZ M_ZZ^-1 M_ZH. Where the effect is a
line, X = s'S^-1 s is about chi-squared with k = rank S degrees of freedom (Lagrange multiplier test
by the outer product of gradients). It depends on the unit of neither losses nor weights.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamomd.config.model_table import DEFAULT
from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, Floats
from streamomd.core.scalars import FEWEST, Curve, hats_of
from streamomd.core.wording import counted
from streamomd.engine.loops.row import number_of_class, target
from streamomd.engine.state import State
from streamomd.features import Plan
from streamomd.features.curves import (
    BUDGET,
    MOST_NUMBERS,
    MOST_READ,
    ROWS,
    best_curves,
    candidates_of,
    equal_curves,
)
from streamomd.features.encode import first_numbers
from streamomd.rules import find_rule
from streamomd.shards.encoded_rows import encode_rows, learned_rows
from streamomd.shards.reader import ShardBatch, read_batches
from streamomd.shards.shard import ShardSet
from streamomd.training.model_data import engine_of
from streamomd.training.progress import note

FEWEST_ROWS = 1_000
"""Of fewer rows all numbers are curved."""
CREDIBLE = 3.0
"""A number is curved if X - k, grown to all rows, is above this times k: chance alone rarely is."""
LATER_GAIN = 0.1
"""The share of the loss that rows after the first ones may be expected to make good."""
LEAST = 1e-6
"""Variances below this share of the largest one are rounding."""
TOGETHER = 64
"""Numbers whose hats are encoded in one pass over the first rows."""


class FirstRows(NamedTuple):
    """The first rows of a run. numbers: (rows, numbers), NaN where one is missing. weights:
    (rows,). encode: batches of these rows by a plan."""

    numbers: Floats
    weights: Floats
    encode: Callable[[Plan], list[Batch]]


class CurveChoice(NamedTuple):
    """Chosen curves, or why there are none, and the share of the loss of the second half of the
    first rows that they save, each row predicted before it is learned."""

    curves: tuple[Curve, ...]
    reason: str = ""
    gain: float = 0.0


def choose_curves(spec: Spec, plan: Plan, first: FirstRows, total: int) -> CurveChoice:
    """The curves of a plan's numbers. total: rows of the run, at least the first ones.

    Knots depend on values and weights alone; which numbers have some, on labels, too. None where
    they add to the loss of the first rows what later rows will not make good.
    """
    rows = len(first.weights)
    few = rows < FEWEST_ROWS
    given = first.numbers, first.weights
    candidates = equal_curves(*given) if few else candidates_of(*given)
    if few or not candidates:
        return CurveChoice(candidates, "" if candidates else _too_few(plan))
    plain, slopes = learned_first(spec, plan, first)
    worth: list[float] = []
    for low in range(0, len(candidates), TOGETHER):
        trial = replace(plan, curves=candidates[low : low + TOGETHER])
        tables = [b.first_columns(trial.numbers, len(b)) for b in first.encode(trial)]
        table = np.concatenate(tables)[-len(slopes) :]
        for curve, places in hats_of(trial.curves, plan.given_numbers):
            X, k = _score(slopes, table[:, curve.place], table[:, places])
            worth.append((X - k) * max(1.0, total / len(slopes)) - CREDIBLE * k)
    curves = best_curves(candidates, worth, plan.given_numbers)
    if not curves:
        return CurveChoice((), f"the first {rows:,} rows show no effect that is not a line")
    trial = replace(plan, curves=curves)
    curved, _ = learned_first(spec, trial, first)
    gain = 1.0 - curved / plain if plain > 0.0 else 0.0
    if gain < -LATER_GAIN * (1.0 - min(1.0, rows / total)):
        return CurveChoice((), f"curves add {-gain:.1%} to the loss of the first {rows:,} rows")
    return CurveChoice(curves, gain=gain)


def _too_few(plan: Plan) -> str:
    return (
        f"of {counted(plan.given_numbers, 'number')} none has {FEWEST} values in the first rows, "
        f"or of fewer than {FEWEST_ROWS:,} rows more than {BUDGET // FEWEST} have"
    )


def screening_job(spec: Spec, plan: Plan) -> tuple[Spec, Plan]:
    """The job with the rule that learns the first rows, to see what would help, and the plan with
    the bias that the rule needs."""
    spec = spec.of_classes(len(plan.classes))
    params = find_rule(DEFAULT).parse_params({})
    model = {"rule": DEFAULT, "params": params, "certificate": False, "start": "", "bias": True}
    own = {
        "model": spec.model.model_copy(update={**model, "scale_target": None}),
        "data": spec.data.model_copy(update={"standardize": "none"}),
    }
    return spec.model_copy(update=own), replace(plan, bias=True)


def learned_first(spec: Spec, plan: Plan, first: FirstRows) -> tuple[float, Floats]:
    """The loss of the second half of the first rows, by the rule that screens, and from the second
    quarter on the slopes of each row's loss by its margins, times its weight, (rows, learners);
    each row is predicted before it is learned."""
    spec, plan = screening_job(spec, plan)
    batches = _of_mean_weight_1(first.encode(plan))
    return _learned(spec, plan, batches, len(first.weights))


def later_loss(spec: Spec, plan: Plan, first: FirstRows) -> float:
    """The loss of the second half of the first rows, predicted by a model of the first half: what
    changes with time shows there, as it does in predictions of a saved model."""
    spec, plan = screening_job(spec, plan)
    engine, half, low = engine_of(spec, plan), len(first.weights) // 2, 0
    state, sums = State.start(engine.layout), np.zeros(3)
    engine.begin(state)
    for batch in _of_mean_weight_1(first.encode(plan)):
        cut = min(max(half - low, 0), len(batch))
        engine.learn(state, np.zeros(3), batch.rows(0, cut))
        engine.predict(state, sums, batch.rows(cut, len(batch)))
        low += len(batch)
    return float(sums[1])


def _of_mean_weight_1(batches: Sequence[Batch]) -> list[Batch]:
    """The rows with weights that do not depend on their unit."""
    mean = np.concatenate([batch.weight for batch in batches]).mean()
    return [replace(batch, weight=batch.weight / (mean or 1.0)) for batch in batches]


def _learned(spec: Spec, plan: Plan, batches: Sequence[Batch], rows: int) -> tuple[float, Floats]:
    """See ``learned_first``."""
    engine = engine_of(spec, plan)
    state = State.start(engine.layout)
    engine.begin(state)
    sums, slopes, low = np.zeros((2, 3)), [], 0
    for batch in batches:
        if not len(batch):  # a filter dropped all of its rows
            continue
        cut = min(max(rows // 2 - low, 0), len(batch))
        halves = batch.rows(0, cut), batch.rows(cut, len(batch))
        margins = [
            engine.learn(state, half, some).copy()
            for half, some in zip(sums, halves, strict=True)
            if len(some)
        ]
        begin = min(max(rows // 4 - low, 0), len(batch))
        rest = batch.rows(begin, len(batch))
        slopes.append(_slopes(spec, engine.classes, np.concatenate(margins)[begin:], rest))
        low += len(batch)
    return float(sums[1, 1]), np.concatenate(slopes)


def _slopes(spec: Spec, classes: int, margins: Floats, batch: Batch) -> Floats:
    """Slopes of the rows' losses, times their weights."""
    loss, found = spec.loss, np.empty(margins.shape)
    y, learners = batch.y.tolist(), margins.shape[1]
    if loss.couple is not None:
        for i, label in enumerate(y):
            loss.couple(margins, i, number_of_class(label, classes), found[i])
    else:
        aim = loss.numbers(spec.model.loss_params)
        for k in range(learners):
            pairs = zip(margins[:, k].tolist(), y, strict=True)
            found[:, k] = [loss.slope(m, target(v, k, classes, learners), aim) for m, v in pairs]
    weighted: Floats = found * batch.weight[:, None]
    return weighted


def _score(slopes: Floats, numbers: Floats, hats: Floats) -> tuple[float, int]:
    """(X, k), summed over the learners; (0, 0) where squares of the slopes are not finite. numbers:
    NaN where one is missing."""
    with np.errstate(over="ignore"):
        squares = slopes**2
    if not np.isfinite(squares.sum()):  # the run diverges, and says so
        return 0.0, 0
    known = numbers[~np.isnan(numbers)]
    spread = float(known.std()) or 1.0
    line = np.where(np.isnan(numbers), 0.0, (numbers - known.mean()) / spread)
    both = np.column_stack([np.ones(len(line)), line, hats])
    width = both.shape[1]
    pairs = (both[:, :, None] * both[:, None, :]).reshape(len(both), -1)
    M = (squares.T @ pairs).reshape(-1, width, width)
    g = slopes.T @ both
    carried = M[:, 2:, :2] @ np.linalg.pinv(M[:, :2, :2], hermitian=True)
    s = g[:, 2:] - np.einsum("khz,kz->kh", carried, g[:, :2])
    S = M[:, 2:, 2:] - carried @ M[:, :2, 2:]
    values, axes = np.linalg.eigh(S)
    kept = values > LEAST * values.max(axis=1, keepdims=True)
    along = np.einsum("khj,kh->kj", axes, s)[kept]
    return float((along**2 / values[kept]).sum()), int(kept.sum())


def with_curves(plan: Plan, found: CurveChoice) -> Plan:
    """The plan with chosen curves; prints a line where there are none."""
    if not found.curves:
        note(f"no column is curved (model.shapes): {found.reason}")
    return replace(plan, curves=found.curves)


def first_pieces(plan: Plan, shards: ShardSet) -> Generator[ShardBatch]:
    """The rows in the order of the source, little read ahead."""
    batches = read_batches(
        shards, places=range(len(shards)), columns=plan.columns, dictionary=plan.dictionary,
        threads=1, budget_bytes=1, unit_bytes=1 << 20,
    )  # fmt: skip
    with closing(iter(batches)) as pieces:
        yield from pieces


def first_of(
    plan: Plan, pieces: Iterable[ShardBatch], most: int, most_read: int
) -> Iterator[tuple[ShardBatch, Batch, int]]:
    """Pieces, their valid rows, and how many of these are of the first ``most``, of at most
    ``most_read`` rows that are read."""
    rows = read = 0
    for given in pieces:
        # Coordinates that an encoding cached are of its plan: other plans have others.
        piece = given._replace(hashed=None)
        batch = encode_rows(plan, piece).value.batch
        count = min(len(batch), most - rows)
        yield piece, batch, count
        rows, read = rows + count, read + piece.rows
        if rows == most or read >= most_read:
            return


def rows_of(plan: Plan, pieces: Iterable[ShardBatch]) -> FirstRows:
    """The first rows of pieces of shards."""
    used, numbers, weights = [], [], []
    for piece, batch, count in first_of(plan, pieces, ROWS, MOST_READ):
        used += [(piece, count)] if count else []
        values, _ = first_numbers(plan, piece.batch)
        numbers.append(values[learned_rows(piece, batch)][:count])
        weights.append(batch.weight[:count])

    def encode(some: Plan) -> list[Batch]:
        return [encode_rows(some, piece).value.batch.rows(0, count) for piece, count in used]

    return FirstRows(np.concatenate(numbers), np.concatenate(weights), encode)


def none_of(plan: Plan) -> CurveChoice | None:
    """No curves, of no numbers or too many."""
    if 0 < plan.given_numbers <= MOST_NUMBERS:
        return None
    return CurveChoice(
        (), f"{counted(plan.given_numbers, 'number')}, expected 1 to {MOST_NUMBERS:,}"
    )
