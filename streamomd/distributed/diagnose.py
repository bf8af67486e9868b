"""Whether a cluster is fit for a job, before anything is learned: versions, memory, reach."""

from __future__ import annotations

import platform
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from distributed import Client

from streamomd.checkpoint import open_store
from streamomd.config.settings import seconds
from streamomd.core.errors import ClusterError, StreamomdError
from streamomd.core.urls import printable, scrub, shown
from streamomd.distributed.cluster import sent
from streamomd.distributed.memory_checks import too_small
from streamomd.distributed.worker_monitor import lookout_of
from streamomd.shards.reader import look
from streamomd.shards.shard import Shard, ShardSet
from streamomd.training.model import Model

SAME = ("streamomd",)
"""What must be the same on all."""
ALIKE = ("python", "numpy", "numba", "pyarrow", "distributed", "libc")
"""What should be: another one may round otherwise in the last bit."""
PROBE, PRIORITY = "probe/", 100


@dataclass(frozen=True)
class DiagnosisRequest:
    """What a worker is asked to look at. probe: name and content of an object at ``url``."""

    versions: Mapping[str, str]
    url: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    probe: tuple[str, bytes] = ("", b"")
    shards: tuple[Shard, ...] = ()
    data_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def versions() -> dict[str, str]:
    """Of what computes here."""
    found = {name: version(name) for name in ("streamomd", "numpy", "numba", "pyarrow")}
    libc = " ".join(platform.libc_ver()).strip()
    more = {"distributed": version("distributed"), "python": platform.python_version()}
    return {**found, **more, "libc": libc}


def examine(patient: DiagnosisRequest) -> tuple[list[str], list[str]]:
    """On a worker: what makes it unfit, and what might change bits."""
    here = versions()
    wrong = [
        f"{name} is {here[name]} there, {patient.versions[name]} here"
        for name in (*SAME, *ALIKE)
        if here[name] != patient.versions[name]
    ]
    unfit = [text for text in wrong if text.split()[0] in SAME]
    try:
        if patient.url:
            _read_probe(patient)
        for shard in patient.shards:
            look(shard, patient.data_options)
    except (StreamomdError, OSError) as error:
        unfit.append(printable(scrub(str(error))))
    return unfit, [text for text in wrong if text not in unfit]


def _read_probe(patient: DiagnosisRequest) -> None:
    name, content = patient.probe
    try:
        found = open_store(patient.url, patient.options).read(name)
    except FileNotFoundError:
        found = b""
    if found != content:
        raise ClusterError(
            f"it does not see what was written to {shown(patient.url)} a moment ago: the "
            "checkpoint must be on a disk that all share, or in a bucket"
        )


def diagnose(
    client: Client, model: Model | None = None, shards: ShardSet | None = None
) -> list[dict[str, Any]]:
    """A dict for each worker: worker, threads, memory (bytes, 0: no limit), ok, unfit, differs,
    usable.

    Only usable workers, those that have this streamomd, are examined further. With a model and its
    shards, also their memory for the job's mode and learner, the first and last shard, and an
    object written at its checkpoint's URL are looked at.
    """
    lookout = lookout_of(client)
    lookout.meet(client, lambda: None)
    found, unusable = lookout.there, lookout.unusable
    if not found:
        raise ClusterError("the scheduler has no workers, or does not tell of them")
    patient, store = DiagnosisRequest(versions()), None
    if model is not None and model.spec.checkpoint.url != "none":
        kept, data = model.spec.checkpoint, model.spec.data
        store = open_store(kept.url, kept.storage_options)
        probe = (f"{PROBE}{uuid.uuid4().hex}", uuid.uuid4().bytes)
        store.put(*probe)
        ends = {shard.url: shard for shard in (*(shards or ()),)}
        some = tuple(dict.fromkeys([*ends][:1] + [*ends][-1:]))
        patient = DiagnosisRequest(
            patient.versions,
            kept.url,
            kept.storage_options,
            probe,
            tuple(ends[url] for url in some),
            data.storage_options,
        )
    try:
        answers = _asked(client, [*lookout.usable], patient)
    finally:
        if store is not None:
            store.delete(patient.probe[0])
    rows = []
    for address, worker in found.items():
        usable = address not in unusable
        unfit, differs = answers[address] if usable else ([unusable[address]], [])
        if model is not None and usable:
            workers = len(found) - len(unusable)
            unfit = unfit + too_small(worker, model.spec, model.state.layout, workers)
        rows.append(
            {
                "worker": address,
                "threads": worker["nthreads"],
                "memory": worker.get("memory_limit") or 0,
                "ok": not unfit,
                "unfit": unfit,
                "differs": differs,
                "usable": usable,
            }
        )
    return rows


def _asked(
    client: Client, addresses: Sequence[str], patient: DiagnosisRequest
) -> dict[str, tuple[list[str], list[str]]]:
    """Each worker's own answer; one that is busy or silent has none in time."""
    futures = {
        address: sent(
            client,
            f"omd-doctor-{uuid.uuid4().hex[:8]}",
            examine,
            patient,
            waiting=lambda: None,
            on=[address],
            priority=PRIORITY,
        )
        for address in addresses
    }
    limit, left = seconds("mind"), threading.Event()
    waiting = set(futures)

    def settled(address: str) -> None:
        waiting.discard(address)
        if not waiting:
            left.set()

    for address, future in futures.items():
        future.add_done_callback(lambda _, address=address: settled(address))
    left.wait(limit)
    answers = {}
    for address, future in futures.items():
        if future.status == "finished":
            answers[address] = future.result(timeout=limit)
        elif future.status == "error":
            error = future.exception(timeout=limit)
            text = printable(scrub(f"{type(error).__name__}: {error}"))
            answers[address] = [f"it cannot even be asked: {text}"], []
        else:
            answers[address] = [f"no answer in {limit:.0f} s: busy or unreachable"], []
    client.cancel([*futures.values()])
    return answers


def refuse_unfit(client: Client, model: Model, shards: ShardSet) -> None:
    """Raise ClusterError naming each usable worker that is not fit for the job, and why; or if no
    worker is usable. The others get no tasks."""
    found = diagnose(client, model, shards)
    lookout_of(client).refuse_unusable(client)
    unfit = [one for one in found if one["usable"] and not one["ok"]]
    if not any(one["usable"] for one in found):
        unfit = found
    if unfit:
        lines = [f"{one['worker']}: {'; '.join(one['unfit'])}" for one in unfit]
        raise ClusterError("workers that are not fit for this job:\n" + "\n".join(lines))
