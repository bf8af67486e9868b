"""Subscribe to the events of a topic for the duration of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client

Event = tuple[float, Any]


@contextmanager
def subscribe_events(client: Client, topic: str, handler: Callable[[Event], Any]) -> Iterator[None]:
    """Call ``handler`` with (time, event) for each event of a topic, inside this context.

    Dask references a handler after its topic is unsubscribed, and with it everything the handler
    references, such as a model: so that handler references only a list, which is empty then.
    """
    handlers = [handler]

    def handle(event: Event) -> None:
        for one_handler in handlers:
            one_handler(event)

    client.subscribe_topic(topic, handle)
    try:
        yield
    finally:
        handlers.clear()
        if client.status == "running":
            with suppress(OSError, TimeoutError, ValueError):
                client.unsubscribe_topic(topic)
