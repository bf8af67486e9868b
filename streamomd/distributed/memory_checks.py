"""Whether the workers have the memory that a job's mode needs, before one of them is killed for it.

Dask pauses a worker above ``USABLE`` of its memory_limit, and its nanny kills it above 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client, get_worker

from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError
from streamomd.distributed.partition_owner import gang_size
from streamomd.distributed.worker_monitor import Waiting, usable_workers
from streamomd.engine.state import Layout
from streamomd.training.partitions import edges, owned

BASE_BYTES = 400 << 20
"""Of a worker that holds no state: Python, Arrow, compiled loops, the rows in hand."""
ALWAYS, A_THREAD = 3, 3
"""States that a worker of averaged mode holds: the start and two that wait, and for each thread the
two that are merged and what comes of them. Measured: benchmarks/cluster.py."""
DRIVER = 2
"""States of averaged mode's driver: the model's and a round's result."""
USABLE = 0.8
"""Of memory_limit, above which Dask pauses a worker."""


@dataclass(frozen=True)
class Need:
    """Bytes that one worker needs at most, and what for, as text."""

    nbytes: int
    why: str


def needed(spec: Spec, layout: Layout, threads: int, workers: int) -> Need:
    """The most that a worker of so many threads needs for a job, on a cluster of so many workers.

    With ``cluster.learner = "worker"`` any of them may be the one that learns, or that drives.
    """
    state, away = layout.nbytes, spec.cluster.learner == "worker"
    if spec.train.mode == "averaged":
        times = ALWAYS + A_THREAD * threads + DRIVER * away
        why = f"a state of {_mib(state)} MiB is held up to {times} times"
        return Need(BASE_BYTES + times * state, why)
    if spec.train.mode == "sharded":
        owners = gang_size(layout.size, spec.train.parts, workers)
        share = largest_share(layout, spec.train.parts, owners)
        why = f"each of {owners} owners holds up to {_mib(share)} of the state's {_mib(state)} MiB"
        return Need(BASE_BYTES + share, why)
    if away:
        return Need(BASE_BYTES + state, f"the learner's state is {_mib(state)} MiB")
    return Need(BASE_BYTES, "it decodes rows and holds no state")


def largest_share(layout: Layout, parts: int, owners: int) -> int:
    """Bytes of the owner that has the most coordinates."""
    between = edges(layout.size, parts)
    mine = [owned(owner, owners, parts) for owner in range(owners)]
    return max(int(between[one.stop] - between[one.start]) for one in mine) * layout.row_bytes


def too_small(worker: Mapping[str, Any], spec: Spec, layout: Layout, workers: int) -> list[str]:
    """Why a worker, as the scheduler describes it, has no room for a job; [] if it has."""
    limit = worker.get("memory_limit") or 0
    need = needed(spec, layout, worker["nthreads"], workers)
    if not limit or need.nbytes <= USABLE * limit:
        return []
    who = "with its learner on a worker " if spec.cluster.learner == "worker" else ""
    return [
        f"it may use {_mib(limit)} MiB (memory_limit), of which {_mib(USABLE * limit)} MiB "
        f"({USABLE:.0%}) before Dask pauses it; {spec.train.mode} mode {who}needs "
        f"{_mib(need.nbytes)} MiB there: {_mib(BASE_BYTES)} MiB without a state, and "
        f"{need.why}. {_remedy(spec)}"
    ]


def _remedy(spec: Spec) -> str:
    mode, away = spec.train.mode, spec.cluster.learner == "worker"
    if mode == "exact" and not away:
        return "Give workers more memory"
    workers = {"averaged": "fewer threads or more memory", "sharded": "more memory, or have more"}
    less = 'lower data.bits, or set model.dtype = "float32"'
    return f"Give workers {workers.get(mode, 'more memory')}, {less}"


def _mib(nbytes: float) -> str:
    """Whole MiB, as text."""
    return f"{nbytes / 2**20:,.0f}"


def refuse_small(
    client: Client,
    spec: Spec,
    layout: Layout,
    workers: int = 0,
    waiting: Waiting = lambda: None,
) -> None:
    """Raise ClusterError naming every usable worker that has no room for a job, and its numbers.

    workers: how many take part; 0: all usable ones. waiting: see ``usable_workers``.
    """
    found = usable_workers(client, waiting)
    problems = [
        f"worker {address}: {problem}"
        for address, worker in found.items()
        for problem in too_small(worker, spec, layout, workers or len(found))
    ]
    if problems:
        raise ClusterError("\n".join(problems))


def spare() -> float:
    """Bytes that states may take on this worker, before Dask pauses it."""
    limit = get_worker().memory_manager.memory_limit
    return USABLE * limit - BASE_BYTES if limit else math.inf
