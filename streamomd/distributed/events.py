"""Events of a topic, heard as long as they are waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client

Event = tuple[float, Any]


@contextmanager
def hearing(client: Client, topic: str, tell: Callable[[Event], Any]) -> Iterator[None]:
    """``tell`` is told each event of a topic, with its time, while inside.

    Dask keeps a handler after its topic is unsubscribed, and with it whatever the handler reaches,
    such as a model: so what it keeps is a list, empty by then.
    """
    listeners = [tell]

    def handle(event: Event) -> None:
        for listener in listeners:
            listener(event)

    client.subscribe_topic(topic, handle)
    try:
        yield
    finally:
        listeners.clear()
        if client.status == "running":
            with suppress(OSError, TimeoutError, ValueError):
                client.unsubscribe_topic(topic)
