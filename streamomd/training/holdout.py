"""Hold-out rows are predicted when read and never learned. Early stopping by their loss."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamomd.checkpoint.segments import Facts
from streamomd.config.data_table import Data
from streamomd.core.batch import Skipped, Times
from streamomd.core.finite import finite_or_none
from streamomd.engine import Engine
from streamomd.engine.state import State
from streamomd.shards.order import GAMMA, Dataset, mixed, path_key
from streamomd.shards.shard import ShardSet
from streamomd.training.metrics import Metrics

Words = NDArray[np.uint64]
MASK = (1 << 64) - 1


def held_out(every: int, seed: int, shard: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows of a shard are hold-out rows, about one in ``every``; the same in each call.

    SplitMix64 of the seed, the shard's number (see ``with_places``), and the row's number in it.

    >>> held_out(10, 0, 0, np.arange(1000)).sum()
    np.int64(102)
    """
    found: NDArray[np.bool_] = drawn_numbers(seed, shard, rows) % np.uint64(every) == 0
    return found


def drawn_numbers(seed: int, shard: int, rows: NDArray[np.int64]) -> Words:
    """The random number of 64 bits of each row of a shard, as in ``held_out``."""
    start = mixed(mixed(np.array([seed & MASK], np.uint64) + GAMMA) + np.uint64(shard) + GAMMA)
    return mixed(start + rows.astype(np.uint64) * GAMMA + GAMMA)


def number_of(name: str) -> int:
    """The number of a shard by its name: the first 8 bytes of the SHA-256, big-endian.

    >>> number_of("day=2026-01-02/a.parquet")
    10041946399924304498
    """
    return int.from_bytes(hashlib.sha256(path_key(name)).digest()[:8], "big")


def with_places(shards: ShardSet, by: str, ledger: Sequence[Facts] = ()) -> ShardSet:
    """The shards of a run with the numbers by which their hold-out rows are drawn.

    by: "name", where inserted, renamed and reordered files leave other shards' rows as they are; or
    "position" in learned order, of runs that began before names were used. ledger: of the run,
    whose name of a shard is that of the source that listed it first.
    """
    learned = [facts for facts in ledger if "skipped" not in facts]
    positions = {facts["url"]: position for position, facts in enumerate(learned)}
    found = []
    for index, shard in enumerate(shards):
        place = positions.get(shard.url, index)
        if by == "name":
            facts = learned[place] if shard.url in positions else {}
            place = number_of(facts.get("name", shard.identity))
        found.append(replace(shard, place=place))
    return replace(shards, shards=tuple(found))


def ledger_facts(shards: Dataset, *, named: bool) -> list[Facts]:
    """What the ledger records of new shards. named: with the names by which rows are held out."""
    facts: list[Facts] = list(shards.fingerprint())
    if not named or not isinstance(shards, ShardSet):
        return facts
    return [{**one, "name": shard.identity} for one, shard in zip(facts, shards, strict=True)]


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


def reason_to_stop(held: Metrics | None, epochs: int, patience: int) -> str:
    """Why a run stops early after ``epochs`` epochs; "" if it continues."""
    if held is None or not patience_exhausted(held, epochs, patience):
        return ""
    last = "the last epoch" if patience == 1 else f"the last {patience} epochs"
    best = best_epoch(held, epochs)
    return f"stopped early: {last} had no better held-out loss than epoch {best}"


def rows_held_out(
    data: Data, place: int, rows: range, skipped: Skipped, time: Times | None
) -> NDArray[np.bool_] | None:
    """Which of a shard's rows are held out, without the skipped ones; None without hold-out.

    place: the shard's number, see ``with_places``. time: of the rows that were not skipped.
    """
    if not data.holds_out:
        return None
    found = np.zeros(len(rows) - len(skipped), np.bool_)
    if data.held_every:
        numbers = np.delete(rows, skipped.places)
        found = held_out(data.held_every, data.seed, place, numbers)
    if data.held_after is not None:
        assert time is not None
        found |= time >= data.held_after
    return found


def result(
    held: Metrics,
    engine: Engine,
    state: State,
    classes: Sequence[Any],
    epochs: int,
    mean: Callable[[float], float] | None = None,
) -> dict[str, Any]:
    """Figures of held-out rows: of the last epoch, by epoch, and which of ``epochs`` was best.

    mean: calibrated probabilities of margins.
    """
    by_epoch = [
        {
            "rows": rows,
            **held.figures(sums),
            "auc": finite_or_none(auc),
            "auc_error": finite_or_none(error),
        }
        for rows, sums, (auc, error) in zip(
            held.rows, held.sums, held.ranks_by_epoch.tolist(), strict=True
        )
    ]
    last = by_epoch[-1] if by_epoch else {"rows": 0, **held.figures(np.zeros(3))}
    return {
        **last,
        **held.detailed(engine.loss, classes, last=True, smoothing=engine.smoothing(state)),
        "calibrated": held.calibrated(mean, last=True),
        **({"by_time": timed} if (timed := held.time_figures()) else {}),
        "epochs": by_epoch,
        "best_epoch": best_epoch(held, epochs),
    }
