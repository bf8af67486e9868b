"""Suppress Dask's own log messages about a lost scheduler; one error reports it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from distributed import Client

from streamomd.config.settings import seconds
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


def loop_thread_of(client: Client) -> int:
    """The identifier of the thread whose event loop a client uses; 0 if it is closed."""

    async def ident() -> int:
        return threading.get_ident()

    with suppress(RuntimeError, TimeoutError, AttributeError):
        return int(run_on_loop(client, ident()).result(seconds("answer")))
    return 0
