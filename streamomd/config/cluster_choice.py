"""Which cluster a command uses if several places could name one, and the factories of users'
clusters.

It is code, so it is not a key of a job: no manifest, checkpoint or job file can name one. It comes
from the command line, or from Dask's configuration.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamomd.core.errors import UsageError
from streamomd.core.urls import printable, scrub, shown
from streamomd.core.wording import nearest

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class ClusterFactory:
    """name: module:factory, e.g. distributed:LocalCluster. here: whether modules of the current
    directory are found, after installed ones; origin: where the name was read, for messages."""

    name: str
    here: bool = True
    origin: str = "--cluster"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self}: expected module:factory, e.g. --cluster distributed:LocalCluster"
            )

    def __str__(self) -> str:
        return f"{self.origin} {printable(self.name)}"

    def make(self) -> object:
        """What the factory returns. Raises UsageError if it cannot be imported or raises."""
        factory = self._import()
        try:
            return factory()
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self}: the factory raised {_described(error)}") from error

    def _import(self) -> Callable[[], object]:
        module, _, path = self.name.partition(":")
        try:
            with _current_directory() if self.here else _nothing():
                found: Any = importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise UsageError(f"{self}: module {module} raised {_described(error)}") from error
        for step in path.split("."):
            if not hasattr(found, step):
                near = nearest(step, [name for name in dir(found) if not name.startswith("_")])
                hint = f"; did you mean {near!r}?" if near else ""
                raise UsageError(f"{self}: {module} has no {step!r}{hint}")
            found = getattr(found, step)
        if not callable(found):
            raise UsageError(f"{self}: expected a function, not {type(found).__name__}")
        factory: Callable[[], object] = found
        return factory


def _described(error: BaseException) -> str:
    text = printable(scrub(str(error)))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def _current_directory() -> Iterator[None]:
    """Last, so that a file there replaces no installed module."""
    here = os.getcwd()
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


ADDRESS_KEY, ADDRESS_VARIABLE = "scheduler-address", "DASK_SCHEDULER_ADDRESS"
NO_CLUSTER = (
    "pass --scheduler ADDRESS, --scheduler FILE.json or --cluster MODULE:FACTORY, or set "
    f"{ADDRESS_KEY} in Dask's configuration ({ADDRESS_VARIABLE})"
)
"""The end of a message of a command that needs a cluster."""


class ClusterChoice(NamedTuple):
    """client: a distributed.Client or a ClusterFactory, or None. address: of the scheduler, or its
    file; "" if there is none. origin: the configuration that named it, "" if a person did."""

    client: Any = None
    address: str = ""
    origin: str = ""

    @property
    def known(self) -> bool:
        """Whether a cluster was named."""
        return self.client is not None or bool(self.address)


def choose_cluster(client: Any, scheduler: str | None, *, needed: bool) -> ClusterChoice:
    """The cluster to use: one that was passed, else an address, else that of the configuration.

    client: a distributed.Client, a ClusterFactory, or None. scheduler: None if it is not given, ""
    for no cluster. needed: whether the configuration is read, which names a cluster for all
    programs. Raises UsageError for two at a time.
    """
    if isinstance(client, ClusterFactory) and scheduler:
        raise UsageError(
            f"two clusters: {client}, and the scheduler {shown(scheduler)}: pass one of them; "
            '--scheduler "" leaves out that of the job file'
        )
    if client is not None or scheduler is not None or not needed:
        return ClusterChoice(client, scheduler or "")
    return configured_cluster()


def is_scheduler_file(scheduler: str) -> bool:
    """Whether a text names a file rather than an address.

    >>> [is_scheduler_file(text) for text in ("tcp://h:8786", "h:8786", "s.json", "/shared/s")]
    [False, False, True, True]
    """
    return "://" not in scheduler and (scheduler.endswith(".json") or "/" in scheduler)


def configured_cluster() -> ClusterChoice:
    """The cluster that Dask's configuration names. Raises UsageError if it names two."""
    # Dask is slow to import, and needed only here.
    from streamomd.config.settings import configured, scheduler_address

    factory, address = configured("cluster"), scheduler_address()
    for name, value in (("streamomd.cluster", factory), (ADDRESS_KEY, address)):
        if not isinstance(value, str | None):
            raise UsageError(f"{name} = {value!r} in Dask's configuration: expected a text")
    if factory and address:
        raise UsageError(
            f"two clusters in Dask's configuration: streamomd.cluster = {factory!r} and "
            f"{ADDRESS_KEY} = {shown(address)!r}: remove one, or pass --scheduler or --cluster"
        )
    if factory:
        made = ClusterFactory(factory, here=False, origin="streamomd.cluster")
        return ClusterChoice(made, origin="streamomd.cluster in Dask's configuration")
    if address:
        variable = os.environ.get(ADDRESS_VARIABLE) == address
        origin = ADDRESS_VARIABLE if variable else f"{ADDRESS_KEY} in Dask's configuration"
        return ClusterChoice(address=address, origin=origin)
    return ClusterChoice()
