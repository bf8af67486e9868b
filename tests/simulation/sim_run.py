"""A world, run: the project's own code put into it, and taken out again.

``python tests/simulation/sim_run.py SEED`` tells the story of one.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from importlib import metadata
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sim_store
from sim_client import Coming, SimQueue, SimVariable, worker_client
from sim_cluster import Here
from sim_loop import Signal
from sim_star import SimStar
from sim_store import SimStore
from sim_tiny import (
    TinyRounds,
    apply,
    decide,
    described,
    merge,
    new,
    rows_of_group,
    sense,
)
from sim_tiny import receive as receiving
from sim_world import World

from streamomd.checkpoint import commit_reader as chain
from streamomd.checkpoint import commit_writer as writer
from streamomd.checkpoint import load
from streamomd.checkpoint.manifest import decode
from streamomd.distributed import (
    averaged_worker,
    partition_owner,
    round_state,
    worker_group,
)
from streamomd.training import checkpoint_manager, microbatch_rounds, progress


def run(seed: int) -> World:
    """A world to its end. Raises what was seen that is never to be."""
    world = World(seed)
    world.loop.run()
    return world


@contextmanager
def simulated() -> Iterator[None]:
    """While inside, the code under test lives in ``World.now``."""
    with mock.patch.multiple(progress, _say=lambda *_: None):
        put = [mock.patch.object(home, name, new) for home, name, new in places()]
        for one in put:
            one.start()
        try:
            yield
        finally:
            for one in put[::-1]:
                one.stop()


def places() -> Iterator[tuple[Any, str, Any]]:
    """What is put in place of what: everywhere the clock and luck, in distribute the cluster."""
    replaced: dict[int, Any] = {
        id(time): SimpleNamespace(
            monotonic=lambda: World.now.loop.now, sleep=lambda s: World.now.loop.sleep(s)
        ),
        id(uuid): SimpleNamespace(uuid4=_uuid),
        id(threading): SimpleNamespace(Event=_Event, Lock=threading.Lock),
    }
    named = {
        "Queue": SimQueue,
        "Variable": SimVariable,
        "get_worker": lambda: _here(),
        "worker_client": lambda **_: worker_client(World.now.loop),
        "Star": lambda worker, *which: SimStar(World.now.net, *which),
        "RowExchange": lambda *_: SimpleNamespace(
            epoch=None, close=lambda: None, shards=lambda: described(World.now.job)[2].shards
        ),
        "open_store": lambda *_: SimStore(World.now.disk),
        "run_on_loop": lambda client, work: Coming(World.now.loop, work),
        "pack_call": lambda function, arguments, inputs: (
            function,
            *arguments,
            *inputs,
        ),  # in one process
    }
    for name, home in list(sys.modules.items()):
        inside = name.startswith("streamomd.distributed")
        if inside or home in (checkpoint_manager, writer):
            for key, value in list(vars(home).items()):
                if id(value) in replaced:
                    yield home, key, replaced[id(value)]
                elif inside and key in named:
                    yield home, key, named[key]
    # A manifest is the same however often it is read, and polling more often tells nothing new.
    known = lru_cache(2048)(decode)
    for home in (writer, chain, sim_store):
        yield home, "decode", known
    # Nothing is installed meanwhile; otherwise half of the time is spent on this directory search.
    for name in ("version", "requires"):
        yield metadata, name, lru_cache(getattr(metadata, name))
    yield worker_group, "QUEUE_POLL_SECONDS", 0.2
    yield checkpoint_manager, "SHARE", 0.5  # or there is one commit due by time in a run so short
    yield round_state, "_merged", _Merged()
    yield round_state, "engine_of", lambda spec, plan: _engine()
    yield round_state, "load_model", _loaded
    yield averaged_worker, "rows_of_group", rows_of_group
    for function in (sense, decide, apply):
        yield microbatch_rounds, function.__name__, function
    yield averaged_worker, "merge", merge
    yield partition_owner, "engine_of", lambda spec, plan: _engine()
    yield partition_owner, "Rounds", TinyRounds
    yield partition_owner, "connect", lambda *_: None
    yield partition_owner, "holding_close", nullcontext  # no worker is asked to close


def _here() -> Any:
    return Here.get(World.now.loop)[0]


def _uuid() -> Any:
    return SimpleNamespace(hex=f"{World.now.loop.draw.getrandbits(128):032x}")


def _engine() -> Any:
    model = new(World.now.job, World.now.work)
    return model.engine


def _loaded(url: str, *, storage_options: Any, at: int) -> Any:
    models: list[Any] = []
    world = World.now
    load(SimStore(world.disk), receiving(models, world.job, world.work), at=at)
    return models[-1], None


class _Merged:
    """Results of rounds: a table for each worker."""

    def get(self, run: str) -> Any:
        return _here().merged.get(run)

    def __setitem__(self, run: str, result: Any) -> None:
        _here().merged[run] = result

    def values(self) -> Any:
        return _here().merged.values()


class _Event:
    """As threading.Event."""

    def __init__(self) -> None:
        self._signal, self._set = Signal(World.now.loop), False

    def set(self) -> None:
        self._set = True
        self._signal.notify()

    def clear(self) -> None:
        self._set = False

    def wait(self, seconds: float) -> None:
        if not self._set:
            self._signal.wait(seconds)


def main() -> None:
    """Tell the story of one seed."""
    with simulated():
        try:
            run(int(sys.argv[1]))
        finally:
            world = World.now
            print(world.job, world.disk.weather, sep="\n")
            for at, text in world.disk.story:
                print(f"{at:10.3f} {text}")


if __name__ == "__main__":
    main()
