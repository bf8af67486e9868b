"""A store that answers late, not at all, or that it failed although it did not; and who watches it.

What must hold at every moment is looked at when a manifest lands, when somebody hears that its
commit is made, and when somebody loads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sim_loop import Killed, Loop

from streamomd.checkpoint import Commit, Loaded, Writer
from streamomd.checkpoint.manifest import decode, sequence_of
from streamomd.core.errors import StorageError

T = TypeVar("T")


@dataclass(frozen=True)
class Weather:
    """How likely a store's call goes wrong, until it is calm; seconds a listing lags behind."""

    error: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    lag: float = 0.0
    slow: float = 0.004
    calm: float = 60.0


@dataclass(eq=False)
class Disk:
    """The objects, and what was heard of them."""

    loop: Loop
    weather: Weather
    objects: dict[str, bytes] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    made: int = -1
    """The newest commit somebody has heard to be made."""
    highest: int = -1
    writers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first commit of each, and the one before, from which it goes on."""
    story: list[tuple[float, str]] = field(default_factory=list)

    def land(self, name: str, data: bytes, *, new: bool) -> None:
        """An object is there, all of it."""
        if new and name in self.objects:
            raise FileExistsError(name)
        self.objects[name] = data
        self.shown[name] = self.loop.now + self.loop.draw.uniform(0.0, self.weather.lag)
        self.gone.pop(name, None)
        sequence = sequence_of(name)
        if sequence is not None:
            commit = decode(data, sequence)
            self.tell(f"{commit.kind} {sequence} of {commit.writer.uuid[:4]} lands")
            if sequence > self.highest:  # what lands late is below, and nobody's newest
                self.highest = sequence
                self.refuse_half(commit)

    def tell(self, what: str) -> None:
        """For who reads what happened."""
        self.story.append((self.loop.now, what))

    def remove(self, name: str) -> None:
        """An object is there no more."""
        if self.objects.pop(name, None) is not None:
            self.gone[name] = self.loop.now + self.loop.draw.uniform(0.0, self.weather.lag)

    def listed(self, folder: str) -> list[str]:
        """What a listing tells now."""
        now = self.loop.now
        there = [name for name in self.objects if self.shown[name] <= now]
        there += [name for name, until in self.gone.items() if until > now]
        return [name for name in there if name.rpartition("/")[0] + "/" == folder]

    def refuse_half(self, commit: Commit) -> None:
        """Whatever a commit names is there before it, and whole."""
        for entry in commit.parts:
            found = self.objects.get(commit.part_name(entry))
            if found is None or len(found) != entry.size:
                raise AssertionError(f"commit {commit.sequence} is there before its parts")

    def heard(self, commit: Commit) -> None:
        """A writer believes that its commit is made."""
        first, _ = self.writers.setdefault(commit.writer.uuid, (commit.sequence, -1))
        for begun, last in self.writers.values():
            if begun > first and commit.sequence > last:
                raise AssertionError(f"commit {commit.sequence}: its writer was fenced at {last}")
        self.made = max(self.made, commit.sequence)

    def loaded(self, loaded: Loaded, before: int) -> None:
        """Somebody goes on from a commit: at least the newest heard of before it was looked for."""
        if loaded.rejected:
            raise AssertionError(f"not whole: {loaded.rejected}")
        if loaded.commit.sequence < before:
            raise AssertionError(f"commit {before} was made, {loaded.commit.sequence} is loaded")

    def took_over(self, writer: Writer, last: int) -> None:
        """A new writer has gone on from a commit: nobody before it commits any more."""
        self.writers[writer._self.uuid] = (writer.sequence, last)


@dataclass(eq=False)
class SimStore:
    """The disk as one process sees it: each call takes a while, and may go wrong."""

    disk: Disk
    url: str = "sim://kept"
    exclusive: bool = True
    in_flight: int = 1
    part_bytes: int = 0
    consistent: bool = False

    def read(self, name: str, most: int | None = None) -> bytes:
        def found() -> bytes:
            if name not in self.disk.objects:
                raise FileNotFoundError(name)
            return self.disk.objects[name][:most]

        return self._asked("read", name, found)

    def size(self, name: str) -> int | None:
        def found() -> int | None:
            data = self.disk.objects.get(name)
            return None if data is None else len(data)

        return self._asked("size", name, found)

    def names(self, folder: str) -> list[str]:
        return self._asked("names", folder, lambda: self.disk.listed(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        def found() -> dict[str, int]:
            there = [name for name in self.disk.listed(folder) if name in self.disk.objects]
            return {name: len(self.disk.objects[name]) for name in there}

        return self._asked("sizes", folder, found)

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        self._asked("put", name, lambda: self.disk.land(name, data, new=False), changes=True)
        return False

    def create(self, name: str, data: bytes) -> None:
        self._asked("create", name, lambda: self.disk.land(name, data, new=True), changes=True)

    def delete(self, name: str) -> None:
        self._asked("delete", name, lambda: self.disk.remove(name), changes=True)

    def _asked(self, deed: str, name: str, act: Callable[[], T], *, changes: bool = False) -> T:
        loop, weather = self.disk.loop, self.disk.weather
        luck, pause = loop.draw.random(), weather.slow * loop.draw.random()
        stormy = loop.now < weather.calm
        try:
            loop.sleep(pause)
        except Killed:
            if changes and luck < 0.3:  # it was on its way
                self._later(act)
            raise
        if stormy and luck < weather.error:
            self.disk.tell(f"no answer to {deed} {name}")
            raise StorageError(f"{deed} {name}: no answer")
        if stormy and changes and luck > 1.0 - weather.late:
            self._later(act)
            self.disk.tell(f"{deed} {name} comes late")
            raise StorageError(f"{deed} {name}: no answer yet")
        found = act()
        if changes:
            loop.sleep(pause)
        if stormy and luck < weather.error + weather.lost:
            self.disk.tell(f"the answer to {deed} {name} is lost")
            raise StorageError(f"{deed} {name}: the answer was lost")
        return found

    def _later(self, act: Callable[[], Any]) -> None:
        def land() -> None:
            with suppress(FileExistsError):
                act()

        self.disk.loop.at(self.disk.loop.draw.uniform(0.01, 5.0), land)
