"""Transfers: several requests to a store in flight, their results in order.

A request costs a latency, however small it is, and one connection rarely has the whole bandwidth.
So parts are written and read by several threads. The bytes in flight are bounded.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from streamomd.core.errors import CorruptionError, StorageError

T = TypeVar("T")
R = TypeVar("R")

BYTES_IN_FLIGHT = 129 << 20
"""Bytes of the items in flight: eight parts of 16 MiB and their heads. A larger one is alone.

The clients of stores copy what they send, so a commit takes up to 350 MiB, and so does a load.
"""
REPORTED = 10
"""Failed items that a message names."""


def in_flight(
    work: Callable[[T], R], items: Iterable[T], limit: int, nbytes: Callable[[T], int]
) -> Iterator[R]:
    """The result of ``work`` for each item, in order; at most ``limit`` of them run at a time.

    Items are taken when there is room for them. With a limit of 1 this thread does the work.
    After an error no other item is taken, and those in flight end before it is raised, so nothing
    is written later. All errors of items in flight are raised together.
    """
    if limit == 1:
        yield from map(work, items)
        return
    running: deque[_Transfer[R]] = deque()
    try:
        for item in items:
            size = nbytes(item)
            while running and (
                len(running) >= limit
                or size + sum(transfer.nbytes for transfer in running) > BYTES_IN_FLIGHT
            ):
                yield running.popleft().result()
            running.append(_Transfer(work, item, size))
        while running:
            yield running.popleft().result()
    except Exception as error:
        raise _joined(
            [error, *(transfer for each in running if (transfer := each.wait()))]
        ) from None


class _Transfer(Generic[R]):
    """One item's work in a thread. The process does not wait for it at its exit."""

    def __init__(self, work: Callable[[T], R], item: T, nbytes: int) -> None:
        self.nbytes = nbytes
        self._result: list[R] = []
        self._error: BaseException | None = None
        context = contextvars.copy_context()  # where notes are sent
        self._thread = threading.Thread(
            target=context.run,
            args=(self._run, work, item),
            name="streamomd-transfer",
            daemon=True,
        )
        self._thread.start()

    def _run(self, work: Callable[[T], R], item: T) -> None:
        try:
            self._result.append(work(item))
        except BaseException as error:
            self._error = error

    def result(self) -> R:
        """Wait for the work. Raises its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result.pop()

    def wait(self) -> Exception | None:
        """Wait for the work, and return its error."""
        self._thread.join()
        return self._error if isinstance(self._error, Exception) else None


def _joined(errors: list[Exception]) -> Exception:
    """One error for all: damage before a store that fails, and anything unexpected before both.

    Damage is proven, so a load may use an older commit, whatever else failed.
    """
    for error in errors:
        if not isinstance(error, (CorruptionError, StorageError)):
            return error
    kind = CorruptionError if any(isinstance(e, CorruptionError) for e in errors) else StorageError
    same = [error for error in errors if isinstance(error, kind)]
    if len(same) == 1:
        return same[0]
    texts = [str(error) for error in same[:REPORTED]]
    more = [f"and {len(same) - REPORTED} more"] if len(same) > REPORTED else []
    return kind("; ".join([*texts, *more]))
