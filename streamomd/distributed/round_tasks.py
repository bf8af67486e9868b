"""The tasks of a round of averaged mode, and where they run, on which its result does not depend.

The first worker has the start of the round; the others copy it in a tree. Neighbouring parts are on
one worker, so that most merges need no transfer, and the last merge is on the worker of the first
part, where the next round starts. A task goes to another worker once its own is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from streamomd.distributed.averaged_worker import learn_range, merge_states
from streamomd.distributed.cluster import send_task
from streamomd.distributed.round_state import RoundStart, copy_state, start_state
from streamomd.distributed.worker_monitor import Waiting
from streamomd.shards.row_ranges import RowRange

MERGE_FIRST = 1  # a merge frees a state, so it runs before a task that makes one
START_FIRST = 2  # all others wait for it


def place_parts(threads: Mapping[str, int], parts: int, first: str = "") -> list[str]:
    """The worker of each part, in proportion to the workers' threads.

    first: the worker of the first part, if it is there.

    >>> place_parts({"b": 1, "a": 1, "c": 2}, 8)
    ['a', 'a', 'b', 'b', 'c', 'c', 'c', 'c']
    >>> place_parts({"a": 1, "b": 1, "c": 2}, 2, first="b")
    ['b', 'c']
    """
    order = sorted(threads, key=lambda address: (address != first, address))
    slots = [address for address in order for _ in range(threads[address])]
    return [slots[part * len(slots) // parts] for part in range(parts)]


def source_of(number: int) -> int:
    """The number of the worker from which worker ``number`` copies the start of a round.

    A binary tree: no worker sends more than two copies.

    >>> [source_of(number) for number in range(1, 7)]
    [0, 0, 1, 1, 2, 2]
    """
    return (number - 1) // 2


@dataclass(frozen=True)
class RoundTasks:
    """Submits the tasks of a round. by: what weighs means in a merge. topic: of progress events."""

    client: Client
    request: RoundStart
    usable: Sequence[str]
    topic: str
    by: str
    waiting: Waiting

    def submit(
        self, parts: Sequence[RowRange], places: Sequence[str]
    ) -> tuple[Future[Any], Future[Any]]:
        """Submit all; return the round's start and its result. They hold the only references to
        the others, so each state is freed when it is merged."""
        run, starts = self.request.run, self._send_starts(list(dict.fromkeys(places)))
        nodes = []
        for number, (part, place) in enumerate(zip(parts, places, strict=True)):
            call = learn_range, self.request, part, len(parts) > 1, self.topic, number
            # Dask prefers the worker that has the start; another one that is idle may take it.
            task = self._send(f"omd-part-{run}-{number}", self.usable, -number, call, starts[place])
            nodes.append((task, place))
        merges = 0
        while len(nodes) > 1:
            above = []
            for (a, place), (b, _) in zip(nodes[::2], nodes[1::2], strict=False):
                key, merges = f"omd-merge-{run}-{merges}", merges + 1
                merge = merge_states, run if len(nodes) == 2 else "", self.by
                task = self._send(key, [place], MERGE_FIRST, merge, starts[place], a, b)
                above.append((task, place))
            nodes = above + nodes[len(nodes) - len(nodes) % 2 :]
        return starts[places[0]], nodes[0][0]

    def _send_starts(self, workers: Sequence[str]) -> dict[str, Future[Any]]:
        """The round's start on each of these workers: the first one has it or loads it, each of
        the others copies it from one before."""
        run, starts = self.request.run, list[Future[Any]]()
        for number, worker in enumerate(workers):
            key, inputs = f"omd-start-{run}-{number}", [starts[source_of(number)]] if number else []
            call = (copy_state,) if number else (start_state, self.request)
            starts.append(self._send(key, [worker], START_FIRST, call, *inputs))
        return dict(zip(workers, starts, strict=True))

    def _send(
        self,
        key: str,
        workers: Sequence[str],
        priority: int,
        call: tuple[Any, ...],
        *inputs: Future[Any],
    ) -> Future[Any]:
        """Submit a task to these workers, or to any other once all of them are gone."""
        return send_task(
            self.client,
            key,
            *call,
            waiting=self.waiting,
            inputs=inputs,
            only=workers,
            any_worker=True,
            priority=priority,
        )
