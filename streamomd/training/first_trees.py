"""The trees of a plan, grown on the first rows before training."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streamomd.config.spec import Spec
from streamomd.core.trees import Trees
from streamomd.core.wording import counted
from streamomd.features import Plan
from streamomd.features.grow_trees import (
    FIRST,
    MOST_READ,
    ROWS,
    Grower,
    counts_of,
    library_name,
    margins_of_trees,
)
from streamomd.shards.encoded_rows import encode_rows
from streamomd.shards.reader import read_batches
from streamomd.shards.shard import ShardSet
from streamomd.training.class_weights import sampled_rows
from streamomd.training.holdout import rows_held_out, with_places
from streamomd.training.progress import note

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
EVERY_ROW = 1 << 62
"""A row that no shard has."""


def first_trees(spec: Spec, plan: Plan, shards: ShardSet) -> Trees | None:
    """Trees grown on the first rows that are learned, see ``Grower``; None of too few. A row of the
    first ones is predicted by those that were grown on earlier rows.

    Raises MissingExtraError, UnsupportedError for a loss, and what reading raises.
    """
    data = spec.data
    library_name()  # before anything is read
    margins_of_trees(spec.of_classes(len(plan.classes)).loss.name, len(plan.classes))
    if data.holds_out or data.sample:
        shards = with_places(shards, "name")
    plan = replace(plan, tree_columns=True)
    batches = read_batches(
        shards, places=range(len(shards)), columns=plan.columns, dictionary=plan.dictionary,
        threads=1, budget_bytes=1, unit_bytes=1 << 20,
    )  # fmt: skip
    x: list[Floats] = []
    y: list[Floats] = []
    weight: list[Floats] = []
    at: list[tuple[int, Rows]] = []
    rows = read = 0
    with closing(batches.map(partial(encode_rows, plan))) as pieces:
        for piece in pieces:
            shard, numbers = shards.shards[piece.position], range(piece.row, piece.row + piece.rows)
            batch = sampled_rows(data, plan, shard.place, numbers, piece.value.batch)
            held = rows_held_out(data, shard.place, numbers, batch.skipped, batch.time)
            assert batch.columns is not None
            x.append(batch.columns.numbers[: ROWS - rows])
            y.append(batch.y[: ROWS - rows])
            learned = batch.weight if held is None else np.where(held, 0.0, batch.weight)
            weight.append(learned[: ROWS - rows])
            at.append((piece.position, np.delete(numbers, batch.skipped.places)[: ROWS - rows]))
            rows, read = rows + len(y[-1]), read + piece.rows
            if rows == ROWS or read >= MOST_READ:
                break
    every = [np.concatenate(some) if some else np.empty(0) for some in (x, y, weight)]
    grower = _grower(spec, plan, *every) if rows else None
    window = _window(counts_of(rows), at, shards)
    return _trees(plan, grower, rows, window)


def trees_of_memory(
    spec: Spec, plan: Plan, x: Floats, y: Floats, weight: Floats, where: str
) -> Trees | None:
    """The same of rows in memory, which are no shard but ``where``. x: see ``values_of_trees``."""
    library_name()
    rows = min(len(y), ROWS)
    grower = _grower(spec, plan, x[:rows], y[:rows], weight[:rows])
    return _trees(plan, grower, rows, {where: counts_of(rows)})


def _grower(spec: Spec, plan: Plan, x: Floats, y: Floats, weight: Floats) -> Grower:
    spec = spec.of_classes(len(plan.classes))
    given = len(plan.single), len(plan.classes), spec.loss.name, spec.model.loss_params
    return Grower(x, y, weight, *given)


def _trees(
    plan: Plan, grower: Grower | None, rows: int, window: dict[str, list[int]]
) -> Trees | None:
    counts = counts_of(rows)
    if grower is None or not counts or not grower.x.shape[1]:
        why = f"there are {counted(rows, 'row')}, fewer than {FIRST:,}"
        if counts:
            why = "no column is a number or a category"
        note(f"no trees are grown (model.shapes): {why}")
        return None
    growths = [grower.grown(count) for count in counts]
    if not any(len(growth.feature) for growth in growths):
        note("no trees are grown (model.shapes): the labels of the first rows are all equal")
        return None
    margins = margins_of_trees(grower.loss, grower.classes)
    return Trees.of(library_name(), margins, grower.x.shape[1], window, growths)


def _window(
    counts: list[int], at: list[tuple[int, Rows]], shards: ShardSet
) -> dict[str, list[int]]:
    """Of each shard that was read, the first row of each growth, see ``Trees``."""
    if not counts:
        return {}
    places = np.concatenate([np.full(len(rows), place) for place, rows in at])
    numbers = np.concatenate([rows for _, rows in at])
    begins: list[tuple[int, int]] = []
    for count in counts:
        more = count < len(places)
        begins.append(
            (int(places[count]), int(numbers[count])) if more
            else (int(places[-1]), int(numbers[-1]) + 1)
        )  # fmt: skip
    window = {}
    for place in range(int(places[-1]) + 1):
        first = [0 if of < place else row if of == place else EVERY_ROW for of, row in begins]
        window[shards.shards[place].url] = first
    return window
