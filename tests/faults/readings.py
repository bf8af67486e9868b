"""A store that answers badly for a moment: other bytes once, or an error, anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkpoint_helpers import DictStore, a_run, load_all, numbers
from kinds import Cases, Verdict, kind
from standing import falls_back, goes_on, stands

from streamomd.checkpoint import Writer, write_document
from streamomd.core.errors import CorruptionError, NoCommitError, StorageError


class Moody(DictStore):
    """A store in a dict whose call number ``at`` is answered by ``answer``."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.calls = 0, 0
        self.answer: Callable[[Callable[[], Any]], Any] = lambda do: do()

    def _call(self, deed: str, do: Callable[[], Any]) -> Any:
        self.calls += 1
        return self.answer(do) if self.calls == self.at else do()

    def read(self, name: str, most: int | None = None) -> bytes:
        return self._call("read", lambda: super(Moody, self).read(name, most))

    def size(self, name: str) -> int | None:
        return self._call("size", lambda: super(Moody, self).size(name))

    def names(self, folder: str) -> list[str]:
        return self._call("names", lambda: super(Moody, self).names(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        return self._call("sizes", lambda: super(Moody, self).sizes(folder))

    def put(self, name: str, data: bytes, sha256: str = "") -> bool:
        return self._call("put", lambda: super(Moody, self).put(name, data, sha256))

    def create(self, name: str, data: bytes) -> None:
        self._call("create", lambda: super(Moody, self).create(name, data))

    def delete(self, name: str) -> None:
        self._call("delete", lambda: super(Moody, self).delete(name))


def refused(do: Callable[[], Any]) -> Any:
    raise StorageError("503 Slow Down")


def lost_reply(do: Callable[[], Any]) -> Any:
    do()
    raise StorageError("the connection was reset")


def bad_bytes(do: Callable[[], Any]) -> Any:
    data = do()
    return bytes([data[0] ^ 4]) + data[1:] if isinstance(data, bytes) and data else data


def half(do: Callable[[], Any]) -> Any:
    data = do()
    return data[: len(data) // 2] if isinstance(data, bytes) else data


ANSWERS = (refused, lost_reply, bad_bytes, half)


def prepared(keep: int) -> tuple[Moody, Writer]:
    store = Moody()
    return store, a_run(store, 2, keep=keep)


def commit(store: Moody, writer: Writer) -> None:
    names = write_document(store, "names", {"1": ["a name"]})
    writer.commit({"rows": 30, "names": names}, numbers(3))


def resume(store: Moody, writer: Writer) -> None:
    Writer.take_over(store, load_all(store)[0])


def look(store: Moody, writer: Writer) -> None:
    load_all(store)


DEEDS = {"commit": (commit, 3), "resume": (resume, 2), "load": (look, 2)}


@kind("bad-answers", quick=80)
@contextmanager
def bad_answers(folder: Path) -> Iterator[Cases]:
    """one answer of a store is an error, a lost reply, other bytes or half of them"""
    cases = []
    for name, keep in itertools.product(DEEDS, (1, 3)):
        store, writer = prepared(keep)
        before = store.calls
        DEEDS[name][0](store, writer)
        count = store.calls - before
        cases += itertools.product((name,), (keep,), ANSWERS, range(1, count + 1))

    def run(seed: int) -> Verdict:
        name, keep, answer, at = cases[seed]
        deed, new = DEEDS[name]
        store, writer = prepared(keep)
        store.at, store.answer = store.calls + at, answer
        ended = Verdict.SAME
        try:
            deed(store, writer)
        except (StorageError, CorruptionError, NoCommitError):
            ended = Verdict.NAMED
        # A reading that is wrong once is no damage, and an error is never taken for one.
        if ended is Verdict.NAMED and answer in (bad_bytes, half):
            return Verdict.LOST
        verdict = stands(store, {new} if ended is Verdict.SAME else {2, new})
        if verdict is Verdict.SAME:
            verdict = goes_on(store, 4)
        return ended if verdict is Verdict.SAME else verdict

    yield Cases(range(len(cases)), run)


@kind("errors-while-loading", quick=40)
@contextmanager
def errors_while_loading(folder: Path) -> Iterator[Cases]:
    """a store stops answering during a load: an error, and no older commit instead"""
    store, _ = prepared(3)
    before = store.calls
    load_all(store)
    count = store.calls - before
    cases = list(itertools.product(range(1, count + 1), range(1, 4)))

    def run(seed: int) -> Verdict:
        at, times = cases[seed]
        store, _ = prepared(3)
        first = store.calls

        def fails(deed: str, do: Callable[[], Any]) -> Any:
            store.calls += 1
            if first + at <= store.calls < first + at + times:
                raise StorageError("timed out")
            return do()

        store._call = fails  # type: ignore[method-assign]  # for one case
        try:
            loaded, _ = load_all(store)
        except StorageError:
            del store._call
            return Verdict.NAMED if stands(store, {2}) is Verdict.SAME else Verdict.LOST
        return Verdict.SILENT if loaded.commit.sequence != 2 else Verdict.SAME

    yield Cases(range(len(cases)), run)


def stored_short(store: DictStore, name: str, length: int) -> None:
    store.objects[name] = store.objects[name][:length]


@kind("short-puts", quick=60)
@contextmanager
def short_puts(folder: Path) -> Iterator[Cases]:
    """a store saves the beginning of an object, or nothing, and reports success"""
    store, writer = prepared(1)
    puts: list[tuple[str, int]] = []
    store.after = lambda deed, name: puts.append((deed, len(store.objects[name])))
    commit(store, writer)
    cases = [(at, length) for at, (_, size) in enumerate(puts, 1) for length in range(0, size, 7)]

    def run(seed: int) -> Verdict:
        at, length = cases[seed]
        store, writer = prepared(1)
        left = [at]

        def lie(deed: str, name: str) -> None:
            left[0] -= 1
            if not left[0]:
                stored_short(store, name, length)

        store.after = lie
        try:
            commit(store, writer)
        except StorageError:
            return Verdict.NAMED if stands(store, {2}) is Verdict.SAME else Verdict.LOST
        except CorruptionError:
            return falls_back(store, 3, 2)
        return stands(store, {3})

    yield Cases(range(len(cases)), run)
