"""The shapes of a plan: its trees, grown on the first rows before training, and by how much shapes
would lower the loss of these rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from itertools import tee
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.batch import Batch, DenseBatch, Floats
from streamomd.core.run_events import phase
from streamomd.core.trees import MOST_MARGINS, Trees
from streamomd.core.wording import counted
from streamomd.engine.compile import is_function_saved
from streamomd.engine.loops.rebase import rebase
from streamomd.engine.state import State
from streamomd.features import Plan
from streamomd.features.grow_trees import (
    FIRST,
    MOST_READ,
    OBJECTIVES,
    ROWS,
    Grower,
    counts_of,
    library_name,
    margins_of_trees,
)
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.reader import ShardBatch
from streamomd.shards.shard import ShardSet
from streamomd.training.class_weights import sampled_rows
from streamomd.training.column_pairs import MOST_COLUMNS, choose_pairs, no_pairs_of, with_pairs
from streamomd.training.curved_columns import (
    FirstRows,
    choose_curves,
    first_of,
    first_pieces,
    none_of,
    rows_of,
    screening_job,
    with_curves,
)
from streamomd.training.holdout import rows_held_out, with_places
from streamomd.training.metrics.by_time import NEVER
from streamomd.training.model_data import engine_of
from streamomd.training.progress import note
from streamomd.training.run_records import Schedule, stream_times

Numbers = NDArray[np.int64]
HARM = 0.005
"""The share that trees may add to the loss of later rows."""
MOST_WAITED = 8 * ROWS
"""Rows in which labels of the first ones have to arrive."""
EVERY_ROW = 1 << 62
"""A row that no shard has."""


def with_shapes(spec: Spec, plan: Plan, shards: ShardSet) -> Plan:
    """The plan with the curves, and trees, of the first rows, which are read once. Raises what
    reading and encoding raise."""
    trees, total = None, shards.rows - shards.unread_rows
    with closing(first_pieces(plan, shards)) as source:
        of_trees, of_curves, of_check = tee(source, 3)
        if spec.model.shapes == "all":
            trees = first_trees(spec, plan, shards, of_trees)
        plan = replace(
            with_effects(spec, plan, lambda: rows_of(plan, of_curves), total), trees=trees
        )

        def encode(trial: Plan) -> list[Batch]:
            found = first_of(trial, of_check, ROWS, MOST_READ)
            return [batch.rows(0, count) for _, batch, count in found]

        return without_harm(spec, plan, encode)


def with_effects(spec: Spec, plan: Plan, read: Callable[[], FirstRows], total: int) -> Plan:
    """The plan with the curves, and pairs, of the first rows. total: rows of the run."""
    first = None
    if (choice := none_of(plan)) is None:
        choice = choose_curves(spec, plan, first := read(), total)
    plan = with_curves(plan, choice)
    if spec.model.shapes != "pairs":
        return plan
    if (pairs := no_pairs_of(plan)) is None:
        pairs = choose_pairs(spec, plan, first or read(), total)
    return with_pairs(plan, pairs)


def first_trees(
    spec: Spec, plan: Plan, shards: ShardSet, pieces: Iterable[ShardBatch]
) -> Trees | None:
    """Trees grown on the first rows that are learned, see ``Grower``; None of too few. A row of the
    first ones is predicted by those that were grown on earlier rows, whose labels have arrived when
    it does. pieces: of these shards.

    Raises MissingExtraError, UnsupportedError for a loss, and what reading raises.
    """
    data = spec.data
    library_name()  # before anything is read
    margins_of_trees(spec.of_classes(len(plan.classes)).loss.name, len(plan.classes))
    if data.holds_out or data.sample:
        shards = with_places(shards, "name")
    plan = replace(plan, tree_columns=True)
    blocks: list[tuple[NDArray[Any], ...]] = []
    rows = read = due = 0
    arrived = NEVER
    for piece in pieces:
        place, numbers = (
            shards.shards[piece.position].place,
            range(piece.row, piece.row + piece.rows),
        )
        batch = encode_rows(plan, piece).value.batch
        batch = sampled_rows(data, plan, place, numbers, batch)
        held = rows_held_out(data, place, numbers, batch.skipped, batch.time)
        assert batch.columns is not None
        learned = batch.weight if held is None else np.where(held, 0.0, batch.weight)
        at = np.full(len(batch), piece.position), np.delete(numbers, batch.skipped.places)
        stream = at[1] if batch.time is None else stream_times(batch.time, arrived)
        blocks.append((batch.columns.numbers, batch.y, learned, *at, stream))
        arrived = int(stream[-1]) if len(batch) else arrived
        if rows < ROWS <= rows + len(batch):
            due = int(Schedule(data.delay_ns).due(stream)[ROWS - 1 - rows])
        rows, read = rows + len(batch), read + piece.rows
        waits = data.delay and arrived < due and rows < MOST_WAITED
        if (rows >= ROWS and not waits) or read >= MOST_READ:
            break
    if not rows:
        return _trees(None, 0, {}, [])
    x, y, weight, places, at_row, stream = map(np.concatenate, zip(*blocks, strict=True))
    grower = _grower(spec, plan, x[:ROWS], y[:ROWS], weight[:ROWS])
    counts = starts = counts_of(rows)
    if data.delay:  # the first row that arrives when the labels of these rows have
        last = stream[np.array(counts, np.int64) - 1]
        starts = np.searchsorted(stream, Schedule(data.delay_ns).due(last)).tolist()
        starts = [start for start in starts if start < len(stream)]
    else:
        places, at_row = places[:ROWS], at_row[:ROWS]
    window = _window(starts, places, at_row, shards)
    return _trees(grower, rows, window, counts[: len(starts)])


def trees_of_memory(
    spec: Spec, plan: Plan, x: Floats, y: Floats, weight: Floats, where: str
) -> Trees | None:
    """The same of rows in memory, which are no shard but ``where``. x: see ``values_of_trees``."""
    library_name()
    rows = min(len(y), ROWS)
    grower = _grower(spec, plan, x[:rows], y[:rows], weight[:rows])
    return _trees(grower, rows, {where: counts_of(rows)}, counts_of(rows))


def without_harm(spec: Spec, plan: Plan, encode: Callable[[Plan], Sequence[Batch]]) -> Plan:
    """The plan without its trees, and a line, if with them a model of about half of these rows
    predicts the later ones worse, as it does of relations that change. encode: batches of the rows
    that trees were grown on."""
    # Of 32,768 rows those that the last growth but two knew are half.
    early = plan.trees and plan.trees.until(len(plan.trees.growths) - 2)
    if early is None:
        return plan
    half = counts_of(ROWS)[len(early.growths) - 1]
    job, trial = screening_job(spec, replace(plan, trees=early).learning)
    given = encode(trial)
    margins = range(trial.numbers - trial.margins, trial.numbers)
    engine = engine_of(job, trial)
    losses = []
    for batches in (given, [_zeroed(batch, margins) for batch in given]):
        state, sums, low = State.start(engine.layout), np.zeros(3), 0
        engine.begin(state)
        for batch in batches:
            cut = min(max(half - low, 0), len(batch))
            engine.learn(state, np.zeros(3), batch.rows(0, cut))
            engine.predict(state, sums, batch.rows(cut, len(batch)))
            low += len(batch)
        losses.append(float(sums[1]))
    if losses[0] <= (1.0 + HARM) * losses[1]:
        return plan
    which = f"rows {half + 1:,} to {sum(map(len, given)):,}"
    more = losses[0] / losses[1] - 1.0
    note(
        f"no trees are used (model.shapes): they add {more:.1%} to the loss of "
        f"{which}, predicted by a model of earlier ones"
    )
    return replace(plan, trees=None)


def _zeroed(batch: Batch, places: range) -> Batch:
    """The rows with zeros at these places."""
    values = batch.values.copy()
    if isinstance(batch, DenseBatch):
        values[:, places.start : places.stop] = 0.0
    else:
        values[(batch.indices >= places.start) & (batch.indices < places.stop)] = 0.0
    return replace(batch, values=values)


def _grower(spec: Spec, plan: Plan, x: Floats, y: Floats, weight: Floats) -> Grower:
    spec = spec.of_classes(len(plan.classes))
    given = len(plan.single), len(plan.classes), spec.loss.name, spec.model.loss_params
    return Grower(x, y, weight, *given)


def _trees(
    grower: Grower | None, rows: int, window: dict[str, list[int]], counts: list[int]
) -> Trees | None:
    if grower is None or not counts or not grower.x.shape[1]:
        why = "no column is a number or a category"
        if rows < FIRST:
            why = f"there are {counted(rows, 'row')}, fewer than {FIRST:,}"
        elif not counts:
            why = f"the labels of the first {FIRST:,} rows arrive after the first {rows:,} rows"
        note(f"no trees are grown (model.shapes): {why}")
        return None
    growths = [grower.grown(count) for count in counts]
    if not any(len(growth.feature) for growth in growths):
        note(
            "no trees are grown (model.shapes): the labels of the first rows are all equal, or "
            "beyond the range of LightGBM's 32 bits"
        )
        return None
    margins = margins_of_trees(grower.loss, grower.classes)
    return Trees.of(library_name(), margins, grower.x.shape[1], window, growths)


def _window(
    starts: list[int], places: Numbers, rows: Numbers, shards: ShardSet
) -> dict[str, list[int]]:
    """Of each shard that was read, the first row of each growth, see ``Trees``. starts: the number
    of that row. places, rows: shard and row of each row."""
    if not starts:
        return {}
    begins = [
        (places[start], rows[start]) if start < len(places) else (places[-1], rows[-1] + 1)
        for start in starts
    ]
    window = {}
    for place in range(int(places[-1]) + 1):
        first = [0 if of < place else int(row) if of == place else EVERY_ROW for of, row in begins]
        window[shards.shards[place].url] = first
    return window


FEWEST, LEAST_GAIN = 2_000, 0.02
"""Rows, and the share of their loss, from which on a line says that shapes would help."""


def shape_advice(spec: Spec, plan: Plan, pieces: Iterable[ShardBatch], total: int) -> list[str]:
    """A line if ``model.shapes`` would lower the loss of the second half of the first rows, each
    predicted before it is learned. pieces: of shards. total: rows of the run."""
    if spec.model.shapes != "none" or spec.train.mode == "sharded":
        return []
    curves, pairs = none_of(plan), no_pairs_of(plan)
    if curves and pairs:  # nothing is read
        return []
    first = rows_of(plan, pieces)
    rows = len(first.weights)
    if rows < FEWEST:
        return []
    curves = curves or choose_curves(spec, plan, first, total)
    pairs = pairs or choose_pairs(spec, replace(plan, curves=curves.curves), first, total)
    gain = 1.0 - (1.0 - curves.gain) * (1.0 - pairs.gain)
    which = f"lowers the loss of rows {rows // 2 + 1:,} to {rows:,} by"
    curved, paired = curves.gain >= LEAST_GAIN, gain - max(curves.gain, 0.0) >= LEAST_GAIN
    if curved:
        line = f"curved columns: --shapes columns {which} {curves.gain:.0%}"
        line += f", --shapes pairs by {gain:.0%}" if paired else ""
    elif paired:
        line = f"pairs of columns: --shapes pairs {which} {gain:.0%}"
    else:
        return []
    return [line + _trees_too(spec, plan)]


def _trees_too(spec: Spec, plan: Plan) -> str:
    """More of the line, where trees can be grown."""
    classes = len(plan.classes)
    fits = classes <= MOST_MARGINS if classes else spec.loss.name in OBJECTIVES
    if not fits or find_spec("lightgbm") is None:
        return ""
    return "; --shapes all also grows boosted trees, whose gain was not measured"


def advice_of_shards(spec: Spec, plan: Plan, shards: ShardSet) -> list[str]:
    """``shape_advice`` of a run's shards."""
    source = first_pieces(plan, shards)
    with phase("comparing shapes on the first rows"), closing(source) as pieces:
        return shape_advice(spec, plan, pieces, shards.rows - shards.unread_rows)


def quick_advice(spec: Spec, plan: Plan, shards: ShardSet) -> list[str] | None:
    """``advice_of_shards``; None where it would take longer than all else that proposes a job: for
    many columns, and where loops would have to be compiled first."""
    if len(plan.features) > MOST_COLUMNS:
        return None
    engine = engine_of(*screening_job(spec, plan))
    # Pairs are hashed: with them rows of numbers alone are sparse, too.
    loops = all(engine.is_saved("learn", dense) for dense in {False, plan.dense})
    return advice_of_shards(spec, plan, shards) if loops and is_function_saved(rebase) else None
