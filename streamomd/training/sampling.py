"""Rows of frequent classes are sampled: ``data.sample`` learns a share of them at more weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamomd.config.data_table import Data
from streamomd.core.batch import SAMPLED, Batch, Skipped, taken
from streamomd.features import Plan
from streamomd.training.class_weights import numbers_of_classes, places_of_labels
from streamomd.training.holdout import drawn_numbers, rows_held_out

SALT = 0x5A3F1E6B
"""Added to the seed: what is drawn does not depend on which rows are held out."""


def drawn_shares(seed: int, shard: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number from 0 to below 1 for each row of a shard, the same in each call.

    >>> drawn_shares(0, 0, np.arange(3)).round(3)
    array([0.245, 0.53 , 0.624])
    """
    drawn = drawn_numbers(seed ^ SALT, shard, rows) >> np.uint64(11)
    return drawn.astype(np.float64) * 2.0**-53


def sampled_rows(data: Data, plan: Plan, place: int, rows: range, batch: Batch) -> Batch:
    """The rows of a batch that are learned, with what they count for, by ``data.sample``.

    place, rows: as in ``rows_held_out``, whose rows are all there with their own weights. The
    others of a class with share p are there with probability p, and their weight is divided by p:
    all sums over rows are those of all rows, in the mean over seeds. Skipped rows have those that
    were dropped among them.
    """
    if not data.sample:
        return batch
    shares = numbers_of_classes(data.sample, plan.classes, "data.sample")
    at = np.delete(np.arange(len(rows)), batch.skipped.places)
    share = shares[places_of_labels(batch.y, len(plan.classes))]
    chosen = drawn_shares(data.seed, place, rows.start + at) < share
    held = rows_held_out(data, place, rows, batch.skipped, batch.time)
    if held is not None:
        chosen |= held
        share = np.where(held, 1.0, share)
    found, dropped = taken(batch, np.flatnonzero(chosen)), at[~chosen]
    return replace(
        found, weight=found.weight / share[chosen], skipped=_joined(batch.skipped, dropped)
    )


def _joined(skipped: Skipped, dropped: NDArray[np.int64]) -> Skipped:
    places = np.concatenate([skipped.places, dropped])
    reasons = np.concatenate([skipped.reasons, np.full(len(dropped), SAMPLED, np.int8)])
    order = np.argsort(places, kind="stable")
    return Skipped(places[order], reasons[order])
