"""The tasks of a round of averaged mode, and where they run, on which its result does not depend.

The first worker has the start of the round; the others copy it in a tree. Neighbouring parts are on
one worker, so that most merges need no transfer, and the last merge is on the worker of the first
part, where the next round starts. A task goes to another worker once its own is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future

from streamomd.distributed.averaged_worker import (
    join_pieces,
    learn_pieces,
    learn_range,
    merge_pieces,
    merge_states,
    take_piece,
)
from streamomd.distributed.cluster import send_task, wait_until_done
from streamomd.distributed.round_state import RoundStart, copy_state, start_state
from streamomd.distributed.worker_monitor import Waiting
from streamomd.engine.merge import Ranges
from streamomd.shards.order import RowRange

MERGE_FIRST = 1  # a merge frees a state, so it runs before a task that makes one
START_FIRST = 2  # all others wait for it
WAVES = 4
"""Into how many groups the pieces are divided that are merged between workers at the same time."""


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


@dataclass(frozen=True, eq=False)
class Node:
    """States that are merged: one part's, or all below.

    places: of each piece, the worker that has it; one of the whole state. levels: how many merges,
    one above another, are between workers.
    """

    number: int
    below: tuple[Node, ...]
    places: tuple[str, ...]
    levels: int = 0

    @property
    def is_local(self) -> bool:
        """Whether all that is merged is on one worker."""
        return not self.levels


def merge_tree(places: Sequence[str], pieces: int) -> Node:
    """The tree of merges of parts that are learned in these places, in pieces.

    Two neighbours are merged at a time; an odd one at the end moves to the next level. A piece that
    two workers have is merged on the first or the second one, by a bit of its number for each
    level: so each merges half of the pieces, and at the next level half of those.

    >>> merge_tree(["a", "a", "b", "b"], 4).places, merge_tree(["a", "b", "c"], 1).places
    (('a', 'b', 'a', 'b'), ('a',))
    """
    nodes = [Node(number, (), (place,) * pieces) for number, place in enumerate(places)]
    count = 0
    while len(nodes) > 1:
        above = []
        for a, b in zip(nodes[::2], nodes[1::2], strict=False):
            levels = max(a.levels, b.levels)
            both = [*zip(a.places, b.places, strict=True)]
            found = tuple(two[number >> levels & 1] for number, two in enumerate(both))
            levels += any(first != second for first, second in both)
            above.append(Node(count, (a, b), found, levels))
            count += 1
        nodes = above + nodes[len(nodes) - len(nodes) % 2 :]
    return nodes[0]


@dataclass(frozen=True)
class RoundTasks:
    """Submits the tasks of a round. by: what weighs means in a merge. topic: of progress events.
    ranges: of the pieces in which states are merged; None: as a whole."""

    client: Client
    request: RoundStart
    usable: Sequence[str]
    topic: str
    by: str
    waiting: Waiting
    ranges: Ranges | None = None

    def submit(
        self, parts: Sequence[RowRange], places: Sequence[str]
    ) -> tuple[Future[Any], Callable[[], Future[Any]]]:
        """Submit a round; return its start, and a function that submits the rest and returns the
        result. They hold the only references to the others, so each state is freed when it is
        merged."""
        starts = self._send_starts(list(dict.fromkeys(places)))
        start = starts[places[0]]
        if self.ranges is not None and len(parts) > 1:
            pieces = PiecewiseMerges(
                self, self.ranges, starts, merge_tree(places, len(self.ranges))
            )
            pieces.submit_parts(parts, places)
            return start, pieces.result
        run, root = self.request.run, merge_tree(places, 1)
        results: dict[Node, Future[Any]] = {}
        for node in walk(root):
            if node.below:
                call: tuple[Any, ...] = merge_states, run if node is root else "", self.by
                inputs = starts[node.places[0]], *(results.pop(one) for one in node.below)
                key = f"omd-merge-{run}-{node.number}"
                results[node] = self.send(key, node.places, MERGE_FIRST, call, *inputs)
            else:
                part, place = parts[node.number], node.places[0]
                call = learn_range, self.request, part, len(parts) > 1, self.topic, node.number
                results[node] = self.send_part(node.number, call, starts[place])
        result = results[root]
        return start, lambda: result

    def send_part(self, number: int, call: tuple[Any, ...], start: Future[Any]) -> Future[Any]:
        """Submit the task of a part. Dask prefers the worker that has the start; another one that
        is idle may take it."""
        return self.send(f"omd-part-{self.request.run}-{number}", self.usable, -number, call, start)

    def _send_starts(self, workers: Sequence[str]) -> dict[str, Future[Any]]:
        """The round's start on each of these workers: the first one has it or loads it, each of
        the others copies it from one before."""
        run, starts = self.request.run, list[Future[Any]]()
        for number, worker in enumerate(workers):
            key, inputs = f"omd-start-{run}-{number}", [starts[source_of(number)]] if number else []
            call = (copy_state,) if number else (start_state, self.request)
            starts.append(self.send(key, [worker], START_FIRST, call, *inputs))
        return dict(zip(workers, starts, strict=True))

    def send(
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


@dataclass(eq=False)
class PiecewiseMerges:
    """The merges of a round in pieces.

    On one worker, pieces are merged as soon as they are learned. Between workers, a few pieces at a
    time are sent and merged, up to the result: so few of them wait on each worker. starts: of the
    round, by worker. root: of the tree of merges.
    """

    tasks: RoundTasks
    ranges: Ranges
    starts: dict[str, Future[Any]]
    root: Node
    _pieces: dict[tuple[Node, int], Future[Any]] = field(default_factory=dict)
    """By the node that they are the result of, until they are merged."""

    def submit_parts(self, parts: Sequence[RowRange], places: Sequence[str]) -> None:
        """Submit all parts, and the merges on one worker."""
        run, tasks, count = self.tasks.request.run, self.tasks, len(self.ranges)
        for node in walk(self.root):
            if node.below and node.is_local:
                for piece in range(count):
                    self._merge(node, piece)
            elif not node.below:
                part, place = parts[node.number], places[node.number]
                call = learn_pieces, tasks.request, part, self.ranges, tasks.topic, node.number
                learned = tasks.send_part(node.number, call, self.starts[place])
                for piece in range(count):  # on the worker that has learned the part
                    key, take = f"omd-piece-{run}-{node.number}-{piece}", (take_piece, piece)
                    self._pieces[node, piece] = tasks.send(
                        key, tasks.usable, START_FIRST, take, learned
                    )

    def result(self) -> Future[Any]:
        """Submit the merges between workers; wait for them; the result of the round."""
        count = len(self.ranges)
        step = -(-count // WAVES)
        for first in range(0, count, step):
            wave = range(first, min(first + step, count))
            for piece in wave:
                self._merge(self.root, piece)
            for piece in wave:
                wait_until_done(
                    self.tasks.client, self._pieces[self.root, piece], self.tasks.waiting
                )
        self.starts.clear()  # which frees a state on each worker before the result is made
        inputs = [self._pieces.pop((self.root, piece)) for piece in range(count)]
        run, place = self.tasks.request.run, self.root.places[0]
        return self.tasks.send(
            f"omd-join-{run}", [place], MERGE_FIRST, (join_pieces, run, self.ranges), *inputs
        )

    def _merge(self, node: Node, piece: int) -> None:
        """Submit the merge of a piece, and those below it."""
        if (node, piece) in self._pieces:
            return
        for one in node.below:
            self._merge(one, piece)
        place = node.places[piece]
        call = merge_pieces, self.ranges, piece, node is self.root, self.tasks.by
        inputs = self.starts[place], *(self._pieces.pop((one, piece)) for one in node.below)
        key = f"omd-merge-{self.tasks.request.run}-{node.number}-{piece}"
        self._pieces[node, piece] = self.tasks.send(key, [place], MERGE_FIRST, call, *inputs)


def walk(root: Node) -> Iterator[Node]:
    """All nodes of a tree, those below before those above."""
    for node in root.below:
        yield from walk(node)
    yield root
