"""Check a cluster before training: versions, memory, access to shards and checkpoint.

Check that the workers have the memory a job's mode needs, before Dask kills one of them.

Dask pauses a worker above ``USABLE`` of its memory_limit, and its nanny kills it above 95 %.
"""

from __future__ import annotations

import math
import platform
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from distributed import Client, get_worker

from streamomd.checkpoint import open_store
from streamomd.config.settings import seconds
from streamomd.config.spec import Spec
from streamomd.core.errors import ClusterError, StreamomdError
from streamomd.core.urls import printable, scrub, shown
from streamomd.core.wording import counted
from streamomd.distributed.averaged_worker import ranges_of
from streamomd.distributed.cluster import send_task
from streamomd.distributed.partition_owner import group_size, slice_bytes
from streamomd.distributed.worker_monitor import Waiting, busy_with, monitor_of, usable_workers
from streamomd.engine.layout import Layout
from streamomd.shards.reader import check_footer
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.microbatch_rounds import edges, owned
from streamomd.training.model_data import ModelData
from streamomd.training.progress import note

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
        # Partitions are whole, so the owner with the most of them decides.
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
    usable = usable_workers(client, waiting)
    problems = [
        f"worker {address}: {problem}"
        for address, worker in usable.items()
        for problem in memory_problems(worker, spec, layout, workers or len(usable), learners)
    ]
    if problems:
        raise ClusterError("\n".join(problems))


def spare_memory() -> float:
    """Bytes available for states on this worker before Dask pauses it."""
    limit = get_worker().memory_manager.memory_limit
    return USABLE * limit - BASE_BYTES if limit else math.inf


MUST_MATCH = ("streamomd",)
"""Packages whose version must be equal on all workers."""
SHOULD_MATCH = ("python", "numpy", "numba", "pyarrow", "distributed", "libc")
"""Versions that should be equal: another one may differ in the last bit of a result."""
PROBE, PRIORITY = "probe/", 100
NO_ANSWER = "no answer in"
LEFT = "it is about to leave"


@dataclass(frozen=True)
class DiagnosisRequest:
    """What a worker checks. probe: name and content of an object at ``url``."""

    versions: Mapping[str, str]
    url: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    probe: tuple[str, bytes] = ("", b"")
    shards: tuple[Shard, ...] = ()
    data_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def versions() -> dict[str, str]:
    """Versions of this process."""
    found = {name: version(name) for name in ("streamomd", "numpy", "numba", "pyarrow")}
    libc = " ".join(platform.libc_ver()).strip()
    more = {"distributed": version("distributed"), "python": platform.python_version()}
    return {**found, **more, "libc": libc}


def examine_worker(request: DiagnosisRequest) -> tuple[list[str], list[str]]:
    """Runs on a worker: problems that make it unfit, and differences that may change bits."""
    here = versions()
    mismatches = [
        f"{name} is {here[name]} there, {request.versions[name]} here"
        for name in (*MUST_MATCH, *SHOULD_MATCH)
        if here[name] != request.versions[name]
    ]
    unfit = [text for text in mismatches if text.split()[0] in MUST_MATCH]
    try:
        if request.url:
            _read_probe(request)
        for shard in request.shards:
            check_footer(shard, request.data_options)
    except (StreamomdError, OSError) as error:
        unfit.append(printable(scrub(str(error))))
    return unfit, [text for text in mismatches if text not in unfit]


def _read_probe(request: DiagnosisRequest) -> None:
    name, content = request.probe
    try:
        found = open_store(request.url, request.options).read(name)
    except FileNotFoundError:
        found = b""
    if found != content:
        raise ClusterError(
            f"it cannot read an object just written to {shown(request.url)}: the "
            "checkpoint must be on a shared disk or in a bucket"
        )


def diagnose(
    client: Client,
    model: ModelData | None = None,
    shards: ShardSet | None = None,
    *,
    patient: bool = True,
) -> list[dict[str, Any]]:
    """A dict for each worker: worker, name, threads, memory (bytes, 0: no limit), ok, unfit,
    differs, usable, answered.

    Only usable workers, those with this streamomd, are checked further. With a model and its
    shards, the check includes the memory for the job's mode and learner, the first and last shard,
    and an object written at the checkpoint's URL. patient: wait ``doctor-seconds`` for workers that
    are busy, also if there are usable ones.
    """
    monitor = monitor_of(client)
    monitor.probe_all(client, lambda: None)
    if patient or not monitor.usable:
        _report_busy(client, [address for address, _ in monitor.pending])
        monitor.wait_for_answers(client, seconds("doctor") - seconds("probe"), lambda: None)
        monitor.refresh(client)
    known, unusable = monitor.workers, monitor.unusable
    if not known:
        raise ClusterError("the scheduler has no workers, or does not report them")
    request, store = DiagnosisRequest(versions()), None
    if model is not None and model.spec.checkpoint.url != "none":
        checkpoint, data = model.spec.checkpoint, model.spec.data
        store = open_store(checkpoint.url, checkpoint.storage_options)
        probe = (f"{PROBE}{uuid.uuid4().hex}", uuid.uuid4().bytes)
        store.put(*probe)
        by_url = {shard.url: shard for shard in (*(shards or ()),)}
        # The ends of the list: a worker without access to a mount or bucket fails at either.
        urls = tuple(dict.fromkeys([*by_url][:1] + [*by_url][-1:]))
        request = DiagnosisRequest(
            request.versions,
            checkpoint.url,
            checkpoint.storage_options,
            probe,
            tuple(by_url[url] for url in urls),
            data.store_options,
        )
    try:
        answers = _ask_workers(client, [*monitor.usable], request, patient=patient)
    finally:
        if store is not None:
            # Also after an error: the checkpoint's listing must not have objects of others.
            store.delete(request.probe[0])
    able = {address for address, (unfit, _) in answers.items() if not unfit}
    workers = _enough_memory(model, known, able) or len(answers)
    rows = []
    for address, worker in known.items():
        usable = address in answers
        unfit, differs = answers.get(address, ([unusable.get(address, LEFT)], []))
        if model is not None and usable:
            unfit = unfit + memory_problems(worker, model.spec, model.state.layout, workers)
        rows.append(
            {
                "worker": address,
                "name": str(worker.get("name", address)),
                "threads": worker["nthreads"],
                "memory": worker.get("memory_limit") or 0,
                "ok": not unfit,
                "unfit": unfit,
                "differs": differs,
                "usable": usable,
                "answered": not any(text.startswith(NO_ANSWER) for text in unfit),
            }
        )
    return rows


def _report_busy(client: Client, addresses: Sequence[str]) -> None:
    """Report which of the workers that are waited for are busy."""
    monitor = monitor_of(client)
    if addresses and monitor.refresh(client):
        addresses = [one for one in addresses if busy_with(monitor.workers.get(one, {}))]
    if addresses:
        note(
            f"busy: {', '.join(addresses)}; waiting {seconds('doctor'):.0f} s at most for an "
            "answer (streamomd.doctor-seconds)"
        )


def _enough_memory(model: ModelData | None, found: Mapping[str, Any], able: set[str]) -> int:
    """How many of some workers have the memory for a job that only those with enough run: with
    fewer workers, each needs more."""
    # Each round may lose some, after which the others need more: until none is lost.
    while model is not None:
        spec, layout, count = model.spec, model.state.layout, len(able)
        able = {one for one in able if not memory_problems(found[one], spec, layout, count)}
        if len(able) == count:
            break
    return len(able)


def _ask_workers(
    client: Client, addresses: Sequence[str], request: DiagnosisRequest, *, patient: bool
) -> dict[str, tuple[list[str], list[str]]]:
    """Each worker's answer; a busy or unreachable one times out."""
    futures = {
        address: send_task(
            client,
            f"omd-doctor-{uuid.uuid4().hex[:8]}",
            examine_worker,
            request,
            waiting=lambda: None,
            only=[address],
            priority=PRIORITY,
        )
        for address in addresses
    }
    began, limit, all_done = time.monotonic(), seconds("mind"), threading.Event()
    waiting = set(futures)

    def on_done(address: str) -> None:
        waiting.discard(address)
        if not waiting:
            all_done.set()

    for address, future in futures.items():
        future.add_done_callback(lambda _, address=address: on_done(address))
    if futures and not all_done.wait(limit) and patient:
        _report_busy(client, [*waiting])
        all_done.wait(seconds("doctor") - limit)
    answers = {}
    for address, future in futures.items():
        if future.status == "finished":
            answers[address] = future.result(timeout=limit)
        elif future.status == "error":
            error = future.exception(timeout=limit)
            text = printable(scrub(f"{type(error).__name__}: {error}"))
            answers[address] = [f"the check could not run: {text}"], []
        else:
            answers[address] = [monitor_of(client).late(address, began)], []
    client.cancel([*futures.values()])
    return answers


def exclude_unfit(client: Client, model: ModelData, shards: ShardSet) -> dict[str, str]:
    """Use no worker that is unfit for a job; report each, and give the reasons by address.

    Raises ClusterError with all reasons if no worker is fit.
    """
    examined = diagnose(client, model, shards, patient=False)
    monitor = monitor_of(client)
    monitor.refuse_unusable(client)
    reasons = {
        worker["worker"]: "; ".join(worker["unfit"]) for worker in examined if not worker["ok"]
    }
    if len(reasons) == len(examined):
        lines = [f"{address}: {reason}" for address, reason in reasons.items()]
        raise ClusterError("workers unfit for this job:\n" + "\n".join(lines))
    unfit = {worker["worker"] for worker in examined if worker["usable"] and worker["answered"]} & {
        *reasons
    }
    for address in sorted(unfit):  # one that is busy may be fit later
        monitor.exclude(address, reasons[address])
    return {address: reasons[address] for address in unfit}
