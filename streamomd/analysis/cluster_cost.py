"""What an epoch would cost on a cluster: time, memory, requests and money, by mode.

Each mode is a few terms in seconds, formulas of docs/cost-model.md. Exact mode overlaps its terms,
so the largest decides; the other modes do one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from streamomd.config.spec import Spec
from streamomd.distributed.diagnose import BASE_BYTES, STATES_OF_DRIVER, memory_need
from streamomd.distributed.exchange import DECODERS
from streamomd.distributed.partition_owner import group_size
from streamomd.engine.layout import Layout

MODES = ("exact", "averaged", "sharded")
WHOLE_BYTES, RANGE_BYTES = 8 << 20, 16 << 20
"""A smaller object takes one request; a larger one a request per range, and one for its footer."""
PART_BYTES = 64 << 20
"""The most bytes of an object of a commit."""
NUMBER = 8.0
"""Bytes of a number that owners exchange."""
STEP_NUMBERS = 2.0
"""Numbers in a row's step: as many as NAG has."""

Terms = Mapping[str, float]
"""Seconds of an epoch, by what takes them."""


@dataclass(frozen=True)
class RowCost:
    """Seconds to decode and to learn a row on one core, and its bytes when decoded."""

    decode: float
    learn: float
    nbytes: float


@dataclass(frozen=True)
class StateCost:
    """Seconds per byte of state: to merge two, to fetch one from a worker, to commit, to load."""

    merge: float
    fetch: float
    commit: float
    load: float


@dataclass(frozen=True)
class Place:
    """What is assumed of the machines.

    link: bytes/s of a worker. store: bytes/s of the store in total. exchange: seconds of one
    exchange of sharded mode without its bytes; message: those of the leader for each message.
    """

    link: float = 1.25e9
    store: float = 1e10
    exchange: float = 5e-4
    message: float = 1e-4


GIB = 2.0**30
MEASURED = StateCost(merge=2.5 / GIB, fetch=2.2 / GIB, commit=5.7 / GIB, load=1.7 / GIB)
"""By benchmarks/cost.py, on the machine described in docs/cost-model.md."""


@dataclass(frozen=True)
class Epoch:
    """The rows of an epoch and the state that learns them. sizes: bytes of each shard."""

    rows: float
    sizes: Sequence[int]
    state: float
    row: RowCost
    per_byte: StateCost = MEASURED

    @property
    def requests(self) -> int:
        """Requests that read every shard once.

        >>> Epoch(1, [1 << 20, 40 << 20], 0, RowCost(0, 0, 0)).requests  # one, and 3 + 1
        5
        """
        large = (math.ceil(size / RANGE_BYTES) + 1 for size in self.sizes if size > WHOLE_BYTES)
        return sum(large) + sum(size <= WHOLE_BYTES for size in self.sizes)


def exact_terms(epoch: Epoch, workers: int, place: Place) -> Terms:
    """One process learns what the workers decode.

    >>> epoch = Epoch(1e9, [], 2**23, RowCost(2e-6, 6e-7, 600.0))
    >>> {name: round(one) for name, one in exact_terms(epoch, 10, Place()).items()}
    {'one learner': 600, 'decoding': 200, 'network link': 480, 'store': 0}
    """
    row = epoch.row
    return {
        "one learner": epoch.rows * row.learn,
        "decoding": epoch.rows * row.decode / workers,
        "network link": epoch.rows * row.nbytes / place.link,
        "store": sum(epoch.sizes) / place.store,
    }


def averaged_terms(epoch: Epoch, workers: int, place: Place, rounds: int) -> Terms:
    """Each worker learns its part of a round, and the states are merged in pairs. The driver
    fetches the last one and commits it; the workers copy it from each other, in a binary tree."""
    state, cost = epoch.state, epoch.per_byte
    merge = cost.merge + max(cost.fetch, 1.0 / place.link)
    write = cost.fetch + max(cost.commit, 1.0 / place.store)
    return {
        "learning": epoch.rows * (epoch.row.decode + epoch.row.learn) / workers,
        "first state": state * max(cost.load, 1.0 / place.store),
        "copies": rounds * int(math.log2(workers)) * state * max(cost.fetch, 2.0 / place.link),
        "merging": rounds * math.ceil(math.log2(workers)) * state * merge,
        "commits": rounds * state * write,
        "store": max(0.0, sum(epoch.sizes) / place.store),
    }


def sharded_terms(epoch: Epoch, workers: int, place: Place, batch_rows: int, parts: int) -> Terms:
    """Some workers decode, for all. In a round the leader receives a number per row of each
    partition of the others that the row has an entry in, then sends the row's step to their owners.
    """
    decoders = min(workers, DECODERS)
    slices = epoch.rows * epoch.row.nbytes * (workers - 1) / workers
    entries = epoch.row.nbytes / NUMBER  # at most
    numbers = min(parts, entries) * (workers - 1) / workers
    numbers += min(workers - 1, entries) * STEP_NUMBERS
    sent = NUMBER * batch_rows * numbers / place.link + 2 * (workers - 1) * place.message
    exchanges = epoch.rows / batch_rows if workers > 1 else 0.0
    return {
        "decoding": epoch.rows * epoch.row.decode / decoders,
        "store": sum(epoch.sizes) / place.store,
        "network link": slices / decoders / place.link,
        "learning": epoch.rows * epoch.row.learn / workers,
        "exchanges": exchanges * (place.exchange + sent),
    }


def total_seconds(mode: str, terms: Terms) -> float:
    """Seconds of an epoch: exact mode overlaps its terms."""
    return max(terms.values()) if mode == "exact" else sum(terms.values())


@dataclass(frozen=True)
class ModeCost:
    """One epoch of a mode. used: workers with work. problem: why the mode cannot be used, or "".

    worker_bytes, driver_bytes: memory of a process. reads, writes: requests to the store. money:
    of all workers and the driver, in the unit of the price; None without a price.
    """

    mode: str
    used: int
    seconds: float
    limit: str
    worker_bytes: int
    driver_bytes: int
    reads: int
    writes: int
    money: float | None
    problem: str = ""


def costs(
    spec: Spec,
    layout: Layout,
    epoch: Epoch,
    workers: int,
    price: float | None = None,
    place: Place = Place(),
) -> list[dict[str, Any]]:
    """The cost of one epoch of a job in each mode, as fields of ``ModeCost``.

    price: of one worker for an hour.
    """
    able = spec.rule.modes_with(spec.model.params)
    by_mode = [_cost(spec, layout, epoch, mode, workers, price, place) for mode in MODES]
    problems = {mode: "" if mode in able else f"not with {spec.rule.name}" for mode in MODES}
    return [asdict(replace(cost, problem=problems[cost.mode])) for cost in by_mode]


def _cost(
    spec: Spec,
    layout: Layout,
    epoch: Epoch,
    mode: str,
    workers: int,
    price: float | None,
    place: Place,
) -> ModeCost:
    """Returns time, memory, requests and money of an epoch in a mode."""
    train, rounds = spec.train, spec.rounds_per_epoch
    used, terms = workers, exact_terms(epoch, workers, place)
    if mode == "averaged":
        used = min(workers, train.parts)
        terms = averaged_terms(epoch, used, place, rounds)
    elif mode == "sharded":
        used = group_size(layout.size, train.parts, workers)
        terms = sharded_terms(epoch, used, place, train.batch_rows, train.parts)
    seconds = total_seconds(mode, terms)
    parts = math.ceil(epoch.state / PART_BYTES)
    commits = rounds if mode == "averaged" else _commits(spec, epoch.rows, seconds)
    job = spec.model_copy(update={"train": train.model_copy(update={"mode": mode})})
    return ModeCost(
        mode,
        used,
        seconds,
        max(terms, key=lambda name: terms[name]),
        memory_need(job, layout, 1, workers).nbytes,
        BASE_BYTES + _driver_states(spec, mode) * layout.nbytes,
        epoch.requests + (parts if mode == "averaged" else 0),
        commits * (max(parts, used if mode == "sharded" else 1) + 1),
        None if price is None else (workers + 1) * seconds / 3600 * price,
    )


def _commits(spec: Spec, rows: float, seconds: float) -> int:
    """Commits of an epoch, the last one included."""
    every = spec.checkpoint
    by_time = seconds / every.every_seconds if every.every_seconds else 0.0
    by_rows = rows / every.every_rows if every.every_rows else 0.0
    return 1 + int(max(by_time, by_rows))


def _driver_states(spec: Spec, mode: str) -> int:
    """States in the memory of the process that was started: exact mode's and its copy."""
    if mode == "exact":
        return 1 + spec.checkpoint.aside
    return STATES_OF_DRIVER if mode == "averaged" else 0
