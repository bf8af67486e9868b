"""A walk gives each row once, from any cursor on, however its parts are cut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from running import write

import streamomd
from streamomd.runs.walk import Part, Stretch, local_rows, parts_of
from streamomd.shards.order import Cursor
from streamomd.shards.shard import ShardSet
from streamomd.sources.find import find
from streamomd.training.holdout import with_places

COUNT, BAD = 90, 7


@pytest.fixture
def run(tmp_path: Path) -> tuple[streamomd.Model, ShardSet]:
    """A model and its shards: some rows are bad, others sampled out or held out."""
    for shard in range(3):
        x = np.arange(COUNT) + COUNT * shard
        columns = {"x": np.where(x % BAD, x, np.nan), "y": x % 2}
        write(tmp_path / "data" / f"{shard}.parquet", columns, row_group_size=13)
    sets = {"data.holdout": 0.2, "data.sample": {"1": 0.5}, "data.order": "shuffled"}
    shards = str(tmp_path / "data")
    given = {"checkpoint": "none", "quiet": True, "on_bad_row": "skip", "sets": sets}
    model = streamomd.train(shards, label="y", rule="nag", **given)
    return model, with_places(find(shards), model.holdout_by)


def stretches(
    run: tuple[streamomd.Model, ShardSet], at: Cursor, seed: int | None = None
) -> Iterator[Stretch]:
    """The rest of an epoch, cut at random or, without a seed, nowhere."""
    model, shards = run
    draw = np.random.default_rng(seed)

    def most(part: Part, low: int) -> int:
        return len(part.batch) if seed is None else int(draw.integers(1, 9))

    for part in parts_of(model, shards, partial(local_rows, model, shards, None), at):
        yield from part.stretches(most)


def rows(some: list[Stretch]) -> list[tuple[float, float, bool]]:
    """The first value, weight and hold-out flag of each row."""
    found = []
    for one in some:
        assert one.held is not None
        first = one.rows.first_columns(1, len(one.rows))[:, 0]
        found += zip(first.tolist(), one.rows.weight.tolist(), one.held.tolist(), strict=True)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_each_row_comes_once_from_any_cut_on(
    run: tuple[streamomd.Model, ShardSet], seed: int
) -> None:
    """Rows and counts of bad rows before a cut, and after a walk from there, are all of them."""
    start = Cursor(epoch=1)
    whole = [*stretches(run, start)]
    expected, skipped = rows(whole), sum(one.skipped for one in whole)
    assert len({x for x, _, _ in expected}) == len(expected)
    assert len(expected) + skipped.sum() == 3 * COUNT
    assert {held for _, _, held in expected} == {True, False}
    cut = [*stretches(run, start, seed)]
    assert len(cut) > 2 * len(whole)
    for at, one in enumerate(cut):
        rest = [*stretches(run, one.cursor)]
        assert rows([*cut[: at + 1], *rest]) == expected
        assert (sum(some.skipped for some in [*cut[: at + 1], *rest]) == skipped).all()


def test_stretches_name_their_rows(run: tuple[streamomd.Model, ShardSet]) -> None:
    """Each begins where the one before it in the shard ends; all rows of all shards are named."""
    ends: dict[str, int] = {}
    for one in stretches(run, Cursor(), 5):
        (name, begin), (same, end) = one.at
        assert (name, begin) == (same, ends.get(name, 0))
        assert (one.cursor.row, one.cursor.epoch) == (end, 0)
        ends[name] = end
    assert ends == {shard.url: COUNT for shard in run[1]}
