"""Two writers of one checkpoint: the second comes at a chosen request of the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from checkpoint_helpers import begin, load_all, numbers, plain
from kinds import Verdict

from streamomd.checkpoint import Store, Writer, list_commits
from streamomd.checkpoint.stores.remote import RemoteStore
from streamomd.core.errors import ConcurrentWriterError, StorageError

ROUNDS = range(5, 8)


@dataclass
class Race:
    """``made``: what was reported committed, by sequence; ``stopped``: how often a writer was."""

    open_store: Callable[[], RemoteStore]
    made: dict[int, int] = field(default_factory=dict)
    stopped: int = 0

    def commit(self, writer: Writer, number: int) -> bool:
        """False once the writer was told of the other."""
        try:
            writer.commit({"rows": 10 * number}, numbers(number))
        except ConcurrentWriterError:
            self.stopped += 1
            return False
        except StorageError:
            return True
        self.made[writer.sequence] = number
        return True

    def second(self) -> Writer | None:
        """Another writer takes over and commits; None if it was told of the first or a fault."""
        store = self.open_store()
        try:
            writer = Writer.take_over(store, load_all(store)[0], keep=2)
        except (StorageError, ConcurrentWriterError):
            return None
        return writer if self.commit(writer, 50) else None


def race(run: Race, moment: int, calm: Callable[[], Store]) -> Verdict:
    """The second comes before request ``moment`` of the first; then both go on in turn."""
    store, found = run.open_store(), []
    call, calls = store._call, 0

    def racing_call(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == moment + 1:
            found.append(run.second())
        return call(*given, **options)

    first = begin(store, keep=2)
    run.made[0] = 0
    store._call = racing_call  # type: ignore[method-assign]
    going = all(run.commit(first, number) for number in range(1, 5))
    has_second = True
    for number in ROUNDS:
        going = going and run.commit(first, number)
        # The second may come in these rounds only, and then goes on as well.
        if found and has_second:
            has_second = found[0] is not None and run.commit(found[0], 50 + number)
    if going and found and has_second:
        return Verdict.SILENT
    return stands(run, calm(), exclusive=store.exclusive)


def stands(run: Race, calm: Store, *, exclusive: bool) -> Verdict:
    """What was committed last is there and whole; with exclusion, so is all that was reported."""
    loaded, parts = load_all(calm)
    number = loaded.commit.document["rows"] // 10
    if loaded.rejected or parts != plain(numbers(number)):
        return Verdict.SILENT
    told = list_commits(calm, deep=True)
    if not all(one["ok"] for one in told):
        return Verdict.LOST
    rows = {one["sequence"]: one["rows"] for one in told}
    kept = all(rows.get(at, 10 * made) == 10 * made for at, made in run.made.items())
    if exclusive and not (kept and loaded.commit.sequence >= max(run.made)):
        return Verdict.LOST
    return Verdict.NAMED if run.stopped else Verdict.SAME
