"""Whether the workers have the memory a mode needs, before one of them is killed for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from distributed import Client, get_worker

from streamomd.distribute.lookout import Waiting, usable_workers
from streamomd.errors import ClusterError
from streamomd.state import Layout

BASE_BYTES = 400 << 20
"""Of a worker that holds no state: Python, Arrow, compiled loops, the rows in hand."""
ALWAYS, A_THREAD = 3, 3
"""States that a worker holds: the start and two that wait, and for each thread the two that are
merged and what comes of them. Measured: benchmarks/cluster.py."""
USABLE = 0.8
"""Of memory_limit, above which Dask pauses a worker."""


def too_small(worker: Mapping[str, Any], mode: str, layout: Layout) -> list[str]:
    """Why a worker, as the scheduler tells of it, has no room for a mode's states; [] if it has."""
    if mode != "averaged":  # the owners of sharded mode are asked when it is known how many
        return []
    limit, threads = worker.get("memory_limit") or 0, worker["nthreads"]
    times = ALWAYS + A_THREAD * threads
    need = BASE_BYTES + layout.nbytes * times
    if not limit or need <= USABLE * limit:
        return []
    return [
        f"it may use {limit / 2**20:,.0f} MiB (memory_limit), of which {USABLE:.0%} before Dask "
        f"pauses it; averaged mode needs {need / 2**20:,.0f} MiB there: a state of "
        f"{layout.nbytes / 2**20:,.0f} MiB is held up to {times} times. Give workers fewer threads "
        'or more memory, lower data.bits, or take model.dtype = "float32"'
    ]


def refuse_small_owners(
    client: Client, layout: Layout, owners: int, waiting: Waiting = lambda: None
) -> None:
    """Raise ClusterError for a worker that has no room for its share of a state."""
    share = layout.nbytes // owners
    for address, worker in usable_workers(client, waiting).items():
        limit = worker.get("memory_limit") or 0
        if limit and BASE_BYTES + share > USABLE * limit:
            raise ClusterError(
                f"worker {address} may use {limit / 2**20:,.0f} MiB (memory_limit), of which "
                f"{USABLE:.0%} before Dask pauses it; one of {owners} owners needs "
                f"{(BASE_BYTES + share) / 2**20:,.0f} MiB: have more workers, or more memory for "
                'each, lower data.bits, or take model.dtype = "float32"'
            )


def refuse_small(
    client: Client, mode: str, layout: Layout, waiting: Waiting = lambda: None
) -> None:
    """Raise ClusterError for a worker that has no room for a mode's states."""
    for address, worker in usable_workers(client, waiting).items():
        for problem in too_small(worker, mode, layout):
            raise ClusterError(f"worker {address}: {problem}")


def spare() -> float:
    """Bytes that states may take on this worker, before Dask pauses it."""
    limit = get_worker().memory_manager.memory_limit
    return USABLE * limit - BASE_BYTES if limit else math.inf
