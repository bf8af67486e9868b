"""Check that the workers have the memory a job's mode needs, before Dask kills one of them.

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
from streamomd.core.wording import counted
from streamomd.distributed.averaged_worker import ranges_of
from streamomd.distributed.partition_owner import group_size, slice_bytes
from streamomd.distributed.worker_monitor import Waiting, usable_workers
from streamomd.engine.layout import Layout
from streamomd.training.microbatch_rounds import edges, owned

BASE_BYTES = 400 << 20
"""Bytes of a worker without a state: Python, Arrow, compiled loops, current rows."""
STATES_PER_WORKER, STATES_PER_THREAD = 3, 3
"""States in the memory of a worker in averaged mode that merges whole ones: the start and two
waiting ones; per thread, two to merge and their result."""
STATES_OF_DRIVER = 2
"""States of the driver in averaged mode: the model's and a round's result."""
USABLE = 0.8
"""Fraction of memory_limit above which Dask pauses a worker."""


@dataclass(frozen=True)
class MemoryNeed:
    """The most bytes that one worker needs, and the reason as text."""

    nbytes: int
    reason: str


def memory_need(
    spec: Spec, layout: Layout, threads: int, workers: int, learners: int = 1
) -> MemoryNeed:
    """The memory that a worker with this many threads needs for a job.

    workers: size of the cluster. With ``cluster.learner = "worker"`` any worker may run the learner
    or the driver. learners: of a sweep, which are divided over the workers.
    """
    state, on_worker = layout.nbytes, spec.cluster.learner == "worker"
    if spec.train.mode == "averaged":
        times = _states_of_rounds(spec, layout, threads, workers) + STATES_OF_DRIVER * on_worker
        reason = f"a state of {_mib(state)} MiB is held up to {times} times"
        return MemoryNeed(BASE_BYTES + times * state, reason)
    if spec.train.mode == "sharded":
        owners = group_size(layout.size, spec.train.parts, workers)
        share = largest_share(layout, spec.train.parts, owners)
        reason = (
            f"each of {owners} owners holds up to {_mib(share)} of the state's {_mib(state)} MiB"
        )
        slices = slice_bytes(spec) if owners > 1 else 0
        if slices:
            reason += f", and {_mib(slices)} MiB of rows that wait for the others (train.prefetch)"
        return MemoryNeed(BASE_BYTES + share + slices, reason)
    if learners > 1:
        own = -(-learners // workers)
        reason = f"{counted(own, 'learner')} of {_mib(state)} MiB each are held twice"
        return MemoryNeed(BASE_BYTES + 2 * own * state, reason)
    if on_worker:
        return MemoryNeed(BASE_BYTES + state, f"the learner's state is {_mib(state)} MiB")
    return MemoryNeed(BASE_BYTES, "it decodes rows and holds no state")


def _states_of_rounds(spec: Spec, layout: Layout, threads: int, workers: int) -> int:
    """States in the memory of a worker in averaged mode.

    Merged in pieces: the start, one in each thread, those of earlier parts that wait, and less than
    one on its way; later, the result and its pieces. Measured: benchmarks/round_memory.py.
    """
    if ranges_of(layout) is None:
        return STATES_PER_WORKER + STATES_PER_THREAD * threads
    each = -(-spec.train.parts // workers)
    return 1 + threads + (each.bit_length() - 1) + 1


def largest_share(layout: Layout, parts: int, owners: int) -> int:
    """Bytes of the owner with the most coordinates."""
    edges_of = edges(layout.size, parts)
    ranges = [owned(owner, owners, parts) for owner in range(owners)]
    return max(int(edges_of[one.stop] - edges_of[one.start]) for one in ranges) * layout.row_bytes


def memory_problems(
    worker: Mapping[str, Any], spec: Spec, layout: Layout, workers: int, learners: int = 1
) -> list[str]:
    """Why a worker, as the scheduler describes it, has too little memory for a job; [] if not.

    workers, learners: as in ``memory_need``."""
    limit = worker.get("memory_limit") or 0
    need = memory_need(spec, layout, worker["nthreads"], workers, learners)
    if not limit or need.nbytes <= USABLE * limit:
        return []
    whose = "with its learner on a worker " if spec.cluster.learner == "worker" else ""
    return [
        f"it may use {_mib(limit)} MiB (memory_limit), of which {_mib(USABLE * limit)} MiB "
        f"({USABLE:.0%}) before Dask pauses it; {spec.train.mode} mode {whose}needs "
        f"{_mib(need.nbytes)} MiB there: {_mib(BASE_BYTES)} MiB without a state, and "
        f"{need.reason}. {_remedy(spec)}"
    ]


def _remedy(spec: Spec) -> str:
    mode, on_worker = spec.train.mode, spec.cluster.learner == "worker"
    if mode == "exact" and not on_worker:
        return "Give workers more memory"
    workers = {"averaged": "fewer threads or more memory", "sharded": "more memory, or have more"}
    less = 'lower data.bits, or set model.dtype = "float32"'
    return f"Give workers {workers.get(mode, 'more memory')}, {less}"


def _mib(nbytes: float) -> str:
    """Whole MiB, as text."""
    return f"{nbytes / 2**20:,.0f}"


def refuse_too_small(
    client: Client,
    spec: Spec,
    layout: Layout,
    workers: int = 0,
    waiting: Waiting = lambda: None,
    learners: int = 1,
) -> None:
    """Raise ClusterError naming every usable worker with too little memory for a job.

    workers: how many take part; 0: all usable ones. waiting: see ``usable_workers``. learners: see
    ``memory_need``.
    """
    found = usable_workers(client, waiting)
    problems = [
        f"worker {address}: {problem}"
        for address, worker in found.items()
        for problem in memory_problems(worker, spec, layout, workers or len(found), learners)
    ]
    if problems:
        raise ClusterError("\n".join(problems))


def spare_memory() -> float:
    """Bytes available for states on this worker before Dask pauses it."""
    limit = get_worker().memory_manager.memory_limit
    return USABLE * limit - BASE_BYTES if limit else math.inf
