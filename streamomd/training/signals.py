"""SIGTERM and SIGINT as a request: finish the batch, commit, exit. A second one exits now."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from streamomd.core.errors import StoppedError
from streamomd.core.run_events import Event, current_run, is_json, json_line
from streamomd.core.startup import exit_now
from streamomd.core.urls import shown
from streamomd.shards.order import STREAM
from streamomd.training.checkpoint_manager import CheckpointManager
from streamomd.training.model_data import ModelData

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """``signal`` is the number of the first signal that came, or 0."""

    def __init__(self) -> None:
        self.signal = 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        if self.signal:
            exit_now(128 + number)
        self.signal = number
        with suppress(OSError, AttributeError):  # stderr may be closed
            os.write(sys.stderr.fileno(), _stopping_line(number).encode())


def _stopping_line(number: int) -> str:
    text = "stopping; once more to leave immediately"
    if not is_json():
        return f"\n{text}\n"
    event = Event("stopping", "info", current_run(), text, {"signal": number})
    return f"{json_line(event)}\n"


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Receive signals while inside; in a thread other than the main one, none can be received."""
    request = StopRequest()
    with _handled_by(request.receive):
        yield request


@contextmanager
def _handled_by(receive: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, receive) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_on_signals(stop: StopRequest | None, message: str) -> Iterator[None]:
    """The first signal while inside raises StoppedError: for a call that cannot look at ``stop``.

    stop: the run's signals; None: there are none. In a thread other than the main one, none can be
    received.
    """
    request = StopRequest() if stop is None else stop

    def interrupt(number: int, _: FrameType | None) -> None:
        request.signal = number
        raise KeyboardInterrupt  # which libraries pass on

    try:
        with _handled_by(interrupt):
            yield
    except KeyboardInterrupt:
        raise StoppedError(message, signal=request.signal or signal.SIGINT) from None


def raise_stopped(
    stop: StopRequest, model: ModelData, manager: CheckpointManager | None
) -> NoReturn:
    """Commit, and raise StoppedError with the command that resumes. Called between batches."""
    saved = "nothing was saved (checkpoint none)"
    if manager:
        sequence = manager.commit(hurry=True).sequence
        again = f"streamomd resume {shown(model.url)}"
        if model.spec.data.shards[0].startswith(STREAM):
            again = f"streamomd.resume({shown(model.url)!r}, shards=the same rows)"
        saved = f"commit {sequence}; resume with: {again}"
    rows = model.metrics.total_rows
    raise StoppedError(f"stopped after row {rows:,}: {saved}", signal=stop.signal)
