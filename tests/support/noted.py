"""The notes of a run, as a test reads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from streamomd.core.run_events import Event, receiving


def listening(listener: Callable[[str], object]) -> AbstractContextManager[None]:
    """Send the text of each note to ``listener`` while inside."""

    def receive(event: Event) -> None:
        if event.text:
            listener(event.text)

    return receiving(receive)
