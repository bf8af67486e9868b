"""Words between a gang's leader and its driver, through the scheduler: few a second, never data."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from streamomd.distributed.allreduce_zmq import DRIVER, PeerLostError

GONE_SECONDS = 60.0  # without a beat of the driver
TOLD_SECONDS = 30.0  # for the scheduler to take or give a word


@dataclass
class ControlChannel:
    """To the driver and back, through the scheduler: some words a second, never data."""

    queue: Any
    orders: Any
    _beat: int = -1
    _beaten: float = field(default_factory=time.monotonic)

    def say(self, kind: str, **more: Any) -> None:
        """Tell the driver. Raises PeerLostError when the scheduler does not take it."""
        try:
            self.queue.put({"kind": kind, **more}, callback_timeout=TOLD_SECONDS)
        except TimeoutError:
            raise PeerLostError(DRIVER, "the scheduler does not answer") from None

    def told(self) -> dict[str, Any]:
        """What the driver says now. Raises PeerLostError when it is gone."""
        try:
            told: dict[str, Any] = self.orders.get(timeout=5, callback_timeout=TOLD_SECONDS)
        except TimeoutError:
            raise PeerLostError(DRIVER, "it has left") from None
        if told["beat"] != self._beat:
            self._beat, self._beaten = told["beat"], time.monotonic()
        return told

    def is_silent(self) -> bool:
        """Whether the driver has not been heard of for long."""
        return time.monotonic() - self._beaten > GONE_SECONDS

    def wait(self, what: Any, seconds: float) -> Any:
        """The first answer that is something. Raises PeerLostError when none comes."""
        deadline, pause = time.monotonic() + seconds, 0.002
        while not (found := what(self.told())):
            if time.monotonic() > deadline:
                raise PeerLostError(DRIVER, f"no answer in {seconds:g} s")
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return found
