"""Hold-out rows are predicted when read and never learned. Early stopping by their loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.training.metrics import Metrics, finite

Words = NDArray[np.uint64]
GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def held_out(every: int, seed: int, shard: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows of a shard are hold-out rows, about one in ``every``; the same in each call.

    SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators", Fig. 16)
    of the seed, the shard's place among all shards, and the row's number in it.

    >>> held_out(10, 0, 0, np.arange(1000)).sum()
    np.int64(102)
    """
    start = _mixed(_mixed(np.array([seed & MASK], np.uint64)) + np.uint64(shard))
    drawn = _mixed(start + rows.astype(np.uint64) * np.uint64(GAMMA))
    found: NDArray[np.bool_] = drawn % np.uint64(every) == 0
    return found


def _mixed(z: Words) -> Words:
    """The generator's next number after these states."""
    z = z + np.uint64(GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stretches_of(held: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are all hold-out rows or all learned; none for no rows.

    >>> list(stretches_of(np.array([True, False, False, True])))
    [(0, 1), (1, 3), (3, 4)]
    """
    edges = np.flatnonzero(held[1:] != held[:-1]) + 1
    return pairwise([0, *edges.tolist(), len(held)] if len(held) else [])


def losses(held: Metrics, epochs: int) -> list[float]:
    """The held-out loss of each of the first epochs; infinite where it is no number."""
    by_epoch = [held.figures(sums)["loss"] for sums in held.sums[:epochs]]
    return [math.inf if loss is None else loss for loss in by_epoch]


def best_epoch(held: Metrics, epochs: int) -> int | None:
    """The first of these epochs, from 1, with the lowest held-out loss."""
    by_epoch = losses(held, epochs)
    return by_epoch.index(min(by_epoch)) + 1 if by_epoch and min(by_epoch) < math.inf else None


def patience_exhausted(held: Metrics | None, epochs: int, patience: int) -> bool:
    """Whether after ``epochs`` epochs none of the last ``patience`` was better than the best one
    before; never with patience 0."""
    if held is None or not patience or epochs <= patience:
        return False
    by_epoch = losses(held, epochs)
    return min(by_epoch[-patience:]) >= min(by_epoch[:-patience])


def result(
    held: Metrics, engine: Engine, state: State, classes: Sequence[Any], epochs: int
) -> dict[str, Any]:
    """Figures of held-out rows: of the last epoch, by epoch, and which of ``epochs`` was best."""
    by_epoch = [
        {"rows": rows, **held.figures(sums), "auc": finite(auc), "auc_error": finite(error)}
        for rows, sums, (auc, error) in zip(
            held.rows, held.sums, held.ranks_by_epoch.tolist(), strict=True
        )
    ]
    last = by_epoch[-1] if by_epoch else {"rows": 0, **held.figures(np.zeros(3))}
    return {
        **last,
        **held.detailed(engine.loss, classes, last=True, smoothing=engine.smoothing(state)),
        "epochs": by_epoch,
        "best_epoch": best_epoch(held, epochs),
    }
