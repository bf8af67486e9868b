"""Two writers at once: one goes to any of its calls of the store, the other to any, and on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_helpers import DictStore, a_run, load_all, numbers, plain
from kinds import Cases, Verdict, kind

from streamomd.checkpoint import Commit, Store, Writer, list_commits, open_store
from streamomd.checkpoint.manifest import decode, manifest_name, sequence_of
from streamomd.core.errors import StreamomdError

PATIENCE = 20.0
END = 1 << 30


class History:
    """A store that remembers every manifest there ever was."""

    exclusive = True

    def __init__(self, inner: Store) -> None:
        self.inner, self.url = inner, inner.url
        self.ever: dict[str, Commit] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create(self, name: str, data: bytes) -> None:
        self.inner.create(name, data)
        sequence = sequence_of(name)
        if sequence is not None:
            commit = decode(data, sequence)
            self.ever[commit.sha256] = commit

    def line(self, commit: Commit) -> list[str]:
        """The SHA-256s of a commit and all before it."""
        found = [commit.sha256]
        while (before := self.ever.get(commit.parent_sha256)) is not None:
            commit = before
            found.append(commit.sha256)
        return found


class Writing:
    """A writer's deeds in a thread of its own, which waits at every call until it may go on."""

    def __init__(self, deeds: Callable[[Writing], None]) -> None:
        self.calls, self.made, self.error = 0, [], None
        self._until, self._deeds = 0, deeds
        self._go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self.over = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Called in the thread, before a call of the store."""
        self.calls += 1
        if self.calls > self._until:
            self._waits.release()
            self._go.acquire()

    def go(self, until: int = END) -> None:
        """Called from outside: let it make its calls up to this one."""
        self._until = until
        if not self.over:
            self._go.release()
            if not self._waits.acquire(timeout=PATIENCE):
                raise TimeoutError("a writer waits for ever")

    def _live(self) -> None:
        self._go.acquire()
        try:
            self._deeds(self)
        except BaseException as error:
            self.error = error
        self.over = True
        self._waits.release()


class Gate:
    """One writer's way to the store both share."""

    url, exclusive = "gate", True
    in_flight = 1
    part_bytes = 0
    consistent = False

    def __init__(self, store: History, writing: Writing | None = None) -> None:
        self.store, self.writing = store, writing

    def __getattr__(self, name: str) -> Any:
        deed = getattr(self.store, name)

        def call(*args: Any) -> Any:
            if self.writing:
                self.writing.step()
            return deed(*args)

        return call


@dataclass(frozen=True)
class Race:
    """prepare: what both find. Each then does its deeds: the commits it was told are made."""

    prepare: Callable[[Gate], Writer | None]
    one: Callable[[Gate, Writer | None], Iterator[Commit]]
    other: Callable[[Gate, Writer | None], Iterator[Commit]]


def commits_on(gate: Gate, writer: Writer | None, first: int = 2) -> Iterator[Commit]:
    """The writer that was there makes two commits more."""
    assert writer
    # From now on it goes through its own gate.
    writer.store = writer.retention.store = gate
    for at in (first, first + 1):
        yield writer.commit({"rows": 10 * at}, numbers(at))


def resumes(gate: Gate, writer: Writer | None, first: int = 12) -> Iterator[Commit]:
    """Another loads, takes over and makes two commits."""
    fresh = Writer.take_over(gate, load_all(gate)[0], keep=1)
    yield fresh.last
    for at in (first, first + 1):
        yield fresh.commit({"rows": 10 * at}, numbers(at))


def resumes_too(gate: Gate, writer: Writer | None) -> Iterator[Commit]:
    yield from resumes(gate, writer, 22)


def begins(gate: Gate, writer: Writer | None, first: int = 0) -> Iterator[Commit]:
    """One begins where nothing is."""
    fresh = Writer.begin(gate, {"rows": 10 * first}, numbers(first), keep=1)
    yield fresh.last
    yield fresh.commit({"rows": 10 * (first + 1)}, numbers(first + 1))


def begins_too(gate: Gate, writer: Writer | None) -> Iterator[Commit]:
    yield from begins(gate, writer, 30)


def restarts(gate: Gate, writer: Writer | None) -> Iterator[Commit]:
    """Another begins anew where a run is."""
    fresh = Writer.begin(gate, {"rows": 400}, numbers(40), keep=1, restart=True)
    yield fresh.last
    yield fresh.commit({"rows": 410}, numbers(41))


def a_short_run(gate: Gate) -> Writer:
    return a_run(gate, 1, keep=1)


RACES = {
    "resume during commits": Race(a_short_run, commits_on, resumes),
    "two resume": Race(a_short_run, resumes, resumes_too),
    "two begin": Race(lambda gate: None, begins, begins_too),
    "restart during commits": Race(a_short_run, commits_on, restarts),
    "restart during resume": Race(a_short_run, resumes, restarts),
}


def race(inner: Store, name: str, first: int, second: int) -> tuple[Verdict, int, int]:
    """One goes to its call ``first``, the other to its ``second``, then each to its end."""
    store = History(inner)
    writer = RACES[name].prepare(Gate(store))
    made: list[list[Commit]] = [[], []]

    def living(at: int, deeds: Any) -> Callable[[Writing], None]:
        def live(self: Writing) -> None:
            for commit in deeds(Gate(store, self), writer):
                made[at].append(commit)

        return live

    one, other = (
        Writing(living(at, deeds)) for at, deeds in enumerate((RACES[name].one, RACES[name].other))
    )
    one.go(first)
    other.go(second)
    one.go()
    other.go()
    return judged(store, made, one, other), one.calls, other.calls


def judged(store: History, made: list[list[Commit]], *writings: Writing) -> Verdict:
    """No commit that was reported made is off the line of what is loaded in the end."""
    for writing in writings:
        if writing.error and not isinstance(writing.error, StreamomdError):
            raise writing.error
    loaded, parts = load_all(store)
    if parts != plain(numbers(loaded.commit.document["rows"] // 10)):
        return Verdict.SILENT
    line = store.line(loaded.commit)
    if loaded.rejected or any(one.sha256 not in line for some in made for one in some):
        return Verdict.LOST
    if not all(one["ok"] for one in list_commits(store, deep=True) if _of_line(store, one, line)):
        return Verdict.LOST
    if all(not writing.error for writing in writings) and all(made):
        # Both ended well: only if one was done before the other came.
        return Verdict.SAME if _in_turn(line, made) else Verdict.SILENT
    return Verdict.NAMED if any(writing.error for writing in writings) else Verdict.SAME


def _of_line(store: History, told: dict[str, Any], line: list[str]) -> bool:
    data = store.read(manifest_name(told["sequence"]))
    return any(sha256.encode() in data for sha256 in line)


def _in_turn(line: list[str], made: list[list[Commit]]) -> bool:
    """Neither writer's commits stand between the other's."""
    who = {one.sha256: at for at, some in enumerate(made) for one in some}
    order = [who[sha256] for sha256 in line if sha256 in who]
    return len(list(itertools.groupby(order))) <= 2


def interleavings(make: Callable[[int], Store], step: int = 1) -> Cases:
    """Every race, with the first writer stopped at any call and the second at any ``step``-th."""
    cases: list[tuple[str, int, int]] = []
    for at, name in enumerate(RACES):
        _, calls, _ = race(make(-2 * at - 1), name, END, END)
        _, _, others = race(make(-2 * at - 2), name, 0, END)
        cases += [
            (name, *pair)
            for pair in itertools.product(range(calls + 1), range(0, others + 1, step))
        ]
    return Cases(range(len(cases)), lambda seed: race(make(seed), *cases[seed])[0])


@kind("racing-writers", quick=200)
@contextmanager
def racing_writers(folder: Path) -> Iterator[Cases]:
    """two writers, interleaved at any two calls of the store (5 races)"""
    yield interleavings(lambda seed: DictStore())


@kind("racing-writers-on-disk", quick=60)
@contextmanager
def racing_writers_on_disk(folder: Path) -> Iterator[Cases]:
    """the same on the local disk, with the second writer at any fifth call"""
    yield interleavings(lambda seed: open_store(str(folder / str(seed))), 5)


@kind("paused-writer", quick=80)
@contextmanager
def paused_writer(folder: Path) -> Iterator[Cases]:
    """a writer is suspended at any call while another resumes and commits 0 to 6 times"""
    _, calls, _ = race(DictStore(), "resume during commits", END, END)
    cases = list(itertools.product(range(calls + 1), range(7), (1, 2, 3)))

    def run(seed: int) -> Verdict:
        at, more, keep = cases[seed]
        store = History(DictStore())
        writer = a_run(Gate(store), 1, keep=keep)
        made: list[list[Commit]] = [[], []]

        def live(self: Writing) -> None:
            for commit in commits_on(Gate(store, self), writer):
                made[0].append(commit)

        sleeper = Writing(live)
        sleeper.go(at)
        other = Writer.take_over(Gate(store), load_all(store)[0], keep=keep)
        made[1].append(other.last)
        for number in range(12, 12 + more):
            made[1].append(other.commit({"rows": 10 * number}, numbers(number)))
        sleeper.go()
        return judged(store, made, sleeper)

    yield Cases(range(len(cases)), run)
