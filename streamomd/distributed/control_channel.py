"""Control messages between a group's leader and the driver, through the scheduler."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from streamomd.distributed.star import DRIVER, PeerLostError

DRIVER_TIMEOUT_SECONDS = 60.0  # without a heartbeat of the driver
CALL_SECONDS = 30.0  # for one call to the scheduler


@dataclass
class ControlChannel:
    """Messages to the driver and orders from it: a few per second, never data."""

    queue: Any
    orders: Any
    _last_beat: int = -1
    _last_beat_time: float = field(default_factory=time.monotonic)

    def send(self, kind: str, **more: Any) -> None:
        """Send a message to the driver. Raises PeerLostError if the scheduler does not answer."""
        try:
            self.queue.put({"kind": kind, **more}, callback_timeout=CALL_SECONDS)
        except TimeoutError:
            raise PeerLostError(DRIVER, "the scheduler does not answer") from None

    def read_orders(self) -> dict[str, Any]:
        """The driver's current orders. Raises PeerLostError if the driver is gone."""
        try:
            read_orders: dict[str, Any] = self.orders.get(timeout=5, callback_timeout=CALL_SECONDS)
        except TimeoutError:
            raise PeerLostError(DRIVER, "it has left") from None
        if read_orders["beat"] != self._last_beat:
            self._last_beat, self._last_beat_time = read_orders["beat"], time.monotonic()
        return read_orders

    def driver_is_silent(self) -> bool:
        """Whether the driver's heartbeats have stopped."""
        return time.monotonic() - self._last_beat_time > DRIVER_TIMEOUT_SECONDS

    def wait(self, condition: Any, seconds: float) -> Any:
        """The first true value of ``condition(orders)``. Raises PeerLostError after ``seconds``."""
        deadline, delay = time.monotonic() + seconds, 0.002
        while not (found := condition(self.read_orders())):
            if time.monotonic() > deadline:
                raise PeerLostError(DRIVER, f"no answer in {seconds:g} s")
            time.sleep(delay)
            delay = min(2 * delay, 0.1)
        return found
