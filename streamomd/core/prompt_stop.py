"""SIGTERM and SIGINT during work that leaves nothing half made: it ends immediately, cleaned up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from streamomd.core.errors import StoppedError
from streamomd.core.startup import exit_now


class _Stop(BaseException):
    """Raised by the handler: code that handles errors of files must not take it for one."""


@contextmanager
def stopping_promptly(work: str, saved: str = "nothing of it was saved") -> Iterator[None]:
    """End what is inside at the first signal, in the main thread; at the second, the process.

    work: in the message, such as "converting rows.csv"; nothing of it may be in use after an
    exception. saved: what is left of it. Raises StoppedError. Ctrl-C stays KeyboardInterrupt unless
    the caller has a handler of its own, as a run that waits for the end of a batch; ignored signals
    stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ordinary = (signal.SIG_IGN, signal.default_int_handler, None)
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    before = {one: handler for one, handler in before.items() if handler not in ordinary}
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            exit_now(128 + number)
        received.append(number)
        raise _Stop

    handlers: Any = signal  # its constants are of more types than its functions declare
    for number in before:
        handlers.signal(number, receive)
    try:
        yield
    except _Stop:
        pass
    finally:
        for number, handler in before.items():
            handlers.signal(number, handler)
    if received:
        raise StoppedError(f"stopped while {work}; {saved}", signal=received[0])
