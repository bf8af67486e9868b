"""A scheduler file: JSON that ``dask scheduler --scheduler-file`` writes, with its address."""

from __future__ import annotations

import json
import time
from pathlib import Path

from streamomd.config.settings import seconds
from streamomd.core.errors import InputNotFoundError, StoppedError, UsageError
from streamomd.core.urls import scrub, shown
from streamomd.training.signals import StopRequest, stop_on_signals

POLL_SECONDS = 0.1
MAX_BYTES = 16 << 20  # it lists the workers as well


def read_scheduler_file(path: str, stop: StopRequest | None = None) -> str:
    """The address in a scheduler file. A scheduler that starts may write it within
    ``connect-seconds``.

    stop: the run's signals; None: they are received here. Raises InputNotFoundError, UsageError for
    a file without an address, StoppedError after a signal.
    """
    if stop is None:
        with stop_on_signals() as signals:
            return read_scheduler_file(path, signals)
    limit = seconds("connect")
    deadline = time.monotonic() + limit
    while True:
        try:
            return _address_in(path)
        except (InputNotFoundError, UsageError) as error:  # not there, or half written
            if time.monotonic() > deadline:
                raise type(error)(f"{error}; waited {limit:g} s for it") from None
        time.sleep(POLL_SECONDS)
        if stop.signal:
            message = f"stopped while waiting for the scheduler file {shown(path)}"
            raise StoppedError(message, signal=stop.signal)


def _address_in(path: str) -> str:
    problem = f"{shown(path)} is not a scheduler file"
    try:
        with Path(path).open("rb") as file:
            content = json.loads(file.read(MAX_BYTES))
    except FileNotFoundError:
        raise InputNotFoundError(f"no scheduler file {shown(path)}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{problem}: {scrub(str(error))}") from None
    address = content.get("address") if isinstance(content, dict) else None
    if not isinstance(address, str) or "://" not in address:
        raise UsageError(f"{problem}: it has no text 'address' such as tcp://10.0.0.5:8786")
    return address
