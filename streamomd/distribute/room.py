"""Whether the workers have the memory a mode needs, before one of them is killed for it."""

from __future__ import annotations

from distributed import Client

from streamomd.distribute.cluster import workers_of
from streamomd.errors import ClusterError
from streamomd.state import Layout

BASE_BYTES = 400 << 20
"""Of a worker that holds no state: Python, Arrow, compiled loops, the rows in hand."""
ALWAYS, A_THREAD = 3, 3
"""States that a worker holds: the start and two that wait, and for each thread the two that are
merged and what comes of them. Measured: benchmarks/cluster.py."""
USABLE = 0.8
"""Of memory_limit, above which Dask pauses a worker."""


def refuse_small(client: Client, layout: Layout) -> None:
    """Raise ClusterError for a worker that a round of averaged mode would not fit in."""
    for address, worker in workers_of(client).items():
        limit, threads = worker.get("memory_limit") or 0, worker["nthreads"]
        need = BASE_BYTES + layout.nbytes * (ALWAYS + A_THREAD * threads)
        if limit and need > USABLE * limit:
            raise ClusterError(
                f"worker {address} may use {limit / 2**20:,.0f} MiB (memory_limit), of which "
                f"{USABLE:.0%} before Dask pauses it; averaged mode needs {need / 2**20:,.0f} MiB "
                f"there: a state of {layout.nbytes / 2**20:,.0f} MiB is held up to "
                f"{ALWAYS + A_THREAD * threads} times. Give workers fewer threads or more memory, "
                'lower data.bits, or take model.dtype = "float32"'
            )
