"""One message for a lost scheduler, instead of what its client's own machinery logs meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from distributed import Client

from streamomd.config.settings import seconds
from streamomd.distributed.scheduler import on_the_loop

LOGGERS = ("distributed", "tornado", "asyncio")


class _Teardown(logging.Filter):
    """Drops what a client's event loop logs while its scheduler is not connected."""

    def __init__(self, thread: int, running: Callable[[], bool]) -> None:
        super().__init__()
        self._thread, self._running = thread, running

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging."""
        return record.thread != self._thread or self._running()


@contextmanager
def silenced(thread: int, running: Callable[[], bool]) -> Iterator[None]:
    """While inside, a lost scheduler is reported by what is raised, and by nothing else.

    thread: the identifier of the client's own; 0: none. running: whether it is connected.
    """
    rule = _Teardown(thread, running)
    # A filter sees what is logged by its own logger, not what those below hand up.
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in LOGGERS]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(rule)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(rule)


def thread_of(client: Client) -> int:
    """The identifier of the thread whose event loop a client uses; 0 if it is closed."""

    async def ident() -> int:
        return threading.get_ident()

    with suppress(RuntimeError, TimeoutError, AttributeError):
        return int(on_the_loop(client, ident()).result(seconds("answer")))
    return 0
