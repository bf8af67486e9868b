"""Who of a gang is lost, from what the scheduler and the others tell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from streamomd.distribute import members
from streamomd.distribute.exchange import DRIVER, SILENT_SECONDS, PeerLostError
from streamomd.distribute.members import Members
from streamomd.errors import BadRowError

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


def gang(*tasks: Task, met: bool) -> Members:
    """Of three."""
    return Members(AT, list(tasks), met)  # type: ignore[arg-type]


def misses(peer: int) -> Task:
    """Who has ended for that it lost another."""
    return Task(PeerLostError(peer, "gone"), "error")


ENDED = Task(status="finished")


@pytest.mark.parametrize(
    "tasks, met, late",
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
def test_who_is_late(tasks: Any, met: bool, late: list[str]) -> None:
    """Nobody who only waits is suspected."""
    assert gang(*tasks, met=met).late() == late
    assert gang(*tasks, met=met).late(gone=["b"]) == [at for at in late if at != "b"]


@pytest.mark.parametrize("met, patience", [(True, 1), (False, 1), (False, 2)])
def test_who_is_gone(monkeypatch: pytest.MonkeyPatch, met: bool, patience: int) -> None:
    """A worker that the scheduler has not; and one it does not hear, while they meet."""
    now = itertools.count(0.0, SILENT_SECONDS / 2 + 0.1)
    monkeypatch.setattr(members.time, "monotonic", now.__next__)
    three = gang(Task(), Task(), Task(), met=met)
    three.patience = patience
    for beat in range(3):
        found = three.gone({"a": {"last_seen": beat}, "b": {"last_seen": 0.0}})
        silent = beat == 2 and not met and patience == 1
        assert found == (["b", "c"] if silent else ["c"])


def test_an_owners_own_error_goes_before_those_who_miss_it() -> None:
    """It is what a person has to hear of."""
    own = BadRowError("row 7: NaN", reason="nan")
    three = gang(misses(1), Task(own, "error"), misses(1), met=True)
    assert three.failed()
    with pytest.raises(BadRowError, match="row 7"):
        three.raise_own()
    gang(misses(1), Task(), ENDED, met=True).raise_own()
    assert not gang(ENDED, Task(), ENDED, met=True).failed()
