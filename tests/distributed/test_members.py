"""Which owners of a group are lost, by the scheduler and the other owners."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import pytest

from streamomd.core.errors import BadRowError
from streamomd.distributed import worker_group
from streamomd.distributed.star import DRIVER, PeerLostError
from streamomd.distributed.worker_group import GroupMembers

AT = ("a", "b", "c")


@dataclass
class Task:
    """As far as it matters here, a future."""

    error: Exception | None = None
    status: str = "pending"

    def done(self) -> bool:
        return self.status != "pending"

    def exception(self, timeout: float) -> Any:
        return self.error


def members(*tasks: Task, exchanged: bool) -> GroupMembers:
    """Of three."""
    return GroupMembers(AT, list(tasks), exchanged)  # type: ignore[arg-type]


def misses(peer: int) -> Task:
    """Who has ended for that it lost another."""
    return Task(PeerLostError(peer, "gone"), "error")


ENDED = Task(status="finished")


@pytest.mark.parametrize(
    "tasks, exchanged, unfinished",
    [
        # Once they have met, whoever has not ended with the others.
        ((misses(1), Task(), Task()), True, ["b", "c"]),
        ((misses(1), Task(), misses(1)), True, ["b"]),
        ((misses(1), misses(0), ENDED), True, []),
        # Before, c may just be waiting for b.
        ((misses(1), Task(), Task()), False, ["b"]),
        ((misses(1), misses(0), Task()), False, []),
        ((misses(DRIVER), Task(), Task()), False, []),
    ],
)
def test_who_is_late(tasks: Any, exchanged: bool, unfinished: list[str]) -> None:
    """An owner that only waits is not reported lost."""
    assert members(*tasks, exchanged=exchanged).find_unfinished() == unfinished
    assert members(*tasks, exchanged=exchanged).find_unfinished(lost=["b"]) == [
        at for at in unfinished if at != "b"
    ]


@pytest.mark.parametrize(
    "exchanged, patience, answering, silent",
    [
        (True, 1, [], []),
        (False, 1, [], [2.5, 5.0, 25.0]),
        (False, 2, [], [5.0, 25.0]),
        (False, 1, ["b"], [25.0]),
        (False, 2, ["b"], []),
    ],
)
def test_who_is_gone(
    monkeypatch: pytest.MonkeyPatch,
    exchanged: bool,
    patience: int,
    answering: Any,
    silent: list[float],
) -> None:
    """A worker that the scheduler has not; and one it does not hear, while they meet, whose machine
    does not answer, or only that."""
    three = members(Task(), Task(), Task(), exchanged=exchanged)
    three.patience = patience
    monkeypatch.setattr(worker_group, "accepts_connections", lambda at: at in answering)
    for second in (0.0, 1.5, 2.5, 5.0, 25.0):
        monkeypatch.setattr(worker_group.time, "monotonic", lambda now=second: now)
        found = three.find_lost({"a": {"last_seen": second}, "b": {"last_seen": 0.0}})
        assert found == (["b", "c"] if second in silent else ["c"])


def test_a_machine_answers_however_busy_its_worker_is() -> None:
    """A socket that listens and does nothing; no socket."""
    with socket.create_server(("127.0.0.1", 0)) as idle:
        address = f"tcp://127.0.0.1:{idle.getsockname()[1]}"
        assert worker_group.accepts_connections(address)
    assert not worker_group.accepts_connections(address)


def test_an_owners_own_error_goes_before_those_who_miss_it() -> None:
    """It is what a person has to hear of."""
    own = BadRowError("row 7: NaN")
    three = members(misses(1), Task(own, "error"), misses(1), exchanged=True)
    assert three.has_failed()
    with pytest.raises(BadRowError, match="row 7"):
        three.raise_own_error()
    members(misses(1), Task(), ENDED, exchanged=True).raise_own_error()
    assert not members(ENDED, Task(), ENDED, exchanged=True).has_failed()
