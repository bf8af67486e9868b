"""The probe of a worker: whether it has this streamomd. Any worker can unpickle the probe.

A worker that unpickles a task whose function it cannot import closes, and the results it holds are
lost, including those of other clients. So a probe and every later task consist of builtins and
text.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

from distributed import Client, Future, get_worker
from distributed.protocol.pickle import dumps
from fsspec.registry import known_implementations

from streamomd.config.run_tables import Cluster
from streamomd.core.urls import protocol

VERSION = version("streamomd")
PRIORITY = 100
SOURCE = """
def probe(wanted, packages):
    import re
    from importlib import import_module, metadata
    from importlib.util import find_spec

    try:
        found = metadata.version("streamomd")
    except metadata.PackageNotFoundError:
        return "it does not have streamomd"
    if found != wanted:
        return f"it has streamomd {found}, this process {wanted}"
    try:
        for line in metadata.requires("streamomd") or ():
            if ";" not in line:
                metadata.version(re.match("[A-Za-z0-9._-]+", line)[0])
        import_module("streamomd")
        for package, use in packages.items():
            if find_spec(package) is None:
                return f"it does not have {package}, which {use} needs"
    except metadata.PackageNotFoundError as error:
        return f"it does not have {error.name}, which streamomd needs"
    except BaseException as error:  # a third-party package may even raise SystemExit
        return f"it cannot import streamomd: {type(error).__name__}: {error}"
    return ""
"""
"""Fast even on a fresh worker: streamomd imports its modules lazily."""
PROBE_EXPRESSION = "(lambda names: exec(source, names) or names['probe'](wanted, packages))({})"
CALL_EXPRESSION = "__import__('pickle').loads(task.getvalue())(*inputs)"


def packages_of(urls: Iterable[str]) -> dict[str, str]:
    """The packages that open these URLs, except fsspec itself, each with what needs it.

    >>> packages_of(["s3://bucket/a", "/rows/b", "memory://c"])
    {'s3fs': 's3://'}
    """
    found = {}
    for name in sorted({protocol(url) for url in urls} & {*known_implementations}):
        package = known_implementations[name]["class"].partition(".")[0]
        if package != "fsspec":
            found[package] = f"{name}://"
    return found


def send_probe(client: Client, address: str, packages: Mapping[str, str]) -> Future[Any]:
    """A task on that worker only. Its result: why the worker is unusable, or an empty string.

    packages: see ``packages_of``.
    """
    return client.submit(
        eval,
        PROBE_EXPRESSION,
        {"source": SOURCE, "wanted": VERSION, "packages": {**packages}},
        key=f"omd-probe-{uuid.uuid4().hex}",
        workers=[address],
        allow_other_workers=False,
        pure=False,
        priority=PRIORITY,
    )


def pack_call(
    function: Callable[..., Any], arguments: Sequence[Any], inputs: Sequence[Future[Any]]
) -> tuple[Any, ...]:
    """A call that the scheduler and every worker can unpickle: streamomd is imported when the task
    runs, and a worker without it fails only that task.

    The bytes are in a BytesIO because workers log the arguments of a failed task: its repr shows no
    content, and the arguments may contain storage options.
    """
    call = io.BytesIO(dumps(partial(function, *arguments)))
    return eval, CALL_EXPRESSION, {"task": call, "inputs": [*inputs]}


class WorkerChoice(NamedTuple):
    """The workers that a job may use: those of these names, if any are named, with at least these
    resources, and with the packages that its URLs need (see ``packages_of``)."""

    names: tuple[str, ...] = ()
    resources: Mapping[str, float] = MappingProxyType({})
    packages: Mapping[str, str] = MappingProxyType({})

    def includes(self, worker: Mapping[str, Any]) -> bool:
        """Whether a worker, as the scheduler describes it, is among those that were chosen."""
        has = worker.get("resources") or {}
        named = not self.names or str(worker.get("name")) in self.names
        return named and all(has.get(name, 0.0) >= n for name, n in self.resources.items())

    def __str__(self) -> str:
        names = [f"is named {', '.join(self.names)}"] if self.names else []
        resources = ", ".join(f"{name} = {number:g}" for name, number in self.resources.items())
        return " and ".join([*names, *([f"has resources {resources}"] if resources else [])])


def not_chosen(cluster: Cluster) -> str:
    """On a worker: why a job with this table does not run here; "" if it does."""
    choice, worker = WorkerChoice(cluster.workers, cluster.resources), get_worker()
    if choice.includes({"name": worker.name, "resources": worker.state.total_resources}):
        return ""
    return (
        f"no worker is left that {choice} (cluster.workers, cluster.resources), and the job does "
        f"not run on {worker.name}"
    )
