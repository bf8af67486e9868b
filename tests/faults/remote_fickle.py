"""Stores of doubtful virtue: late listings, late objects, no put-if-absent; and two writers there.

The store is a dict with a clock that ticks at every request. Nothing waits, and nothing is random
but by the seed, so that whatever was found is found again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from fsspec import AbstractFileSystem
from kinds import Cases, Verdict, kind
from remote_life import HONEST, LIED_TO, Life, judged
from remote_race import Race, race

from streamomd.checkpoint.stores.remote import RemoteStore

SEEDS = 600
NEVER = 1 << 60


@dataclass
class Thing:
    """An object: from which ticks on it is found by name and by listing, and until when."""

    data: bytes
    named: int
    listed: int
    gone: int = NEVER
    unlisted: int = NEVER


@dataclass
class Cloud:
    """What any number of clients see. ``late_*``: the most ticks until they all see a change."""

    draw: random.Random
    exclusive: bool = True
    late_list: int = 0
    late_name: int = 0
    fails: float = 0.0
    clock: int = 0
    things: dict[str, list[Thing]] = field(default_factory=dict)

    def answer(self) -> None:
        """The reply to what was done may be lost."""
        if self.draw.random() < self.fails:
            raise OSError("no answer")

    def soon(self, most: int) -> int:
        return self.clock + self.draw.randint(0, most)

    def named(self, path: str) -> Thing:
        """The newest version of an object that this reader sees."""
        for thing in reversed(self.things.get(path, [])):
            if thing.gone <= self.clock:
                break
            if thing.named <= self.clock:
                return thing
        raise FileNotFoundError(path)


class Fickle(AbstractFileSystem):
    """The file system of a cloud."""

    protocol: ClassVar = "fickle"
    cachable = False

    def __init__(self, cloud: Cloud, **options: Any) -> None:
        super().__init__(**options)
        self.cloud = cloud

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        cloud = self.cloud
        cloud.clock += 1
        there = cloud.things.setdefault(path, [])
        if mode == "create" and cloud.exclusive and there and there[-1].gone == NEVER:
            raise FileExistsError(path)
        there.append(Thing(value, cloud.soon(cloud.late_name), cloud.soon(cloud.late_list)))
        cloud.answer()

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        self.cloud.clock += 1
        self.cloud.answer()
        return self.cloud.named(path).data

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": len(self.cat_file(path))}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[dict[str, Any]]:
        cloud = self.cloud
        cloud.clock += 1
        cloud.answer()
        found = [
            name
            for name, things in cloud.things.items()
            if name.rpartition("/")[0] == path
            and any(one.listed <= cloud.clock < one.unlisted for one in things)
        ]
        return [{"name": name, "type": "file", "size": None} for name in found]

    def rm_file(self, path: str) -> None:
        cloud = self.cloud
        cloud.clock += 1
        for thing in cloud.things.get(path, []):
            if thing.gone == NEVER:
                thing.gone, thing.unlisted = cloud.clock, cloud.soon(cloud.late_list)
        cloud.answer()


def store(cloud: Cloud) -> RemoteStore:
    return RemoteStore(Fickle(cloud), "run", "fickle://run")


@contextmanager
def hasty() -> Iterator[None]:
    """No pause between tries; a warning of what a store cannot do is not printed."""
    with mock.patch("streamomd.checkpoint.stores.remote.time.sleep"):
        yield


def alone(name: str, **virtues: Any) -> Callable[[int], Verdict]:
    """A life on a store that fails, and is late by so much."""

    def run(seed: int) -> Verdict:
        draw = random.Random(f"{name} {seed}")
        cloud = Cloud(random.Random(draw.random()), fails=draw.choice((0.0, 0.1, 0.4)), **virtues)

        def calm() -> RemoteStore:
            # All is seen in the end, and all answers come.
            cloud.clock, cloud.fails, cloud.late_list, cloud.late_name = cloud.clock + 100, 0, 0, 0
            return store(cloud)

        late = virtues.get("late_list", 0) or virtues.get("late_name", 0)
        life = Life(lambda: store(cloud), draw, LIED_TO if late else HONEST)
        return judged(life, calm, count=6)

    return run


@kind("fickle-answers", quick=40)
@contextmanager
def fickle_answers(folder: Path) -> Iterator[Cases]:
    """Any store: replies lost, with put-if-absent and without."""
    with hasty():
        runs = [alone("sure", exclusive=True), alone("unsure", exclusive=False)]
        yield Cases(range(SEEDS), lambda seed: runs[seed % 2](seed))


@kind("fickle-late", quick=40)
@contextmanager
def fickle_late(folder: Path) -> Iterator[Cases]:
    """Any store: listings that are late, objects that are seen late, replies lost."""
    with hasty():
        runs = [alone("list", late_list=15), alone("both", late_list=15, late_name=8)]
        yield Cases(range(SEEDS), lambda seed: runs[seed % 2](seed))


def both(seed: int) -> Verdict:
    """Two writers, on a store that excludes one of them or not, and that may lose replies."""
    draw = random.Random(f"race {seed}")
    cloud = Cloud(random.Random(draw.random()), exclusive=bool(seed % 2))
    return race(Race(lambda: store(cloud)), seed // 2 % 70, lambda: store(cloud))


@kind("fickle-race", quick=20)
@contextmanager
def fickle_race(folder: Path) -> Iterator[Cases]:
    """Any store: a second writer comes at every request of the first, with put-if-absent or not."""
    with hasty():
        yield Cases(range(140), both)
