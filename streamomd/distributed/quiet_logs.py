"""Suppress Dask's own log messages about what one error reports: a lost scheduler, and tasks of our
own cluster that fail on purpose.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from distributed import Client, WorkerPlugin

from streamomd.config.settings import seconds
from streamomd.core.errors import StreamomdError
from streamomd.distributed.scheduler import run_on_loop

LOGGERS = ("distributed", "tornado", "asyncio")


class _Teardown(logging.Filter):
    """Drops log records of a client's event loop while its scheduler is not connected."""

    def __init__(self, thread: int, running: Callable[[], bool]) -> None:
        super().__init__()
        self._thread, self._running = thread, running

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging."""
        return record.thread != self._thread or self._running()


@contextmanager
def suppress_client_logs(thread: int, running: Callable[[], bool]) -> Iterator[None]:
    """Inside this context a lost scheduler is reported only by the error that is raised.

    thread: identifier of the client's thread; 0: none. running: whether it is connected.
    """
    rule = _Teardown(thread, running)
    # A filter applies to records of its own logger, not to those propagated from children.
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in LOGGERS]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(rule)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(rule)


class QuietTaskErrors(WorkerPlugin):
    """A worker with this plugin logs no traceback of a task that raised one of our errors, which
    the driver raises. For a cluster of this process, whose workers log to its stderr."""

    name = "streamomd-quiet-task-errors"
    idempotent = True

    def setup(self, worker: object) -> None:
        """Called by Dask on every worker."""
        logging.getLogger("distributed.worker").addFilter(_drop_named_errors)


def _drop_named_errors(record: logging.LogRecord) -> bool:
    """Called by logging: whether a record is logged. Dask gives the task's error as its repr."""
    failed = str(record.msg).startswith("Compute Failed")
    texts = record.args if failed and isinstance(record.args, tuple) else ()
    names = {text.partition("(")[0] for text in texts if isinstance(text, str)}
    return names.isdisjoint(_error_names(StreamomdError))


def _error_names(error: type[BaseException]) -> set[str]:
    return {error.__name__}.union(*map(_error_names, error.__subclasses__()))


def loop_thread_of(client: Client) -> int:
    """The identifier of the thread whose event loop a client uses; 0 if it is closed."""

    async def ident() -> int:
        return threading.get_ident()

    with suppress(RuntimeError, TimeoutError, AttributeError):
        return int(run_on_loop(client, ident()).result(seconds("answer")))
    return 0
